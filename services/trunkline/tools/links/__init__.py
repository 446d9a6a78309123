"""The ways to MCP servers: processes of ours behind pipes, and addresses elsewhere behind HTTP."""
