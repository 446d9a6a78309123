"""The calls of a task to other agents and to tools: their answers, and text that is streamed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel

from trunkline.core.json_values import value_json
from trunkline.core.task_states import TaskOutcome, TaskState
from trunkline.errors import AgentCallError, UnsupportedOperationError
from trunkline.tasks.content import Content
from trunkline.tasks.messages import MeshMessage, OutgoingMessage
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2

ResultT = TypeVar("ResultT", bound=BaseModel)
# The pieces of text that the reader of a stream has not taken yet.
_MAX_PIECES: Final = 64


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
    """`complete`, `partial` if a part of the answer is missing, or `failed`. A question has no
    outcome."""

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
    """The structured result, or the JSON object that is the only content, if there is one."""
    is_error: bool = False
    """True if the tool failed, or if a person rejected the call."""


@dataclass(slots=True)
class _GivenArtifact:
    chars: int = 0
    """The length of its text, with the text of earlier turns."""
    given: list[str] = field(default_factory=list)
    """The text of this turn that the reader has."""
    repeated: str = ""
    """The text that the reader has, and that the agent is expected to write again."""


class GivenText:
    """The text that a reader has got, and what it gets of the text that follows.

    An agent that runs again, because its host died for example, cuts its artifacts and writes them
    anew. What it repeats is not given twice. If it writes something else, the reader gets no more.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, _GivenArtifact] = {}
        self._differs = False

    @property
    def is_stale(self) -> bool:
        """True if the reader has text that the agent took back and has not written again."""
        return self._differs or any(each.repeated for each in self._artifacts.values())

    def skip(self, artifact_id: str, texts: Sequence[str]) -> None:
        """Note text of an earlier turn, which the reader does not get."""
        self._artifacts.setdefault(artifact_id, _GivenArtifact()).chars += sum(map(len, texts))

    def add(self, artifact_id: str, texts: Sequence[str]) -> str:
        """Return what the reader gets of new text."""
        artifact = self._artifacts.get(artifact_id)
        if artifact is None:
            artifact = self._artifacts[artifact_id] = _GivenArtifact()
        text = "".join(texts)
        artifact.chars += len(text)
        if artifact.repeated:
            known, text = text[: len(artifact.repeated)], text[len(artifact.repeated) :]
            self._differs = self._differs or not artifact.repeated.startswith(known)
            artifact.repeated = artifact.repeated[len(known) :]
            artifact.given.append(known)
        if self._differs:
            return ""
        artifact.given.append(text)
        return text

    def cut(self, artifact_id: str, remaining: str) -> None:
        """Note that the agent cut an artifact back to `remaining`."""
        artifact = self._artifacts.setdefault(artifact_id, _GivenArtifact())
        given = "".join(artifact.given)
        kept = max(0, len(given) - (artifact.chars - len(remaining)))
        # A second cut may come before all is repeated.
        artifact.repeated = given[kept:] + artifact.repeated
        artifact.given = [given[:kept]]
        artifact.chars = len(remaining)


class Pieces(asyncio.Queue[str | None]):
    """The text of an agent while it is written, for one reader; None after the last piece."""

    def __init__(self, max_pieces: int) -> None:
        super().__init__(max_pieces)
        self.given: GivenText = GivenText()


class AgentStream:
    """The text of an agent while it is written. Can be iterated once."""

    def __init__(self, ask: Callable[[Pieces], Coroutine[Any, Any, AgentAnswer]]) -> None:
        """`ask` makes the call, and puts the text into a queue."""
        self._ask = ask
        self._pieces = Pieces(_MAX_PIECES)
        self._call: asyncio.Task[None] | None = None
        self._answer: AgentAnswer | None = None
        self._failure: BaseException | None = None

    @property
    def answer(self) -> AgentAnswer:
        """The answer, as `TaskContext.ask` returns it, once the iteration has ended.

        Raises:
            UnsupportedOperationError: the iteration has not ended.
        """
        if self._answer is None:
            problem = "the agent is still writing; iterate over the stream to its end"
            raise UnsupportedOperationError("the answer of a stream", problem)
        return self._answer

    async def __aiter__(self) -> AsyncIterator[str]:
        """Make the call, and yield the text in pieces. At the end raise what `ask` raises.

        Text that the agent writes again, because its host died, is not yielded again. If it writes
        something else then, nothing more is yielded, and AgentCallError is raised at the end;
        `answer` has the whole text.
        """
        # Not in a task group, which can't be left by a reader that stops early. `close` cancels it.
        self._call = asyncio.create_task(self._run())  # noqa: TID251
        is_empty = True
        while (piece := await self._pieces.get()) is not None:
            is_empty = False
            yield piece
        if self._failure is not None:
            raise self._failure
        self._check_given()
        # The text of a direct reply or of a status, or a text that another agent wrote.
        if is_empty and self._answer is not None and self._answer.state is TaskState.COMPLETED:
            yield self._answer.text

    async def close(self) -> None:
        """Cancel the call unless it has ended. The end of the turn does this."""
        if self._call is not None:
            self._call.cancel()
            await asyncio.wait([self._call])

    def _check_given(self) -> None:
        """Raise an error if the answer does not begin with the text that was yielded."""
        answer = self._answer
        if (
            answer is None
            or answer.state is not TaskState.COMPLETED
            or not self._pieces.given.is_stale
        ):
            return
        text = (
            f"agent {answer.agent!r} ran again and wrote something else than it had streamed; "
            "the answer of the stream has all of it"
        )
        raise AgentCallError(answer.agent, answer.state, text, answer.task_id)

    async def _run(self) -> None:
        try:
            self._answer = await self._ask(self._pieces)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  raised to the reader
            self._failure = error
        await self._pieces.put(None)


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of the turn that a function runs for.

    It is the input of an earlier turn if the latest turn answers approvals of an interrupted call.
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
    """Makes the calls of a `TaskContext`, which documents them. `agents.calls` implements it."""

    @property
    def questions(self) -> Sequence[AgentAnswer]:
        """See `TaskContext.questions`."""

    def ask(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> Coroutine[Any, Any, AgentAnswer]:
        """See `TaskContext.ask`."""

    def stream(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> AgentStream:
        """See `TaskContext.stream`."""

    def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None, *, key: str
    ) -> Coroutine[Any, Any, ToolResult]:
        """See `TaskContext.call_tool`."""

    def send(self, message: OutgoingMessage) -> Coroutine[Any, Any, MeshMessage]:
        """See `TaskContext.send`."""

    def request(
        self, message: OutgoingMessage, *, timeout_s: float
    ) -> Coroutine[Any, Any, MeshMessage]:
        """See `TaskContext.request`."""

    def ask_model(
        self, prompt: str, result: type[ResultT], *, instructions: str, purpose: str
    ) -> Coroutine[Any, Any, ResultT | None]:
        """See `TaskContext.ask_model`."""
