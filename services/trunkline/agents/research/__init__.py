"""The research agent: answers with sources, from documents, the web and arXiv."""

from trunkline.agents.research.agent import agent

__all__ = ["agent"]
