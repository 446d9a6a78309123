"""The server package."""
