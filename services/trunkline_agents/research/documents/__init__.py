"""The documents package."""
