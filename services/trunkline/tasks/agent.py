"""The protocol that the host expects of every kind of agent."""

from collections.abc import Sequence
from typing import Protocol

from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2


class Agent(Protocol):
    """Something with a card that runs turns."""

    @property
    def card(self) -> agent_card_pb2.AgentCard:
        """The card, without interfaces and capabilities; its name names the agent."""

    @property
    def extended_skills(self) -> Sequence[agent_card_pb2.AgentSkill]:
        """The skills that the card shows only to authenticated callers."""

    @property
    def direct_replies(self) -> bool:
        """May answer with a message before it emits anything; then there is no task."""

    @property
    def repeatable(self) -> bool:
        """A turn may run again from its start after its host died: what it wrote is rewound."""

    @property
    def resumable(self) -> bool:
        """After the death of its host, a turn resumes: `run` is called again and rewinds."""

    @property
    def timeout_s(self) -> float | None:
        """Longest life of a task whose caller set no earlier deadline; None: no limit."""

    @property
    def routable(self) -> bool:
        """A supervisor may choose it."""

    @property
    def concurrency(self) -> int | None:
        """The number of turns that run at once; None: no limit."""

    async def run(self, turn: TurnRuntime) -> None:
        """Run one turn. Returning without an end completes the task; raising fails it."""
