"""Reasoning agents: a model in a loop with tools. LangGraph is loaded by the first turn."""

from trunkline.reasoning.agent import ReasoningAgent, prewarm
from trunkline.reasoning.models import Model, ModelChoice, open_model
from trunkline.reasoning.tool_source import AllowedTools, MeshTools, ToolListing, ToolSource

__all__ = [
    "AllowedTools",
    "MeshTools",
    "Model",
    "ModelChoice",
    "ReasoningAgent",
    "ToolListing",
    "ToolSource",
    "open_model",
    "prewarm",
]
