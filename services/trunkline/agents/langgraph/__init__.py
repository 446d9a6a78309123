"""LangGraph graphs as agents. Imports LangGraph: only whoever has a graph comes here."""

from trunkline.agents.langgraph.agent import from_langgraph

__all__ = ["from_langgraph"]
