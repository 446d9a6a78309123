"""A router over the cards of the bundled agents."""

from typing import TYPE_CHECKING, cast

import pytest

from trunkline.agents.currency.agent import agent as currency
from trunkline.agents.echo import echo
from trunkline.agents.math.agent import agent as math
from trunkline.supervisor.routing import COMMAND_TAG, Router
from trunkline.v1 import agent_card_pb2

if TYPE_CHECKING:
    from trunkline.reasoning import ToolSource


@pytest.fixture
def router() -> Router:
    without_tools = cast("ToolSource", None)
    echo_card = agent_card_pb2.AgentCard()
    echo_card.CopyFrom(echo.card)
    if COMMAND_TAG not in echo_card.skills[0].tags:
        echo_card.skills[0].tags.append(COMMAND_TAG)
    return Router([math(without_tools).card, currency(without_tools).card, echo_card])
