"""A2A's own messages, generated."""
