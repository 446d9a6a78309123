"""The a2a package."""
