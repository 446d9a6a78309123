"""The agents of a mesh as tools of an MCP server. Imports `mcp`, so import it where it is used."""
