"""The edge package."""
