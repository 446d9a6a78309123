"""Agents that reason: a model in a loop with tools. LangGraph is loaded by the first turn."""

from trunkline.reasoning.agent import ReasoningAgent, prewarm
from trunkline.reasoning.models import Model, ModelChoice, open_model
from trunkline.reasoning.tools.source import AllowedTools, Listing, MeshTools, ToolSource

__all__ = [
    "AllowedTools",
    "Listing",
    "MeshTools",
    "Model",
    "ModelChoice",
    "ReasoningAgent",
    "ToolSource",
    "open_model",
    "prewarm",
]
