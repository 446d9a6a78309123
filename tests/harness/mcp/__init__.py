"""The mcp package."""
