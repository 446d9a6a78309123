"""The client package."""
