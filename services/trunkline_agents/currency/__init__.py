"""The currency package."""
