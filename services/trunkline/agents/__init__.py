"""Agents: how authors write them, how packages bring them, and how a process serves them."""

from trunkline.agents.authoring import FunctionAgent, agent

__all__ = ["FunctionAgent", "agent"]
