"""The MCP tool adapter: it runs the configured MCP servers and calls their tools."""
