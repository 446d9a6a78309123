"""LangGraph graphs as agents. Importing this package loads LangGraph."""

from trunkline.agents.langgraph.agent import from_langgraph

__all__ = ["from_langgraph"]
