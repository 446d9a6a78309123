"""Agents: the authoring surface, and the bundled agents, one folder each."""

from trunkline.agents.authoring import FunctionAgent, agent

__all__ = ["FunctionAgent", "agent"]
