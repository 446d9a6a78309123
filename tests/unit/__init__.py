"""The unit package."""
