"""MCP servers that behave as a test scripts them."""
