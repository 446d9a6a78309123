"""The cards of the agents that ship, without anything that could answer."""

from typing import TYPE_CHECKING, cast

from trunkline.agents.argocd import agent as argocd
from trunkline.agents.currency import agent as currency
from trunkline.agents.echo import echo
from trunkline.agents.math import agent as math
from trunkline.agents.research import agent as research
from trunkline.v1 import agent_card_pb2

if TYPE_CHECKING:
    from trunkline.reasoning import ToolSource


def shipped_cards() -> list[agent_card_pb2.AgentCard]:
    """Return what the mesh routes by when all of them are on it."""
    without_tools = cast("ToolSource", None)
    made = (make(without_tools) for make in (math, currency, research, argocd))
    return [echo.card, *(agent.card for agent in made)]
