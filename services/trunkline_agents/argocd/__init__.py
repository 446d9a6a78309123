"""Argo CD: reads the applications of an Argo CD server, and syncs them with approval.

The MCP server is our own, not `mcp-argocd` from PyPI. That one has 37 tools, but they answer in
JSON for a model to read, declare no questions that they answer, and need a second MCP framework
(fastmcp). Our seven tools answer in text that stands alone, so that the built-in model serves
"show argocd version" offline, and their errors say whether the user can correct the question. An
operator who prefers the other one puts it into `mcpServers` under the name `argocd`, where it
replaces this one.
"""
