"""The interface of calls to other agents and to tools, and the types of their answers."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from trunkline.json_values import value_json
from trunkline.task_states import TaskOutcome, TaskState
from trunkline.tasks.content import Content
from trunkline.tasks.messages import MeshMessage, OutgoingMessage
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2

ResultT = TypeVar("ResultT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The end of one turn of an agent that was asked."""

    agent: str
    """The name of the agent."""
    task_id: str
    """The id of its task, to continue a task that asks something."""
    state: TaskState
    """`completed`; `input-required` or `auth-required` if it asks something; else a failure."""
    text: str
    """The answer, the question, or the reason of a failure."""
    parts: Sequence[part_pb2.Part] = ()
    """The parts of its artifacts or of its direct reply, in order."""
    artifacts: Sequence[artifact_pb2.Artifact] = ()
    """The artifacts of the turn, in order; empty for a direct reply."""
    outcome: TaskOutcome | None = None
    """`complete`, or `partial` if a part of the answer is missing; `failed`; None: a question."""

    @property
    def data(self) -> list[Any]:
        """The data parts among `parts`, as JSON values."""
        return [value_json(part.data) for part in self.parts if part.HasField("data")]

    @property
    def is_question(self) -> bool:
        """True if the agent waits for input."""
        return self.state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    text: str
    """The text parts of the result, joined by newlines, or the reason of a failure."""
    parts: Sequence[part_pb2.Part] = ()
    """The parts of the result, in order."""
    data: Mapping[str, Any] | None = None
    """The structured result, or the JSON object that is the only content; None without one."""
    is_error: bool = False
    """True if the tool failed, or if a person rejected the call."""


class AgentStream(Protocol):
    """The text of an agent while it is written. Can be iterated once."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Yield the text in pieces. At the end raises what `TaskContext.ask` raises.

        Text that the agent writes again, because its host died, is not yielded again. If it writes
        something else then, nothing more is yielded, and AgentCallError is raised at the end;
        `answer` has the whole text.
        """

    @property
    def answer(self) -> AgentAnswer:
        """The answer, as `TaskContext.ask` returns it, once the iteration has ended.

        Raises:
            UnsupportedOperationError: the iteration has not ended.
        """


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of the turn that a function runs for.

    Differs from the task's latest turn if that one answers approvals of an interrupted call.
    """

    turn: int
    message: message_pb2.Message
    history: Sequence[message_pb2.Message]
    artifact_id: str = ""
    """The artifact that an interrupted generator has begun, to write it anew."""


class TurnPaused(BaseException):
    """Ends the code of a turn because a call waits for a person. Let it propagate.

    Not an Exception, so that code that handles errors does not catch it.
    """


class TaskCalls(Protocol):
    """The calls of one turn. `TaskContext` documents them."""

    @property
    def input(self) -> TurnInput:
        """The input of the turn that the code runs for."""

    @property
    def is_pausing(self) -> bool:
        """True once the code stops because a call waits for a person."""

    def save_input(self) -> None:
        """Add the turn's input to its continuation, for the turn that continues it.

        The continuation is a JSON object.
        """

    def keep_artifact(self, artifact_id: str) -> None:
        """Have the turn that continues this one write the artifact anew."""

    def set_site(self, scope: Callable[[], str], pause: Callable[[], BaseException]) -> None:
        """Number the calls within the result of `scope`, and raise that of `pause` to stop."""

    @property
    def questions(self) -> Sequence[AgentAnswer]:
        """The questions of called agents that wait for an answer, oldest first."""

    def ask(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> Coroutine[Any, Any, AgentAnswer]:
        """Ask an agent; see `TaskContext.ask`."""

    def stream(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> AgentStream:
        """Ask an agent and stream its answer; see `TaskContext.stream`."""

    def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None, *, key: str
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool; see `TaskContext.call_tool`."""

    def send(self, messages: Sequence[OutgoingMessage]) -> Coroutine[Any, Any, list[MeshMessage]]:
        """Send messages to agents; see `TaskContext.send`."""

    def request(
        self, message: OutgoingMessage, *, timeout_s: float
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message and wait for its reply; see `TaskContext.request`."""

    def ask_model(
        self, prompt: str, result: type[ResultT], *, instructions: str, purpose: str
    ) -> Coroutine[Any, Any, ResultT | None]:
        """Ask the agent's model; see `TaskContext.ask_model`."""

    def watch_messages(self, message_type: str) -> AsyncGenerator[MeshMessage, None]:
        """Yield the messages of a type in the task's conversation, from the task's start on.

        Close the iterator to end the watch.

        Raises:
            PeerError: the messaging service is away.
        """
