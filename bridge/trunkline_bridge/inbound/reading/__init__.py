"""What strangers send, read: JSON as such, how it fits messages, and how much there may be."""
