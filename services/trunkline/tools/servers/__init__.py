"""MCP servers that ship with the mesh; each works with any MCP client over stdio."""
