"""What plans the requests of a supervisor: a model, or the built-in rules."""

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.agents.calls.outcome import Outcome
from trunkline.errors import TrunklineError
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import event_pb2

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

MAX_STEPS: Final = 16
"""The number of steps that a plan may have."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The result of planning: steps, a question to the user, or the error of the turn."""

    steps: tuple[Step, ...] = ()
    question: str = ""
    """The question for the user, instead of steps."""
    route: event_pb2.RouteDecided = field(default_factory=event_pb2.RouteDecided)
    """The agents that were considered for the question, and why none was chosen."""
    failure: TrunklineError | None = None
    """The reason why there are neither steps nor a question."""
    written_text: str = ""
    """The part of the plan's text that has been written."""


class Planner(Protocol):
    """Plans requests and merges answers. It has no state between turns."""

    @property
    def name(self) -> str:
        """The name of the model, or of the rules."""
        ...

    @property
    def is_model(self) -> bool:
        """True if it reads the conversation, and may write the answer anew."""
        ...

    async def load(self) -> None:
        """Load what the first plan needs, so that it does not wait."""
        ...

    def predict(self, request: str, roster: Roster) -> Set[str]:
        """Return the agents that the plan will have, as far as that is known without a call."""
        ...

    async def plan(
        self,
        request: str,
        roster: Roster,
        writer: PlanWriter,
        *,
        last_agent: str = "",
        earlier_messages: "Sequence[BaseMessage]" = (),
        meter: UsageMeter | None = None,
    ) -> PlanResult:
        """Return the plan for a request.

        `writer` takes the plan's text while it is made. `last_agent` is the agent that was asked
        last in the conversation, whose messages are `earlier_messages`. `meter` limits the tokens.

        Raises:
            LimitExceededError: a budget is used up.
        """
        ...

    async def write_answer(
        self,
        request: str,
        results: Sequence[tuple[Step, Outcome]],
        on_text: Callable[[str], Awaitable[None]],
        on_discard: Callable[[], Awaitable[None]],
        *,
        meter: UsageMeter | None = None,
    ) -> str:
        """Merge several answers into one, and stream it. Returns "" to leave them as they are."""
        ...
