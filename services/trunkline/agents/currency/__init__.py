"""The currency agent: conversions at the reference rates of the European Central Bank."""

from trunkline.agents.currency.agent import agent

__all__ = ["agent"]
