"""What agents remember: the checkpoints of their turns, and the state of their conversations."""
