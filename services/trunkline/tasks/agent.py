"""An agent as the host that runs it sees it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from trunkline.core.settings import Settings
from trunkline.core.small_files import SmallFiles
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, message_pb2, task_pb2

Lifespan: TypeAlias = Callable[
    [Settings, SmallFiles, Callable[[], None]], AbstractAsyncContextManager[None]
]
"""Opened while an agent is served. It gets the settings and the small files of the mesh, and a
function that reports a changed card; the agent joins the mesh at the first call of this function.
"""


class Agent:
    """The base of agents: a card, declarations to the host, and the code of a turn.

    An agent declares what differs from the values here.
    """

    card: agent_card_pb2.AgentCard
    """The card, without interfaces and capabilities. Its name identifies the agent."""
    card_pending: bool = False
    """True while the card waits for the first list of the tools that its skills are made of."""
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = ()
    """The skills that the card shows only to authenticated callers."""
    direct_replies: bool = False
    """The agent may reply with a message in place of a task, before it emits events."""
    repeatable: bool = False
    """The host may rewind a turn to its start and run it again after the failure of a host."""
    resumable: bool = False
    """`run` may be called again after the failure of a host, and rewinds the turn itself."""
    timeout_s: float | None = None
    """The longest life of a task in seconds, if it is limited. An earlier deadline of the caller
    holds."""
    routable: bool = True
    """A supervisor may choose the agent."""
    concurrency: int | None = None
    """The number of turns that may run at once, if it is limited."""
    is_pausable: bool = False
    """Its tasks may be paused: it waits for `TurnRuntime.pause` before each of its steps."""
    has_conversations: bool = False
    """Its turns of one conversation run one after another; see `TurnRuntime.take_ticket`."""
    is_workflow: bool = False
    """It runs a workflow, and the spans of its turns say so."""
    kind: str = ""
    """Its kind in the registry, such as `supervisor`, `workflow`, `remote` or `participant`."""
    lifespan: Lifespan | None = None
    """Opened while the agent is served."""

    @property
    def message_types(self) -> Sequence[str]:
        """The types of messages between agents that it handles, each `TYPE` or `TYPE@VERSION`."""
        return ()

    @property
    def breaker_state(self) -> str:
        """The state of its circuit breaker, `closed`, `open` or `half-open`, or "" without it."""
        return ""

    async def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return the longest life of the task that a message begins, if it is limited."""
        return self.timeout_s

    async def run(self, turn: TurnRuntime) -> None:
        """Run one turn. A return without its end completes the task; an exception fails it."""
        raise NotImplementedError

    async def cancel_waiting(self, turn: TurnRuntime) -> None:
        """End what a waiting task left elsewhere, because the task is canceled. It has seconds."""


def may_have_started(agent: Agent | None, state: task_pb2.TaskState.ValueType) -> bool:
    """Return True if the agent's code has to be treated as started.

    A submitted task of an agent with a concurrency limit counts as waiting, although its code may
    have started without writing anything. Without a limit no task waits, so it counts as started.
    """
    return state != State.TASK_STATE_SUBMITTED or agent is None or agent.concurrency is None


def may_run_again(agent: Agent | None, state: task_pb2.TaskState.ValueType) -> bool:
    """Return True if the next host of a task's journal may run its turn again, not fail it."""
    if agent is None:
        return False
    return agent.resumable or agent.repeatable or not may_have_started(agent, state)
