"""What turns leave behind: for their own next attempt, for the next turn, and for conversations."""
