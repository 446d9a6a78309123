"""The interface of an agent to the host that runs it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, message_pb2, task_pb2


class Agent(Protocol):
    """An agent: its card, its declarations to the host, and the code of a turn."""

    @property
    def card(self) -> agent_card_pb2.AgentCard:
        """The agent card, without interfaces and capabilities; its name identifies the agent."""

    @property
    def extended_skills(self) -> Sequence[agent_card_pb2.AgentSkill]:
        """The skills that the card shows only to authenticated callers."""

    @property
    def direct_replies(self) -> bool:
        """True if the agent may reply with a message instead of a task, before it emits events."""

    @property
    def repeatable(self) -> bool:
        """True if the host may rewind a turn to its start and run it again after a host failure."""

    @property
    def resumable(self) -> bool:
        """True if `run` may be called again after a host failure, and rewinds the turn itself."""

    @property
    def timeout_s(self) -> float | None:
        """The longest lifetime of a task in seconds, unless its caller sets an earlier deadline.

        None: no limit.
        """

    @property
    def routable(self) -> bool:
        """True if a supervisor may choose the agent."""

    @property
    def concurrency(self) -> int | None:
        """The number of turns that may run at once, if it is limited."""

    async def run(self, turn: TurnRuntime) -> None:
        """Run one turn. A return without its end completes the task; an exception fails it."""


@runtime_checkable
class CancelableAgent(Protocol):
    """An agent whose tasks leave work elsewhere while they wait for input."""

    async def cancel_waiting(self, turn: TurnRuntime) -> None:
        """End what a waiting task left elsewhere, because the task is canceled. It has seconds."""


@runtime_checkable
class TimedAgent(Protocol):
    """An agent whose tasks have time limits that depend on what they are to do."""

    def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return the longest lifetime of the task that a message begins, if it is limited."""


@runtime_checkable
class PausableAgent(Protocol):
    """An agent whose tasks may be paused: it waits for `TurnRuntime.pause`."""

    @property
    def is_pausable(self) -> bool:
        """True if it waits before each of its steps while its task is paused."""


@runtime_checkable
class WorkflowAgent(Protocol):
    """An agent that may run a workflow, which the spans of its turns then say."""

    @property
    def is_workflow(self) -> bool:
        """True if it runs a workflow."""


@runtime_checkable
class MessageHandlingAgent(Protocol):
    """An agent that may have handlers of messages between agents."""

    @property
    def message_types(self) -> Sequence[str]:
        """The types that it handles, each `TYPE` or `TYPE@VERSION`."""


@runtime_checkable
class OutsideAgent(Protocol):
    """An agent that works outside the mesh, behind a circuit breaker."""

    @property
    def breaker_state(self) -> str:
        """The state of the circuit breaker: `closed`, `open` or `half-open`."""


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
