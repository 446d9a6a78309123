"""The Argo CD agent."""

from trunkline.agents.argocd.agent import agent

__all__ = ["agent"]
