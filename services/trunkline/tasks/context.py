"""The `task` argument of an agent's function: the input of a turn, and methods to write output."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from typing_extensions import TypeVar

from trunkline.core.json_values import build_struct, has_member, update_struct
from trunkline.core.task_states import OUTCOME_KEY, PARTS_MISSING_KEY, TaskOutcome, TaskState
from trunkline.errors import InvalidAgentResponseError, UnsupportedOperationError
from trunkline.tasks.approvals import ApprovalAnswer
from trunkline.tasks.calls import (
    AgentAnswer,
    AgentStream,
    ResultT,
    TaskCalls,
    ToolResult,
    TurnInput,
)
from trunkline.tasks.content import (
    CONTENT_TYPES,
    RESULT_TYPES,
    Content,
    build_agent_message,
    invalid_content,
    message_text,
)
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.files import READ_LIMIT_BYTES, FileSource, TaskFiles
from trunkline.tasks.lifecycle import (
    INTERRUPTED,
    TERMINAL,
    State,
    build_status_event,
    check_transition,
    state_name,
)
from trunkline.tasks.messages import MeshMessage, OutgoingMessage, Payload, Priority
from trunkline.tasks.rewind import Attempt, build_rewound, truncate_artifact
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.turn_state import IdAllocator, OpenChildren, PendingApprovals, TurnPause
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2, task_pb2, tree_pb2

if TYPE_CHECKING:
    from trunkline.tasks.resources import JournalResources

SettingsT = TypeVar("SettingsT", default=None)
"""The type of the settings of an agent. It is None for an agent without settings."""

# A constant, because the lookup of an enum value by name is slow for each event.
_WORKING: Final = State.TASK_STATE_WORKING
_NO_USAGE: Final = tree_pb2.TreeUsage()


class TaskContext(Generic[SettingsT]):
    """One turn of one task, for the author of its agent.

    The agent's function is called once for each message of a task, with a new context each time.
    Only the task itself persists between turns. Events are journaled in the order of the calls.
    After the turn has ended, every write raises InvalidAgentResponseError. When the task is
    canceled, the function gets `asyncio.CancelledError`.

    The host builds it as a `TurnRuntime`, which adds what authors may not do.
    """

    def __init__(
        self,
        resources: "JournalResources",
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        attempt: Attempt | None = None,
        create: Callable[[], Awaitable[None] | None] | None = None,
        may_reply: bool = False,
    ) -> None:
        """See `TurnRuntime`."""
        self._resources = resources
        self._snapshot = snapshot
        self._message = message
        self._input = TurnInput(snapshot.turn, message, snapshot.task.history)
        self._reply_message: message_pb2.Message | None = None
        self._attempt = attempt
        self._create = create
        self._exists = create is None
        self._may_reply = may_reply
        journal = resources.journal
        self._emitter = Emitter(
            journal,
            self.id,
            journal.epoch,
            scheduler=resources.scheduler,
        )
        self._files = TaskFiles(resources.files, self.id, self.account)
        self._calls: TaskCalls | None = None
        self._tree: TaskTree | None = None
        self._meter: UsageMeter | None = None
        latest = self._latest
        self._state = latest.task.status.state
        self._is_partial = has_member(latest.task.metadata, PARTS_MISSING_KEY)
        self._is_over = False
        self._is_canceling = False
        self._end_callbacks: list[Callable[[], Awaitable[None]]] = []
        start = latest.sequence if attempt is None else attempt.turn_start
        self._ids = IdAllocator(latest, start)
        self._open_calls = {
            call.started.call_id: ToolCall(call.started.call_id, call.started.tool)
            for call in latest.tool_calls
            if not call.HasField("finished")
        }
        self._children = OpenChildren(latest)
        self._approvals = PendingApprovals(latest, path=(*snapshot.parent.path, snapshot.agent))
        self._pause = TurnPause(latest, self._emitter)
        # The artifacts of this attempt that belong to the answer.
        self._answers: list[ArtifactWriter] = []
        # The artifacts that earlier attempts at this turn wrote, and whether each is closed.
        self._written_artifacts = {} if attempt is None else attempt.written_artifacts()
        self.incoming: MeshMessage | None = None
        """The message between agents that the turn handles, unless it handles a request."""
        self.settings: SettingsT = cast("SettingsT", None)
        """The agent's settings, of the type that `@agent(settings=…)` declares."""

    # The input of the turn.

    @property
    def id(self) -> str:
        """The task's id."""
        return self._snapshot.task.id

    @property
    def context_id(self) -> str:
        """The conversation's id: tasks of one conversation share it."""
        return self._snapshot.task.context_id

    @property
    def agent(self) -> str:
        """The name of the agent that runs."""
        return self._snapshot.agent

    @property
    def account(self) -> str:
        """The account that the task belongs to; `anonymous` without authentication."""
        return self._snapshot.account

    @property
    def caller(self) -> str:
        """The caller within the account; empty if it is unknown."""
        return self._snapshot.caller

    @property
    def turn(self) -> int:
        """The number of this message within the task, from 1."""
        return self._input.turn

    @property
    def attempt(self) -> int:
        """The number of this run of the turn, from 1; higher after the host has died."""
        return 1 if self._attempt is None else self._attempt.number

    @property
    def message(self) -> message_pb2.Message:
        """The message of this turn, exactly as it was sent."""
        return self._input.message

    @property
    def text(self) -> str:
        """The text parts of this turn's message, joined by a space."""
        return message_text(self._input.message)

    @property
    def history(self) -> Sequence[message_pb2.Message]:
        """The messages of the task, oldest first; the last one is this turn's."""
        return self._input.history

    @property
    def deadline(self) -> datetime | None:
        """The time in UTC at which the task fails if it has not ended, if it has a deadline."""
        if not self._snapshot.HasField("deadline"):
            return None
        return self._snapshot.deadline.ToDatetime(tzinfo=UTC)

    @property
    def accepted_output_modes(self) -> Sequence[str]:
        """The media types that the caller accepts. A caller without a list accepts all."""
        return self._snapshot.accepted_output_modes

    @property
    def state(self) -> TaskState:
        """The state that the task is in now."""
        return TaskState.from_proto(self._state)

    @property
    def is_over(self) -> bool:
        """True if the turn has ended or is being canceled: nothing more can be written."""
        return self._is_over or self._is_canceling

    @property
    def approvals(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """The approvals that the task and its children requested, in order."""
        return self._approvals.all

    # Progress, and the end of the turn.

    async def working(self, text: str | None = None) -> None:
        """Enter the state `working`, optionally with a status text.

        Returns when the event is in the journal. The first artifact, plan or tool call does the
        same without a text, so call this only to say something before slow work. For frequent
        reports within the work use `progress`, which does not wait.
        """
        await self._enter(_WORKING, text)

    async def progress(self, text: str) -> None:
        """Report progress as a status text, without waiting for the journal.

        The event is written together with the next events. The task is `working` afterwards.
        """
        if not isinstance(text, str):
            raise invalid_content(self.agent, "it reported", text, (str,))
        emitter = await self._begin_work()
        emitter.put(self._build_status(_WORKING, text))

    async def mark_partial(self) -> None:
        """Say that a part of the answer is missing: if the task completes, it is `partial`."""
        self._is_partial = True
        await self._enter(_WORKING, metadata={PARTS_MISSING_KEY: True})

    async def complete(self, message: Content | None = None) -> None:
        """End the task with success. Returning from the function does the same."""
        metadata = {OUTCOME_KEY: TaskOutcome.PARTIAL.value} if self._is_partial else None
        await self._enter(State.TASK_STATE_COMPLETED, message, metadata=metadata)

    async def fail(self, message: Content | None = None) -> None:
        """End the task with an error; the message says why. Raising does the same."""
        await self._enter(State.TASK_STATE_FAILED, message)

    async def reject(self, message: Content | None = None) -> None:
        """End the task because the agent declines it; the message says why."""
        await self._enter(State.TASK_STATE_REJECTED, message)

    async def require_input(self, message: Content | None = None) -> None:
        """End the turn with a question. The answer calls the function again, as the next turn."""
        await self._enter(State.TASK_STATE_INPUT_REQUIRED, message)

    async def require_auth(self, message: Content | None = None) -> None:
        """End the turn because credentials are missing; the message says which."""
        await self._enter(State.TASK_STATE_AUTH_REQUIRED, message)

    async def reply(self, message: Content) -> None:
        """Answer with a message instead of a task.

        Raises:
            InvalidAgentResponseError: something was written before, or the agent is not declared
                with `direct_replies`.
        """
        if self._create is None or not self._may_reply:
            raise InvalidAgentResponseError(
                self.agent, "a direct reply needs direct_replies and must precede all other output"
            )
        if not isinstance(message, CONTENT_TYPES):
            raise invalid_content(self.agent, "it replied with", message, CONTENT_TYPES)
        self._check_open()
        self._reply_message = build_agent_message(message, task_id="", context_id=self.context_id)
        self._is_over = True
        self._create = None

    async def request_approval(
        self, tool: str, arguments: Mapping[str, Any] | None = None
    ) -> ApprovalAnswer | None:
        """Ask a person to approve a call; return the answer, or None while there is none.

        On None, return from the function: the turn ends with one question for all approvals that
        it requested. The answer opens the next turn, where the same call of this method returns
        it. A task asks once for the same tool with the same arguments.
        """
        approval = self._approvals.find_call(tool, arguments)
        if approval is None:
            await self._record(self._approvals.request(tool, arguments))
            return None
        if not approval.HasField("answered"):
            return None
        return ApprovalAnswer.from_proto(approval.answered)

    # Artifacts, plans and tool calls.

    def artifact(
        self,
        name: str = "",
        *,
        id: str = "",  # noqa: A002  the name that authors expect
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        extensions: Sequence[str] = (),
        is_answer: bool = True,
    ) -> ArtifactWriter:
        """Return an artifact to write to. It exists from its first append on.

        The `id` of an artifact that an earlier turn wrote continues this artifact. In a turn that
        runs again, the same calls return the same artifacts. With `is_answer=False` it is shown
        while the agent works, and is no part of its answer.
        """
        data = None if metadata is None else build_struct(metadata)
        kind = (
            event_pb2.ARTIFACT_KIND_UNSPECIFIED if is_answer else event_pb2.ARTIFACT_KIND_PROGRESS
        )
        start = event_pb2.ArtifactStart(
            name=name, description=description, metadata=data, kind=kind, extensions=extensions
        )
        return self._open_artifact(id, start)

    def plan(self) -> PlanWriter:
        """Return a new plan to write to."""
        plan_id, revision = self._ids.next_plan()
        return PlanWriter(self._begin_work, self.agent, plan_id, revision=revision)

    @asynccontextmanager
    async def tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        id: str = "",  # noqa: A002  the name that authors expect
    ) -> AsyncIterator[ToolCall]:
        """Record the start of a tool call when a block begins, and its end when the block ends.

        Set `summary` and `is_error` of the call that the block yields; an exception makes it an
        error. An `id` must be unique in the task.
        """
        call = ToolCall(id or self._ids.next_call_id(), name)
        started = event_pb2.ToolStarted(
            call_id=call.id, tool=name, arguments=build_struct(arguments or {})
        )
        (await self._begin_work()).put(event_pb2.Event(tool_started=started))
        self._open_calls[call.id] = call
        try:
            yield call
        except BaseException as error:
            call.is_error = True
            call.summary = call.summary or f"{name} did not finish ({type(error).__name__})"
            raise
        finally:
            # If the task has ended within the block, its calls have ended, too.
            if self._open_calls.pop(call.id, None) is not None:
                self._emitter.put(call.finished_event())

    async def rewind(self, lengths: Mapping[str, int] | None = None) -> None:
        """Truncate the artifacts of an earlier attempt at this turn to where the agent continues.

        Only for agents declared `resumable`, before they write anything. `lengths` has, by
        artifact id, the number of characters of the joined text that remain; the default is 0.
        Without an earlier attempt this does nothing.
        """
        if self._attempt is None or self._attempt.is_rewound:
            return
        latest, lengths = self._attempt.latest, lengths or {}
        emitter = await self._begin()
        for artifact, info in zip(latest.task.artifacts, latest.artifacts, strict=True):
            if info.artifact_id not in self._written_artifacts or info.HasField("origin"):
                continue
            length = lengths.get(info.artifact_id, 0)
            remains = truncate_artifact(artifact, length)
            if remains != artifact or (info.closed and not remains.parts):
                emitter.put(event_pb2.Event(rewound=build_rewound(remains)), hold=True)
                self._written_artifacts[info.artifact_id] = False
            if not remains.parts:
                del self._written_artifacts[info.artifact_id]
        await emitter.commit()

    # Usage of models.

    def report_usage(self, model: str, *, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of a model that the agent called by another client than the mesh's.

        They count for the limits of the request and for budgets, with the prices in
        `[models."PROVIDER:NAME"]`. `model` is the name there. Report each reply once. The models of
        a graph are counted without it.

        Raises:
            InvalidArgumentError: a number is negative, or not whole, or the name of the model can't
                be stored.
        """
        self._get_meter().report(model, input_tokens=input_tokens, output_tokens=output_tokens)

    # Calls to other agents and to tools.

    def ask(
        self, agent: str, content: Content, *, task_id: str = "", key: str = "", check: bool = True
    ) -> Coroutine[Any, Any, AgentAnswer]:
        """Ask another agent and wait for its answer.

        The agent gets a child task: with this task's caller, deadline and trace, within
        the limits of the request, and canceled with this task. Cancel the call to cancel it alone.
        Approvals that it needs are asked of this task's caller; the function then stops here, and
        runs again from its start with the same message once they are answered.

        A call is identified by its number among the calls of the same agent in this turn, or by
        `key`. If the turn runs again, the same call gets the answer of the task that was started
        before. Give calls a key whose order can differ when the function runs again.

        `task_id` answers the question of an agent that was asked before (see `questions`).

        Raises:
            AgentCallError: the agent did not complete; it has the state and the text. With
                `check=False` the answer is returned instead.
            InvalidArgumentError: there is no such agent, or no such child with `task_id`.
            TreeLimitError: a limit of the request is reached, or the agents call in a circle.
            UnsupportedOperationError: the task does not run on a mesh, or the function that calls
                is synchronous.
        """
        return self._peers().ask(agent, content, task_id=task_id, key=key, check=check)

    def stream(
        self, agent: str, content: Content, *, task_id: str = "", key: str = "", check: bool = True
    ) -> AgentStream:
        """Ask another agent as `ask` does, and iterate over the text while it is written.

        `answer` of the stream is the whole answer, once the iteration has ended. An agent that
        revises its text does so in the answer only. A stream that is left early is canceled at the
        end of the turn.
        """
        return self._peers().stream(agent, content, task_id=task_id, key=key, check=check)

    def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool of an MCP server, by `SERVER/TOOL`.

        A failure of the tool is an answer with `is_error`. If the tool needs approval, or asks
        something, this task's caller is asked. The function stops here and runs again from its
        start with the same message once that is answered; a rejected call is an answer with
        `is_error`, too. Calls are identified as calls of `ask`. A tool that changes something and
        is not idempotent is called once, and a turn that runs again gets the stored result. A call
        that the server makes a long-running task is followed, and canceled with this task.

        Raises:
            InvalidArgumentError: there is no such tool for this agent.
            PeerError: the tool server or its adapter failed.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        return self._peers().call_tool(tool, arguments, key=key)

    def ask_model(
        self, prompt: str, result: type[ResultT], *, instructions: str = "", purpose: str = "ask"
    ) -> Coroutine[Any, Any, ResultT | None]:
        """Ask the agent's model for an object of a pydantic model.

        The settings of the mesh say which model, with its fallbacks, limits and budgets. Returns
        None if it is the built-in `rules`, or if `rules` is its fallback and the others fail:
        `rules` does not reason. An object that does not fit is asked for once more, with the fault.
        If the turn runs again, the model is asked again. `purpose` is a word for the call in traces
        and figures.

        Raises:
            ModelUnavailableError: no model answered, or the answers did not fit.
            LimitExceededError: a budget is used up.
            TreeLimitError: the limits of the request leave no tokens.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        return self._peers().ask_model(prompt, result, instructions=instructions, purpose=purpose)

    # Messages to other agents.

    def send(  # noqa: PLR0913  the fields of a message, each by name
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        room: str = "",
        priority: Priority | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_in_s: float | None = None,
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to an agent, to `all`, to `room:NAME`, or to `user:NAME`.

        The payload is an object of a declared type, text, or the fields of the `type`. The message
        is stored when the call returns, and is delivered at least once. In a handler, it belongs to
        the conversation of the message that is handled. If the turn runs again, the same call sends
        nothing new; calls are identified as calls of `ask`.

        Raises:
            InvalidArgumentError: the payload does not fit its type, or there is no such recipient.
            QueueFullError: too many messages wait.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        message = OutgoingMessage(
            recipient=recipient,
            payload=payload,
            type=type,
            room=room,
            priority=priority,
            metadata=metadata or {},
            expires_in_s=expires_in_s,
            key=key,
        )
        return self._peers().send(message)

    def publish(
        self,
        room: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to the members of a room, and to its listeners; as `send` does."""
        return self.send(f"room:{room}", payload, type=type, key=key)

    def request(
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        timeout_s: float = 60.0,
        priority: Priority | None = None,
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to an agent, and return its first reply.

        Raises:
            PeerTimeoutError: there is no reply in time. The message stays, and may be answered.
            AgentCallError: nobody will answer: it was handled without a reply, failed for good,
                expired, or was canceled. A request to a room waits longer: users may answer it.
            As `send`.
        """
        message = OutgoingMessage(
            recipient=recipient, payload=payload, type=type, priority=priority, key=key
        )
        return self._peers().request(message, timeout_s=timeout_s)

    @property
    def questions(self) -> Sequence[AgentAnswer]:
        """The questions of asked agents that wait for an answer, oldest first."""
        return () if self._calls is None else self._calls.questions

    def _peers(self) -> TaskCalls:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # A node of a graph, for example. Nobody would await the call.
            problem = "the function is synchronous; make it `async def` and await the call"
            raise UnsupportedOperationError("a call", problem) from None
        if self._calls is None:
            self._check_open()
            raise UnsupportedOperationError("a call", "this task does not run on a mesh")
        return self._calls

    # Files.

    def open(self, part: part_pb2.Part) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the content of a part, of this turn's message for example, in pieces.

        The content may be in the part, stored by the mesh (`trunkline:` URLs), or behind an https
        URL of a public host or of a host that the operator allows.

        Raises:
            InvalidArgumentError: nothing may be fetched from that URL.
            TaskNotFoundError, ArtifactNotFoundError: there is no such content for this account.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: fetching it failed.
        """
        return self._files.open(part)

    async def read(self, part: part_pb2.Part, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of a part; see `open`.

        Raises:
            InvalidArgumentError: it is larger than `limit_bytes`.
            TrunklineError: as `open` raises.
        """
        return await self._files.read(part, limit_bytes)

    async def store(
        self, source: FileSource, *, media_type: str = "", filename: str = "", key: str = ""
    ) -> part_pb2.Part:
        """Store content of any size with the task; return the part that refers to it.

        For parts of messages; `ArtifactWriter.attach` does the same for an artifact. Content that
        was stored before under the same `key` is used, and `source` is not read.

        Raises:
            As `ArtifactWriter.attach`.
        """
        return await self._files.attach(source, media_type=media_type, filename=filename, key=key)

    # Internals, which `TurnRuntime` shares.

    @property
    def _latest(self) -> snapshot_pb2.TaskSnapshot:
        """The task at the start of this attempt."""
        return self._snapshot if self._attempt is None else self._attempt.latest

    def _get_tree(self) -> TaskTree:
        if self._tree is None:
            limits = self._resources.host.settings.tree
            self._tree = TaskTree(self._snapshot, self._latest, limits)
        return self._tree

    def _get_meter(self) -> UsageMeter:
        if self._meter is None:
            host = self._resources.host
            self._meter = UsageMeter(
                self._get_tree(), self.account, self.caller, host.budgets, host.settings.models
            )
        return self._meter

    def _open_artifact(self, chosen_id: str, start: event_pb2.ArtifactStart) -> ArtifactWriter:
        artifact_id = self._ids.next_artifact_id(chosen_id)
        is_closed = self._written_artifacts.get(artifact_id)
        if is_closed is None and chosen_id:
            is_closed = self._ids.is_closed_before(chosen_id)
        writer = ArtifactWriter(
            self._begin_work, self._files, self.agent, artifact_id, start, is_closed=is_closed
        )
        if start.kind == event_pb2.ARTIFACT_KIND_UNSPECIFIED:
            self._answers.append(writer)
        return writer

    def _build_status(self, state: task_pb2.TaskState.ValueType, text: str) -> event_pb2.Event:
        event = build_status_event(state)
        message = build_agent_message(text, task_id=self.id, context_id=self.context_id)
        event.status.status.message.CopyFrom(message)
        return event

    async def _enter(
        self,
        state: task_pb2.TaskState.ValueType,
        message: Content | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Enter a state, or report progress within it. `metadata` is merged into the task's.

        Raises:
            InvalidAgentResponseError: the message is neither a text nor a Part nor a Message, the
                turn is over, or the transition is illegal.
        """
        if message is not None and not isinstance(message, CONTENT_TYPES):
            action = f"it entered {state_name(state)} with"
            raise invalid_content(self.agent, action, message, RESULT_TYPES)
        emitter = await self._begin()
        check_transition(self.agent, self._state, state)
        event = build_status_event(state)
        if message is not None:
            built = build_agent_message(message, task_id=self.id, context_id=self.context_id)
            event.status.status.message.CopyFrom(await self._files.store_message(built))
        if state in INTERRUPTED:
            self._add_approvals(event.status)
        if metadata is not None:
            update_struct(event.status.metadata, metadata)
        if self._tree is not None and (state in TERMINAL or state in INTERRUPTED):
            usage = self._tree.usage
            if usage != _NO_USAGE:
                event.status.usage.CopyFrom(usage)
        if state in TERMINAL and self._open_calls:
            self._finish_calls("the task ended")
        self._state = state
        self._is_over = state in TERMINAL or state in INTERRUPTED
        if self._is_over:
            self._answers.clear()  # They refer to this object: a cycle.
        emitter.put(event)
        await emitter.commit()
        if state in TERMINAL:
            await self._call_end_callbacks()

    async def _call_end_callbacks(self) -> None:
        while self._end_callbacks:
            await self._end_callbacks.pop(0)()

    async def _record(self, *events: event_pb2.Event, waits: bool = True) -> None:
        """Write events, also while the turn is stopped; they are durable then if the call waits."""
        is_stopped = self._is_canceling or self._pause.is_leaving
        emitter = self._emitter if is_stopped else await self._begin_work()
        for event in events:
            self._children.apply(event)
            self._approvals.apply(event)
            if self._tree is not None:
                self._tree.apply(event)
        emitter.put(*events)
        if waits:
            await emitter.commit()

    def _finish_calls(self, summary: str) -> None:
        """End the open tool calls as errors."""
        calls, self._open_calls = self._open_calls, {}
        for call in calls.values():
            call.is_error = True
            call.summary = call.summary or summary
            self._emitter.put(call.finished_event(), hold=True)

    def _add_approvals(self, change: event_pb2.StatusChanged) -> None:
        """Add the continuation and the question for pending approvals to a turn's last status."""
        change.continuation = self._approvals.continuation
        if self._approvals.is_open:
            message = change.status.message
            if not message.message_id:
                completed = build_agent_message(
                    message, task_id=self.id, context_id=self.context_id
                )
                message.CopyFrom(completed)
            self._approvals.add_question(message, self.accepted_output_modes)

    def _begin_creation(self) -> Awaitable[None] | None:
        """Write the task unless that was begun; return what the first event has to wait for."""
        create, self._create = self._create, None
        self._exists |= create is not None
        return None if create is None else create()

    async def _begin(self) -> Emitter:
        """Create the task unless it exists; return the emitter."""
        self._check_open()
        if (created := self._begin_creation()) is not None:
            await created
        return self._emitter

    async def _begin_work(self) -> Emitter:
        """Enter `working` before the first write of a turn; return the emitter."""
        if self._state == _WORKING and self._create is None:
            self._check_open()
            return self._emitter
        emitter = await self._begin()
        if self._state != _WORKING:
            check_transition(self.agent, self._state, _WORKING)
            self._state = _WORKING
            emitter.put(build_status_event(self._state), hold=True)
        return emitter

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidAgentResponseError(self.agent, "it wrote after the end of its turn")
        if self._is_canceling or self._pause.is_leaving:
            raise InvalidAgentResponseError(self.agent, "it wrote after it was canceled")


def get_task_calls(task: TaskContext[Any]) -> TaskCalls | None:
    """Return what makes the calls of a task, for the mesh's own code. Outside a mesh it is None."""
    return task._calls  # noqa: SLF001  authors call the methods of the task
