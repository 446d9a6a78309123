"""The math agent: arithmetic, equations and calculus, exactly."""

from trunkline.agents.math.agent import agent

__all__ = ["agent"]
