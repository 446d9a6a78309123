"""One turn of a task for the host: its input, its state, and all writes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trunkline import telemetry
from trunkline.errors import FencedError, InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import splice
from trunkline.journal.events import Draft
from trunkline.json_values import build_struct, has_member, update_struct
from trunkline.task_states import OUTCOME_KEY, PARTS_MISSING_KEY, TaskOutcome
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
from trunkline.tasks.rewind import ATTEMPT_KEY, Attempt, build_rewound, truncate_artifact
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.turn_state import IdAllocator, OpenChildren, PendingApprovals, TurnPause
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
from trunkline.users import User, continue_for, current_statement, current_user, stored_statement
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
    tree_pb2,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trunkline.encryption import Keyring
    from trunkline.tasks.resources import JournalResources

HOST_STOPPED: Final = "its host stopped"
"""The summary of a tool call whose host died before its end: its effect is unknown."""

# A constant, because the lookup of an enum value by name is slow for each event.
_WORKING: Final = State.TASK_STATE_WORKING
_NO_USAGE: Final = tree_pb2.TreeUsage()


class TurnRuntime:
    """One turn of a task, as the host and the mesh's own agents see it.

    Authors of agents use `TaskContext`, which is a part of this interface. Events are journaled
    in the order of the calls. After the turn has ended, every write is refused. A task runs at
    most one turn at a time, on one host.
    """

    def __init__(  # noqa: PLR0913  most are keyword-only
        self,
        resources: "JournalResources",
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        forwarded: Mapping[str, int] | None = None,
        attempt: Attempt | None = None,
        create: Callable[[], Awaitable[None] | None] | None = None,
        may_reply: bool = False,
    ) -> None:
        """Start from the snapshot at the start of the turn. The caller holds the task's execution.

        `forwarded` has, by task id, the last sequence that was forwarded from each child.
        `attempt` is set when the turn runs again after a takeover.
        `create` writes the task. It is called before the first event, which waits for its result.
        Without `create` the task is in the journal. A direct reply, which `may_reply` allows, does
        not create the task.
        """
        settings, journal = resources.host.settings, resources.journal
        self.snapshot = snapshot
        """The task at the start of the turn."""
        self.message = message
        """The message that opened the turn."""
        self.reply_message: message_pb2.Message | None = None
        """The agent's direct reply, if any."""
        self.checkpoint_path: Path | None = resources.checkpoint_path
        """The file for an agent's checkpoints, beside the journal; None: they are not stored."""
        self.keyring: Keyring | None = journal.keyring
        """The keys of the journal's data directory, if it has some."""
        self._attempt = attempt
        self._tree: TaskTree | None = None
        self._tree_limits = settings.tree
        self._meter: UsageMeter | None = None
        self._budgets = resources.host.budgets
        self._models = settings.models
        self._forwarded = dict(forwarded or {})
        self._emitter = Emitter(
            journal,
            self.id,
            journal.epoch,
            scheduler=resources.scheduler,
            pending_limit_bytes=settings.pending_limit_bytes,
        )
        self._files = TaskFiles(resources.files, self.id, self.account)
        self._create = create
        self._may_reply = may_reply
        self._exists = create is None
        latest = self.latest
        self._state = latest.task.status.state
        self.is_partial: bool = has_member(latest.task.metadata, PARTS_MISSING_KEY)
        """True if a part of the answer is missing, so that the task completes as partial."""
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
        self.children: OpenChildren = OpenChildren(latest)
        """The children that have not ended."""
        self.pending_approvals: PendingApprovals = PendingApprovals(latest, path=self.path)
        """The approvals that the task and its children requested, and the answers."""
        self.pause: TurnPause = TurnPause(latest, self._emitter)
        """True while the task is paused."""
        self.answers: list[ArtifactWriter] = []
        """The artifacts of this attempt that are no progress."""
        # The artifacts that earlier attempts at this turn wrote, and whether each is closed.
        self._written_artifacts = {} if attempt is None else attempt.written_artifacts()

    @property
    def id(self) -> str:
        """The task's id."""
        return self.snapshot.task.id

    @property
    def context_id(self) -> str:
        """The conversation's id."""
        return self.snapshot.task.context_id

    @property
    def agent(self) -> str:
        """The name of the agent that runs."""
        return self.snapshot.agent

    @property
    def account(self) -> str:
        """The account of the caller."""
        return self.snapshot.account

    @property
    def caller(self) -> str:
        """The caller within the account."""
        return self.snapshot.caller

    @property
    def turn(self) -> int:
        """The number of this turn within the task, from 1."""
        return self.snapshot.turn

    @property
    def attempt(self) -> int:
        """The number of this run of the turn, from 1; it runs again once its host has stopped."""
        return 1 if self._attempt is None else self._attempt.number

    @property
    def is_recovered(self) -> bool:
        """True if an earlier host stopped before the end of the turn."""
        return self._attempt is not None

    @property
    def latest(self) -> snapshot_pb2.TaskSnapshot:
        """The task at the start of this attempt; `snapshot` is that at the start of the turn."""
        return self.snapshot if self._attempt is None else self._attempt.latest

    @property
    def forwarded(self) -> Mapping[str, int]:
        """The last sequence that was forwarded from each originating task, by its id."""
        return self._forwarded

    @property
    def deadline(self) -> datetime | None:
        """The time at which the task fails if it has not ended, in UTC; None: no limit."""
        if not self.snapshot.HasField("deadline"):
            return None
        return self.snapshot.deadline.ToDatetime(tzinfo=UTC)

    @property
    def accepted_output_modes(self) -> Sequence[str]:
        """The media types that the caller of the first turn accepts; empty: all."""
        return self.snapshot.accepted_output_modes

    @property
    def text(self) -> str:
        """The text parts of this turn's message, joined by a space."""
        return message_text(self.message)

    @property
    def history(self) -> Sequence[message_pb2.Message]:
        """The messages of the task up to and including this turn's, oldest first."""
        return self.snapshot.task.history

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the agents from the root of the request down to this one."""
        return (*self.snapshot.parent.path, self.agent)

    @property
    def tree(self) -> TaskTree:
        """The limits of the request for this task and those below it, and what they used."""
        if self._tree is None:
            self._tree = TaskTree(self.snapshot, self.latest, self._tree_limits)
        return self._tree

    @property
    def meter(self) -> UsageMeter:
        """Checks and counts the models that the turn calls."""
        if self._meter is None:
            self._meter = UsageMeter(
                self.tree, self.account, self.caller, self._budgets, self._models
            )
        return self._meter

    def child_submission(self, task_id: str) -> message_service_pb2.Submission:
        """Return the submission of a child: same caller, same deadline, this task as parent.

        Without an id it is that of a child's next turn.
        """
        submission = message_service_pb2.Submission(
            account=self.account,
            caller=self.caller,
            task_id=task_id,
            priority=self.snapshot.priority,
            accepted_output_modes=self.accepted_output_modes,
            parent=event_pb2.ParentTask(task_id=self.id, agent=self.agent, path=self.path),
        )
        if task_id:
            submission.tree.CopyFrom(self.tree.position_of_child(task_id))
        if self.snapshot.HasField("deadline"):
            submission.deadline.CopyFrom(self.snapshot.deadline)
        return submission

    def continue_for_user(self) -> None:
        """Work for the task's user in the rest of this asyncio task, unless it does for one."""
        continue_for(self.account, self.caller, self.latest.user_statement)

    @property
    def state(self) -> task_pb2.TaskState.ValueType:
        """The current state of the task."""
        return self._state

    @property
    def is_over(self) -> bool:
        """True if the turn has ended or is being canceled: further writes raise."""
        return self._is_over or self._is_canceling

    async def working(self, text: str | None = None) -> None:
        """Enter the state `working`, optionally with a status text."""
        await self.enter(State.TASK_STATE_WORKING, text)

    async def progress(self, text: str) -> None:
        """Report progress without waiting: the event is written together with the next ones."""
        if not isinstance(text, str):
            raise invalid_content(self.agent, "it reported", text, (str,))
        emitter = await self._begin_work()
        event = build_status_event(_WORKING)
        message = build_agent_message(text, task_id=self.id, context_id=self.context_id)
        event.status.status.message.CopyFrom(message)
        emitter.put(event)

    async def complete(self, message: Content | None = None) -> None:
        """End the task with success."""
        metadata = {OUTCOME_KEY: TaskOutcome.PARTIAL.value} if self.is_partial else None
        await self.enter(State.TASK_STATE_COMPLETED, message, metadata=metadata)

    async def fail(self, message: Content | None = None) -> None:
        """End the task with an error that the message explains."""
        await self.enter(State.TASK_STATE_FAILED, message)

    async def reject(self, message: Content | None = None) -> None:
        """End the task because the agent declines it."""
        await self.enter(State.TASK_STATE_REJECTED, message)

    async def require_input(self, message: Content | None = None) -> None:
        """End the turn with a question; the answer is the next turn's message."""
        await self.enter(State.TASK_STATE_INPUT_REQUIRED, message)

    async def require_auth(self, message: Content | None = None) -> None:
        """End the turn because credentials are needed; the message says which."""
        await self.enter(State.TASK_STATE_AUTH_REQUIRED, message)

    async def enter(
        self,
        state: task_pb2.TaskState.ValueType,
        message: Content | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Enter a state, or report progress within it.

        `working`, `complete` and the other state methods call this. Agents that relay another
        agent's states call it directly. `metadata` is merged into the task's.

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
            self.answers.clear()  # They refer to the runtime: a cycle.
        emitter.put(event)
        await emitter.commit()
        if state in TERMINAL:
            await self._call_end_callbacks()

    def on_end(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call and await a function when the task's end is durable, also an end by the host."""
        self._end_callbacks.append(callback)

    async def _call_end_callbacks(self) -> None:
        while self._end_callbacks:
            await self._end_callbacks.pop(0)()

    async def request_approval(
        self, tool: str, arguments: Mapping[str, Any] | None = None
    ) -> event_pb2.ApprovalAnswered | None:
        """Ask a person to approve a call; return the answer, or None while there is none.

        On None, end the turn: it asks one question for all approvals that it requested, and the
        answer opens the next turn. The answer's `decision` is an ApprovalDecision. A task asks
        once for the same tool with the same arguments.
        """
        approval = self.pending_approvals.find_call(tool, arguments)
        if approval is None:
            await self.record(self.pending_approvals.request(tool, arguments))
            return None
        return approval.answered if approval.HasField("answered") else None

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
        self.reply_message = build_agent_message(message, task_id="", context_id=self.context_id)
        self._is_over = True
        self._create = None

    def artifact(
        self,
        name: str = "",
        *,
        id: str = "",  # noqa: A002  the name that authors expect
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        extensions: Sequence[str] = (),
        kind: event_pb2.ArtifactKind.ValueType = event_pb2.ARTIFACT_KIND_UNSPECIFIED,
    ) -> ArtifactWriter:
        """Return an artifact to write to. It exists from its first append on.

        The `id` of an artifact that an earlier turn wrote continues that one. In a turn that runs
        again, artifacts that keep text after the rewind are continued as well.
        """
        artifact_id = self._ids.next_artifact_id(id)
        data = None if metadata is None else build_struct(metadata)
        start = event_pb2.ArtifactStart(
            name=name, description=description, metadata=data, kind=kind, extensions=extensions
        )
        is_closed = self._written_artifacts.get(artifact_id)
        if is_closed is None and id:
            is_closed = self._ids.is_closed_before(id)
        writer = ArtifactWriter(
            self._begin_work, self._files, self.agent, artifact_id, start, is_closed=is_closed
        )
        if kind == event_pb2.ARTIFACT_KIND_UNSPECIFIED:
            self.answers.append(writer)
        return writer

    @asynccontextmanager
    async def open(self, part: part_pb2.Part) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the content of a part, of this turn's message for example, in chunks.

        The content is in the part, stored by the mesh (`trunkline:` URLs), or behind an https URL
        of a public host or of a host that the operator allows.

        Raises:
            InvalidArgumentError: nothing may be fetched from that URL.
            TaskNotFoundError, ArtifactNotFoundError: there is no such content for this account.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: fetching it failed.
        """
        async with self._files.open(part) as chunks:
            yield chunks

    async def read(self, part: part_pb2.Part, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of a part, as `open` finds it.

        Raises:
            InvalidArgumentError: it is larger than `limit_bytes`; and as `open`.
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
        """Record a tool call: its start when the block is entered, its end when it is left.

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

    async def record(self, *events: event_pb2.Event, waits: bool = True) -> None:
        """Write events, also of effects while the turn is stopped; durable then if it `waits`."""
        is_stopped = self._is_canceling or self.pause.is_leaving
        emitter = self._emitter if is_stopped else await self._begin_work()
        for event in events:
            self.children.apply(event)
            self.pending_approvals.apply(event)
            if self._tree is not None:
                self._tree.apply(event)
        emitter.put(*events)
        if waits:
            await emitter.commit()

    async def forward(self, sealed: bytes, *, agent: str) -> None:
        """Append the artifact deltas of a sealed batch of `agent`'s task, under their origin.

        Deltas that were forwarded before are skipped, so a child's stream may be read again.
        """
        drafts = splice(sealed, agent=agent, forwarded=self._forwarded)
        if drafts:
            (await self._begin_work()).put_drafts(drafts)
            await self._emitter.make_room()

    @property
    def can_forward_now(self) -> bool:
        """True if a batch can be forwarded without waiting."""
        return (
            self._state == _WORKING
            and self._create is None
            and not (self.is_over or self.pause.is_leaving or self._emitter.is_full)
            and self._emitter.error is None
        )

    def forward_now(self, sealed: bytes, header: event_pb2.BatchHeader, *, agent: str) -> None:
        """Forward a batch whose header is parsed, without waiting. Requires `can_forward_now`."""
        drafts = splice(sealed, agent=agent, forwarded=self._forwarded, header=header)
        if drafts:
            self._emitter.put_drafts(drafts)

    async def rewind(self, lengths: Mapping[str, int] | None = None) -> None:
        """Truncate the artifacts of an earlier attempt at this turn to where the agent continues.

        `lengths` has, by artifact id, the number of characters of the joined text that remain; the
        default is 0. Only for agents declared `resumable`, before
        they write anything. Without an earlier attempt this does nothing. Artifacts forwarded
        from children are not cut, because forwarding resumes at the last sequence.
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

    async def open_turn(self, message: message_pb2.Message) -> None:
        """Journal the start of the next turn and the approvals that its message answers.

        All events are in one commit. For the host only.

        Raises:
            JournalUnavailableError: the journal can't be written; nothing has changed.
            InvalidArgumentError, ApprovalNotFoundError, ApprovalAnsweredError: an answer to an
                approval is not valid.
        """
        answers = self.pending_approvals.parse_answers(message, turn=self.turn + 1)
        check_transition(self.agent, self._state, State.TASK_STATE_WORKING)
        self._note_approved([*answers, *self.pending_approvals.answers(since=self.turn + 1)])
        started = event_pb2.TurnStarted(message=message, turn=self.turn + 1)
        started.traceparent = telemetry.current_traceparent()
        started.user_statement = stored_statement()
        started.message.context_id = self.context_id
        self._state = State.TASK_STATE_WORKING
        await self._emitter.write_now(
            *(event_pb2.Event(approval_answered=answer) for answer in answers),
            event_pb2.Event(turn_started=started),
            build_status_event(self._state),
        )

    def _note_approved(self, answers: Sequence[event_pb2.ApprovalAnswered]) -> None:
        """Let a statement that this process signs in this turn name the calls that were approved.

        The answer came from a process of the mesh's owner if it has no statement.
        """
        digests = frozenset(answer.call_digest for answer in answers if answer.call_digest)
        if digests and not current_statement():
            current_user.set(User(self.account, self.caller, approved=digests))

    async def record_answer(self, answer: event_pb2.ApprovalAnswered) -> None:
        """Journal the answer to an approval for the next turn to act on. For the host only."""
        self.pending_approvals.seal(answer, turn=self.turn + 1)
        await self.record(event_pb2.Event(approval_answered=answer))

    async def start_attempt(self, drafts: Sequence[Draft]) -> None:
        """Journal that the turn runs again. For the host only.

        First ends the tool calls of the last attempt. `drafts` rewind its artifacts.
        """
        emitter = await self._begin()
        self._finish_calls(HOST_STOPPED)
        self._state = _WORKING
        event = build_status_event(_WORKING)
        text = f"its host stopped; this is attempt {self.attempt}"
        message = build_agent_message(text, task_id=self.id, context_id=self.context_id)
        event.status.status.message.CopyFrom(message)
        update_struct(event.status.metadata, {ATTEMPT_KEY: self.attempt})
        emitter.put(event, hold=True)
        emitter.put_drafts(drafts)
        await emitter.commit()

    @property
    def is_lost(self) -> bool:
        """True if a write failed because another host owns the task, or this one shuts down."""
        return isinstance(self._emitter.error, FencedError | JournalUnavailableError)

    @property
    def exists(self) -> bool:
        """True if the task is in the journal. False while a direct reply is possible."""
        return self._exists

    def create(self) -> Awaitable[None] | None:
        """Write the task unless that was begun; return what the first event has to wait for."""
        create, self._create = self._create, None
        self._exists |= create is not None
        return None if create is None else create()

    @property
    def has_artifacts(self) -> bool:
        """True if the task may have artifacts."""
        return bool(self.latest.artifacts) or self._ids.has_artifacts

    def approved_calls(self) -> Sequence[str]:
        """Return the names of the tools of running calls that a person approved."""
        return [
            call.tool
            for call in self._open_calls.values()
            if self.pending_approvals.find(call.id.partition("/")[0]) is not None
        ]

    async def flush(self) -> None:
        """Wait until all events are in the journal.

        Raises:
            FencedError: the host has lost the task.
            JournalUnavailableError: the journal can't be written.
        """
        await self._emitter.commit()

    def begin_cancel(self) -> None:
        """Refuse further writes of the agent. For the host only."""
        self._is_canceling = True
        # Frees the waiter that the callback refers to: no task is created any more.
        self._create = None

    async def end(self, state: task_pb2.TaskState.ValueType, reason: str) -> None:
        """End the task in place of its agent. For the host only."""
        self._is_canceling = self._is_over = False
        self._finish_calls("the task was ended")
        await self.enter(state, reason or None)

    def _finish_calls(self, summary: str) -> None:
        """End the open tool calls as errors."""
        calls, self._open_calls = self._open_calls, {}
        for call in calls.values():
            call.is_error = True
            call.summary = call.summary or summary
            self._emitter.put(call.finished_event(), hold=True)

    def _add_approvals(self, change: event_pb2.StatusChanged) -> None:
        """Add the continuation and the question for pending approvals to a turn's last status."""
        change.continuation = self.pending_approvals.continuation
        if self.pending_approvals.is_open:
            message = change.status.message
            if not message.message_id:
                completed = build_agent_message(
                    message, task_id=self.id, context_id=self.context_id
                )
                message.CopyFrom(completed)
            self.pending_approvals.add_question(message, self.accepted_output_modes)

    async def _begin(self) -> Emitter:
        """Create the task unless it exists; return the emitter."""
        self._check_open()
        if (created := self.create()) is not None:
            await created
        return self._emitter

    async def _begin_work(self) -> Emitter:
        """Enter `working` before the first write of a turn; return the emitter."""
        if self._state == _WORKING and self._create is None:
            self._check_open()
            return self._emitter
        emitter = await self._begin()
        if self._state != State.TASK_STATE_WORKING:
            check_transition(self.agent, self._state, State.TASK_STATE_WORKING)
            self._state = State.TASK_STATE_WORKING
            emitter.put(build_status_event(self._state), hold=True)
        return emitter

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidAgentResponseError(self.agent, "it wrote after the end of its turn")
        if self._is_canceling or self.pause.is_leaving:
            raise InvalidAgentResponseError(self.agent, "it wrote after it was canceled")
