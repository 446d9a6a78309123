"""The calls of one turn to other agents and to tools: `TaskContext.ask`, `stream`, `call_tool`.

Each call has a step id that is the same when the turn runs again. The journal has the step id of
each child, so a repeated call follows the child that was started before. A call that waits for an
approval, or for an answer to a tool, stops the code. The turn of the answer runs the code from its
start with the same input, and its calls return what they returned before.
"""

import asyncio
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from trunkline.agents.calls.agent_call import AgentCall, AgentCalls, ChildLimits
from trunkline.agents.calls.child_readers import AnswerReader
from trunkline.agents.calls.outcome import clip
from trunkline.agents.calls.tool_call import cancel_asking_tasks
from trunkline.agents.calls.tool_questions import PendingQuestion, build_question_message
from trunkline.agents.calls.tool_source import ToolSource
from trunkline.agents.calls.turn_tools import TurnTools
from trunkline.core.task_states import TaskState
from trunkline.errors import (
    AgentCallError,
    AgentNotFoundError,
    InvalidArgumentError,
    PeerError,
    RequestError,
)
from trunkline.mesh.client import Directory
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope, read_message
from trunkline.messages.store import EnvelopeFilter
from trunkline.tasks.calls import (
    AgentAnswer,
    AgentStream,
    Pieces,
    ResultT,
    ToolResult,
    TurnInput,
    TurnPaused,
)
from trunkline.tasks.content import (
    CONTENT_TYPES,
    PIECE_TYPES,
    Content,
    describe_type,
    message_text,
    to_part,
)
from trunkline.tasks.context import TaskContext, get_task_calls
from trunkline.tasks.delivered_messages import find_delivered
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.messages import MeshMessage, OutgoingMessage
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import envelope_pb2, message_pb2, snapshot_pb2

if TYPE_CHECKING:
    from trunkline.agents.reasoning.model_results import ModelResults

_CONTINUATION_KEY: Final = "calls"


@dataclass(frozen=True, slots=True)
class MeshCallees:
    """The agents, tools and models of a mesh, for the calls of one agent."""

    directory: Directory
    tools: ToolSource
    limits: ChildLimits
    model: "ModelResults"
    """The model of the agent."""

    @asynccontextmanager
    async def open(self, turn: TurnRuntime) -> AsyncIterator["TurnCalls"]:
        """Open the calls of a turn.

        If a call waits for an approval or for an answer to a tool, the block ends with the turn's
        question, and the next turn continues there.
        """
        calls = TurnCalls(turn, self)
        is_stopping = False
        try:
            yield calls
        except asyncio.CancelledError:
            # A host that stops leaves the turn to the next host.
            is_stopping = not turn.is_over
            raise
        except BaseException:
            # Several calls may have been in a task group, which wraps the exception.
            if not calls.is_pausing:
                raise
            calls.save_input()
        finally:
            await calls.close(is_continued=is_stopping or calls.is_pausing)
        if calls.is_pausing:
            await calls.ask_caller()

    async def cancel_waiting(self, turn: TurnRuntime) -> None:
        """Cancel the tasks of MCP servers that wait for an answer of a task that is canceled."""
        await cancel_asking_tasks(turn, self.tools, _load_questions(turn).values())


@dataclass(frozen=True, slots=True)
class _NumberedCall:
    """A call of an agent that has its step and is not made yet."""

    agent: str
    step_id: str
    message: message_pb2.Message
    check: bool


class TurnCalls:
    """The calls that the code of one turn makes by its `TaskContext`."""

    def __init__(self, turn: TurnRuntime, callees: MeshCallees) -> None:
        self._turn = turn
        self._directory = callees.directory
        self._patience_s = callees.limits.patience_s
        self._model = callees.model
        self._agents = AgentCalls(
            turn,
            callees.directory,
            callees.limits,
            is_detached=lambda: self.is_pausing or turn.pause.is_leaving,
        )
        self._tools = TurnTools(turn, callees.tools, _load_questions(turn))
        self.input = _load_input(turn)
        self.is_pausing = False
        self._artifact_id = self.input.artifact_id
        self._scope: Callable[[], str] = lambda: f"turn-{self.input.turn}"
        self._build_pause: Callable[[], BaseException] = TurnPaused
        self._counts: Counter[str] = Counter()
        self._streams: list[AgentStream] = []
        # Calls that have no share of the limits per request yet.
        self._unstarted: set[str] = set()
        # The number of calls that are being made and do not wait for a person.
        self._active = 0
        self._inactive = asyncio.Event()

    def keep_artifact(self, artifact_id: str) -> None:
        """Have the turn that continues this turn write the artifact anew."""
        self._artifact_id = artifact_id

    def set_site(self, scope: Callable[[], str], pause: Callable[[], BaseException]) -> None:
        """Number the calls within the result of `scope`; the error of `pause` stops the code."""
        self._scope, self._build_pause = scope, pause

    @property
    def questions(self) -> Sequence[AgentAnswer]:
        """The questions of called agents that wait for an answer, oldest first."""
        return [
            AgentAnswer(
                agent=child.started.agent,
                task_id=child.started.task_id,
                state=TaskState.from_proto(child.finished.state),
                text=child.finished.text,
            )
            for child in self._agents.children.values()
            if child.finished.state in INTERRUPTED and not self._needs_approval(child)
        ]

    def ask(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> Coroutine[Any, Any, AgentAnswer]:
        """Ask an agent. The call gets its number now, and is made when it is awaited."""
        return self._ask(self._build_call(agent, content, task_id, key, check=check))

    def stream(
        self, agent: str, content: Content, *, task_id: str, key: str, check: bool
    ) -> AgentStream:
        """Ask an agent and stream its answer. The call is made when the iteration begins."""
        call = self._build_call(agent, content, task_id, key, check=check)

        def open_pieces(pieces: Pieces) -> Coroutine[Any, Any, AgentAnswer]:
            return self._ask(call, pieces)

        stream = AgentStream(open_pieces)
        self._streams.append(stream)
        return stream

    def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None, *, key: str
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool. The call gets its number now, and is made when it is awaited."""
        if not isinstance(arguments, Mapping | NoneType):
            allowed = (Mapping, NoneType)
            raise InvalidArgumentError("arguments", f"is {describe_type(arguments, allowed)}")
        return self._call_tool(tool, arguments or {}, self._next_step(tool, key))

    async def ask_model(
        self, prompt: str, result: type[ResultT], *, instructions: str, purpose: str
    ) -> ResultT | None:
        """Ask the agent's model for an object of a pydantic model."""
        return await self._model.ask(
            self._turn, prompt, result, instructions=instructions, purpose=purpose
        )

    async def send(self, message: OutgoingMessage) -> MeshMessage:
        """Send a message; a turn that runs again sends it under the same id."""
        envelope = self._build_envelope(message)
        (stored,) = await self._messaging().send([envelope], cause=self._cause)
        return read_message(stored.envelope)

    async def request(self, message: OutgoingMessage, *, timeout_s: float) -> MeshMessage:
        """Send a message and return the first reply."""
        reply = await self._messaging().request(
            self._build_envelope(message), cause=self._cause, timeout_s=timeout_s
        )
        return read_message(reply)

    async def watch_messages(self, message_type: str) -> AsyncGenerator[MeshMessage, None]:
        """Yield the messages of a type in the task's conversation, from the task's start on.

        Close the iterator to end the watch.

        Raises:
            PeerError: the messaging service is away.
        """
        turn = self._turn
        query = EnvelopeFilter(correlation_id=turn.context_id, type=message_type)
        query.start_time.CopyFrom(turn.snapshot.create_time)
        async with aclosing(self._messaging().watch(query, after_position=0)) as updates:
            async for update in updates:
                for stored in update.envelopes:
                    yield read_message(stored.envelope)

    def _messaging(self) -> MessagingClient:
        turn = self._turn
        return MessagingClient(
            self._directory, account=turn.account, caller=turn.caller, agent=turn.agent
        )

    @property
    def _cause(self) -> envelope_pb2.Envelope | None:
        """The message between agents that the turn handles, unless it handles a request."""
        return find_delivered(self._turn.snapshot)

    def _build_envelope(self, message: OutgoingMessage) -> envelope_pb2.Envelope:
        # A turn that sends is in the journal first, so that it is known when it began.
        self._turn.create()
        step = self._next_step(f"send:{message.recipient}", message.key)
        # Derived, so that a turn that runs again sends nothing twice.
        digest = hashlib.sha256(f"{self._turn.id} {step}".encode()).digest()
        return build_envelope(
            message.payload,
            recipient=message.recipient,
            type=message.type,
            room=message.room,
            priority=message.priority,
            metadata=message.metadata,
            expires_in_s=message.expires_in_s,
            id=str(uuid.UUID(bytes=digest[:16], version=4)),
            correlation_id=self._turn.context_id,
        )

    def save_input(self) -> None:
        """Add the turn's input to its continuation, for the turn that continues it."""
        fields = {
            "turn": self.input.turn,
            "messages": len(self.input.history),
            "artifact": self._artifact_id,
            "questions": self._tools.questions.open,
        }
        pending_approvals = self._turn.pending_approvals
        continuation = json.loads(pending_approvals.continuation or b"{}")
        continuation[_CONTINUATION_KEY] = fields
        pending_approvals.continuation = json.dumps(continuation, ensure_ascii=False).encode()

    async def ask_caller(self) -> None:
        """End the turn with the first open question of a tool; without any, approvals end it."""
        questions = self._tools.questions.open.values()
        if questions and not self._turn.is_over:
            modes = self._turn.accepted_output_modes
            await self._turn.require_input(build_question_message(questions, modes))

    async def close(self, *, is_continued: bool) -> None:
        """Cancel streams that were left early, and server tasks unless the turn continues."""
        for stream in self._streams:
            await stream.close()
        if not is_continued:
            await self._tools.cancel_left_tasks()

    def _next_step(self, callee: str, key: str) -> str:
        scope = self._scope()
        if not key:
            name = f"{scope}/{callee}"
            self._counts[name] += 1
            key = f"{callee}-{self._counts[name]}"
        return f"{scope}/{key}"

    def _build_call(
        self, agent: str, content: Content, task_id: str, key: str, *, check: bool
    ) -> _NumberedCall:
        step_id = self._next_step(agent, key)
        message = message_pb2.Message()
        if isinstance(content, message_pb2.Message):
            message.parts.extend(content.parts)
            message.metadata.CopyFrom(content.metadata)
        elif isinstance(content, PIECE_TYPES):
            message.parts.append(to_part(content))
        else:
            raise InvalidArgumentError("content", f"is {describe_type(content, CONTENT_TYPES)}")
        message.role = message_pb2.ROLE_USER
        message.context_id = self._turn.context_id
        message.task_id = task_id
        self._unstarted.add(step_id)
        return _NumberedCall(agent, step_id, message, check)

    async def _ask(self, call: _NumberedCall, pieces: Pieces | None = None) -> AgentAnswer:
        with self._as_active():
            child, is_new = await self._open_child(call)
            if not self._needs_approval(child):
                answer = await self._follow(call, child, pieces, is_new=is_new)
        if self._needs_approval(child):
            await self._pause()
        if call.check and answer.state is not TaskState.COMPLETED:
            raise AgentCallError(answer.agent, answer.state, answer.text, answer.task_id)
        return answer

    async def _open_child(self, call: _NumberedCall) -> tuple[snapshot_pb2.ChildInfo, bool]:
        """Return the child of a call, and whether the message is new to it."""
        # One more share remains for calls that the code makes in the meantime.
        shares = len(self._unstarted | {call.step_id}) + 1
        self._unstarted.discard(call.step_id)
        if call.message.task_id:
            child = self._agents.children.get(call.message.task_id)
            if child is None or child.started.agent != call.agent:
                problem = f"is no task that agent {call.agent!r} was asked for here"
                raise InvalidArgumentError("task_id", f"{call.message.task_id} {problem}")
            return child, not self._is_repeated
        for child in self._agents.children.values():
            if child.started.step_id == call.step_id:
                if child.started.agent != call.agent:
                    problem = f"{call.step_id!r} was a call of agent {child.started.agent!r}"
                    raise InvalidArgumentError("key", f"{problem}; give each call its own key")
                return child, False
        await self._wait_for_agent(call.agent)
        try:
            child = await self._agents.start(call.agent, step_id=call.step_id, shares=shares)
        except AgentNotFoundError:
            names = ", ".join(self._directory.list_agents()) or "none"
            problem = f"{call.agent!r} is not on the mesh; there are: {names}"
            raise InvalidArgumentError("agent", problem) from None
        return child, True

    @property
    def _is_repeated(self) -> bool:
        """True if the code may have made the same calls before."""
        return self._turn.attempt > 1 or self.input.turn != self._turn.number

    async def _wait_for_agent(self, agent: str) -> None:
        """Wait until a mesh that is starting has the agent."""
        if self._turn.attempt > 1 or self._directory.revision == 0:
            with suppress(PeerError):
                await self._directory.wait_until(
                    lambda mesh: agent in mesh.list_agents(), timeout_s=self._patience_s
                )

    async def _follow(
        self,
        call: _NumberedCall,
        child: snapshot_pb2.ChildInfo,
        pieces: Pieces | None,
        *,
        is_new: bool,
    ) -> AgentAnswer:
        """Send the call's message to the child unless it has arrived, and follow its turn."""
        child_id = child.started.task_id
        message = self._build_message(call, child_id)
        reader = AnswerReader(child_id, message.message_id, pieces, self._as_inactive)
        wanted = AgentCall(
            call.agent,
            child_id,
            message,
            shown_text=clip(message_text(message)),
            is_repeated=not is_new,
        )
        if child.finished.state not in TERMINAL:
            outcome = await self._agents.make(wanted, reader)
        elif is_new:
            problem = f"task {child_id} is {state_name(child.finished.state)} already"
            raise InvalidArgumentError("task_id", problem)
        else:
            outcome = await self._agents.read_again(wanted, reader)
        if isinstance(outcome.error, RequestError):
            raise outcome.error
        return reader.build_answer(outcome)

    def _build_message(self, call: _NumberedCall, child_id: str) -> message_pb2.Message:
        """Return the message that opens the child's turn: the call's, or answers to approvals."""
        turn = self._turn
        answers = [
            approval.answered
            for approval in turn.pending_approvals.all
            if approval.requested.child_task_id == child_id
            and approval.HasField("answered")
            and approval.answered.turn <= turn.number
        ]
        if not answers:
            call.message.message_id = f"{child_id}-{call.step_id}"
            return call.message
        latest = max(answer.turn for answer in answers)
        answers = [answer for answer in answers if answer.turn == latest]
        return self._agents.build_answer(child_id, answers, turn=latest)

    def _needs_approval(self, child: snapshot_pb2.ChildInfo) -> bool:
        """Return whether a child waits for approvals that this turn has no answer to."""
        return child.finished.state in INTERRUPTED and any(
            approval.requested.child_task_id == child.started.task_id
            and not (approval.HasField("answered") and approval.answered.turn <= self._turn.number)
            for approval in self._turn.pending_approvals.all
        )

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any], step_id: str) -> ToolResult:
        with self._as_active():
            answer = await self._tools.call(tool, arguments, step_id)
        return answer if answer is not None else await self._pause()

    async def _pause(self) -> NoReturn:
        """Stop the code until an approval or a question of a tool is answered.

        Other calls end first, because they may need answers, too: one question asks for all.
        """
        while self._active:
            self._inactive.clear()
            await self._inactive.wait()
            await asyncio.sleep(0)
        self.is_pausing = True
        raise self._build_pause()

    @contextmanager
    def _as_active(self, change: int = 1) -> Iterator[None]:
        self._active += change
        try:
            yield
        finally:
            self._active -= change
            if not self._active:
                self._inactive.set()

    def _as_inactive(self) -> AbstractContextManager[None]:
        """Enter while a call waits for its reader, which may be paused."""
        return self._as_active(-1)


def _load_continuation(turn: TurnRuntime) -> Mapping[str, Any]:
    """Return what the turn before saved, if its code was stopped and this turn continues it."""
    saved = turn.snapshot.continuation
    if saved:
        # Agents of frameworks have continuations of other forms.
        with suppress(ValueError, KeyError, TypeError):
            fields = json.loads(saved)[_CONTINUATION_KEY]
            return fields if isinstance(fields, dict) else {}
    return {}


def _load_questions(turn: TurnRuntime) -> Mapping[str, PendingQuestion]:
    """Return the questions of tools that ended the turn before, by the steps of their calls."""
    questions: Mapping[str, PendingQuestion] = _load_continuation(turn).get("questions", {})
    return questions


def _load_input(turn: TurnRuntime) -> TurnInput:
    """Return the input of a turn, or of the earlier turn whose code the turn continues."""
    fields = _load_continuation(turn)
    if not fields:
        return TurnInput(turn.number, turn.opening_message, turn.snapshot.task.history)
    earlier = turn.snapshot.task.history[: fields["messages"]]
    return TurnInput(fields["turn"], earlier[-1], earlier, fields["artifact"])


def get_turn_calls(task: TaskContext[Any]) -> TurnCalls | None:
    """Return the calls of a turn, for adapters of frameworks. Outside a mesh there are none."""
    calls = get_task_calls(task)
    return calls if isinstance(calls, TurnCalls) else None
