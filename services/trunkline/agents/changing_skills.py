"""Skills of an agent that come and go with the data of the mesh."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from trunkline.agents.authoring import Lifespan
from trunkline.core.settings import Settings
from trunkline.mesh.client import run_in_background
from trunkline.v1 import agent_card_pb2

_POLL_S: Final = 2.0


def follow_skills(
    card: agent_card_pb2.AgentCard,
    list_more_skills: Callable[[Settings], Sequence[agent_card_pb2.AgentSkill]],
) -> Lifespan:
    """Return a lifespan in which the card has its skills and, after them, those of the function.

    The function is called every two seconds. The card is registered again when its skills change.
    """
    skills = list(card.skills)

    @asynccontextmanager
    async def lifespan(settings: Settings, on_change: Callable[[], None]) -> AsyncIterator[None]:
        def update() -> None:
            wanted = [*skills, *list_more_skills(settings)]
            if list(card.skills) != wanted:
                del card.skills[:]
                card.skills.extend(wanted)
                on_change()

        async def poll() -> None:
            while True:
                await asyncio.sleep(_POLL_S)
                update()

        update()
        # The agent joins the mesh at the first call.
        on_change()
        async with run_in_background(poll()):
            yield

    return lifespan
