"""Reasoning agents: a model in a loop with tools. LangGraph is loaded by the first turn."""

from trunkline.agents.reasoning.agent import ReasoningAgent, prewarm
from trunkline.agents.reasoning.models import Model, ModelChoice, open_model

__all__ = [
    "Model",
    "ModelChoice",
    "ReasoningAgent",
    "open_model",
    "prewarm",
]
