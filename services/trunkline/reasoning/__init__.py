"""Reasoning agents: a model in a loop with tools. LangGraph is loaded by the first turn."""

from trunkline.reasoning.agent import ReasoningAgent, prewarm
from trunkline.reasoning.models import Model, ModelChoice, open_model

__all__ = [
    "Model",
    "ModelChoice",
    "ReasoningAgent",
    "open_model",
    "prewarm",
]
