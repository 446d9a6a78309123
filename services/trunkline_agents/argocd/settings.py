"""What the server is started by, and the variable that holds its token."""

COMMAND = "trunkline-mcp-argocd"
TOKEN_KEY = "ARGOCD_AUTH_TOKEN"  # noqa: S105 the name of a variable
"""As Argo CD's own command line names it."""
