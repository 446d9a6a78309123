"""The streams package."""
