"""LangGraph graphs as agents. Importing this package loads LangGraph."""

from trunkline.agents.langgraph.agent import from_langgraph, get_task

__all__ = ["from_langgraph", "get_task"]
