"""The MCP tool adapter, and the MCP servers we ship. Imports nothing: servers stay small."""
