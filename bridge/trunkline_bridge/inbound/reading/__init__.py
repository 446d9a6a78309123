"""What strangers send, read: JSON as such, how it fits messages, and how much of it there may be."""
