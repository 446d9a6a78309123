"""Argo CD over MCP, from its published REST API: seven tools, of which one changes something.

Ours, not `mcp-argocd` from PyPI: that one is good, but its 37 tools answer in JSON for a model to
read, name no questions that they answer, and bring a second MCP framework (fastmcp) along. Here the
answers stand on their own, so that the built-in model serves "show argocd version" offline, errors
say whether the asker can mend them, and nothing is installed. Who wants the other one puts it into
`mcpServers`; an entry named `argocd` takes the place of this.
"""
