"""The research package."""
