"""The argocd package."""
