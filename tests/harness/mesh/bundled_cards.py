"""The cards of the agents that ship, without anything that could answer."""

from typing import TYPE_CHECKING, cast

from trunkline.v1 import agent_card_pb2
from trunkline_agents.argocd.agent import agent as argocd
from trunkline_agents.currency.agent import agent as currency
from trunkline_agents.echo.agent import echo
from trunkline_agents.math.agent import agent as math
from trunkline_agents.research.agent import agent as research

if TYPE_CHECKING:
    from trunkline.reasoning import ToolSource


def shipped_cards() -> list[agent_card_pb2.AgentCard]:
    """Return what the mesh routes by when all of them are on it."""
    without_tools = cast("ToolSource", None)
    made = (make(without_tools) for make in (math, currency, research, argocd))
    return [echo.card, *(agent.card for agent in made)]
