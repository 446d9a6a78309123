"""The echo package."""
