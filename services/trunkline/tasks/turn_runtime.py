"""One turn of a task, for the host and for the mesh's own agents: `TaskContext` with more."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.store import ConversationKey, Ticket, Turn
from trunkline.core.json_values import build_struct, update_struct
from trunkline.core.users import (
    User,
    continue_for,
    current_statement,
    current_user,
    stored_statement,
)
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.batches import splice
from trunkline.journal.events import Draft
from trunkline.observe import telemetry
from trunkline.tasks.calls import TaskCalls, TurnInput
from trunkline.tasks.content import Content
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State, build_status_event, check_transition
from trunkline.tasks.rewind import ATTEMPT_KEY, Attempt
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.turn_state import OpenChildren, PendingApprovals, TurnPause
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_pb2,
)

if TYPE_CHECKING:
    from trunkline.tasks.resources import JournalResources

HOST_STOPPED: Final = "its host stopped"
"""The summary of a tool call whose host died before its end: its effect is unknown."""

_WORKING: Final = State.TASK_STATE_WORKING


class TurnRuntime(TaskContext[Any]):
    """One turn of a task, for the host, for the mesh's own agents, and for adapters of frameworks.

    The function of an agent gets the same object, as a `TaskContext`. A task runs at most one turn
    at a time, on one host.
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

        `message` opened the turn.
        `forwarded` has, by task id, the last sequence that was forwarded from each child.
        `attempt` is set when the turn runs again after a takeover.
        `create` writes the task. It is called before the first event, which waits for its result.
        Without `create` the task is in the journal. A direct reply, which `may_reply` allows, does
        not create the task.
        """
        super().__init__(
            resources, snapshot, message, attempt=attempt, create=create, may_reply=may_reply
        )
        self._forwarded = dict(forwarded or {})
        self._without_place: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    def without_place(self) -> AbstractAsyncContextManager[None]:
        """Let another turn of the agent run during a block in which this turn only waits."""
        return self._without_place()

    def set_place(self, leave: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Set what gives the place of this turn to another turn during a block."""
        self._without_place = leave

    # The turn and its request.

    @property
    def snapshot(self) -> snapshot_pb2.TaskSnapshot:
        """The task at the start of the turn."""
        return self._snapshot

    @property
    def latest(self) -> snapshot_pb2.TaskSnapshot:
        """The task at the start of this attempt, which may be later than the start of the turn."""
        return self._latest

    @property
    def number(self) -> int:
        """The number of the turn within the task, from 1.

        `turn`, `message`, `text` and `history` belong to an earlier turn if an answer to an
        approval continues the code of that turn. This number and `opening_message` do not.
        """
        return self._snapshot.turn

    @property
    def opening_message(self) -> message_pb2.Message:
        """The message that opened the turn."""
        return self._message

    @property
    def is_recovered(self) -> bool:
        """True if an earlier host stopped before the end of the turn."""
        return self._attempt is not None

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the agents from the root of the request down to this agent."""
        return (*self._snapshot.parent.path, self.agent)

    @property
    def tree(self) -> TaskTree:
        """The limits of the request for this task and the tasks below it, and their usage."""
        return self._get_tree()

    @property
    def meter(self) -> UsageMeter:
        """Checks and counts the models that the turn calls."""
        return self._get_meter()

    @property
    def memory(self) -> AgentMemory:
        """What the agents of the journal remember."""
        return self._resources.memory

    async def take_ticket(self, *, is_next: bool = False) -> Ticket:
        """Return the ticket of this turn, or of the next one, in the order of its conversation.

        The host of an agent with conversations takes the ticket before it stores the message that
        opens the turn. Repeating this is harmless. The host removes the ticket when the turn is
        over, so a task that waits for its user holds nobody up. The turns of one request run
        together, because each has its own question.

        Raises:
            FencedError: another host has the task.
            JournalUnavailableError: the tickets can't be read or written.
        """
        parent = self._snapshot.parent.task_id
        above = tuple(each.task_id for each in self._snapshot.tree.ancestors if each.task_id)
        key = ConversationKey(self.agent, self.context_id, self.account)
        ancestors = above or ((parent,) if parent else ())
        number = self.number + is_next
        return await self.memory.order.take_ticket(Turn(key, self.id, number, ancestors))

    def child_submission(self, task_id: str) -> message_service_pb2.Submission:
        """Return the submission of a child: same caller, same deadline, this task as parent.

        Without an id it is for the next turn of a child.
        """
        submission = message_service_pb2.Submission(
            account=self.account,
            caller=self.caller,
            task_id=task_id,
            priority=self._snapshot.priority,
            accepted_output_modes=self.accepted_output_modes,
            parent=event_pb2.ParentTask(task_id=self.id, agent=self.agent, path=self.path),
        )
        if task_id:
            submission.tree.CopyFrom(self.tree.position_of_child(task_id))
        if self._snapshot.HasField("deadline"):
            submission.deadline.CopyFrom(self._snapshot.deadline)
        return submission

    def continue_for_user(self) -> None:
        """Work for the task's user in the rest of this asyncio task, unless it does for one."""
        continue_for(self.account, self.caller, self._latest.user_statement)

    @contextmanager
    def use_calls(self, calls: TaskCalls, turn_input: TurnInput) -> Iterator[None]:
        """Let the function of the agent make calls in a block, in which the turn has this input."""
        self._calls, self._input = calls, turn_input
        try:
            yield
        finally:
            self._calls = None  # The calls refer to this object: a cycle.

    # The state of the turn.

    @property
    def state_value(self) -> task_pb2.TaskState.ValueType:
        """The current state of the task, as events have it."""
        return self._state

    @property
    def children(self) -> OpenChildren:
        """The children that have not ended."""
        return self._children

    @property
    def pending_approvals(self) -> PendingApprovals:
        """The approvals that the task and its children requested, and the answers."""
        return self._approvals

    @property
    def pause(self) -> TurnPause:
        """Says whether the task is paused, and whether the host leaves the turn to the next one."""
        return self._pause

    @property
    def reply_message(self) -> message_pb2.Message | None:
        """The direct reply of the agent, if any."""
        return self._reply_message

    @property
    def is_lost(self) -> bool:
        """True if a write failed because another host owns the task, or this host shuts down."""
        return isinstance(self._emitter.error, FencedError | JournalUnavailableError)

    @property
    def exists(self) -> bool:
        """True if the task is in the journal. False while a direct reply is possible."""
        return self._exists

    @property
    def has_artifacts(self) -> bool:
        """True if the task may have artifacts."""
        return bool(self._latest.artifacts) or self._ids.has_artifacts

    def is_answer(self, text: str) -> bool:
        """Return True if this attempt wrote an artifact of the answer that is exactly this text."""
        return any(answer.has_text(text) for answer in self._answers)

    def approved_calls(self) -> Sequence[str]:
        """Return the names of the tools of running calls that a person approved."""
        return [
            call.tool
            for call in self._open_calls.values()
            if self._approvals.find(call.id.partition("/")[0]) is not None
        ]

    # Writes that authors do not make.

    async def enter(
        self,
        state: task_pb2.TaskState.ValueType,
        message: Content | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Enter a state that another agent reported. `metadata` is merged into the task's.

        Raises:
            InvalidAgentResponseError: the turn is over, or the transition is illegal.
        """
        await self._enter(state, message, metadata=metadata)

    def artifact_of_kind(
        self,
        kind: event_pb2.ArtifactKind.ValueType,
        name: str = "",
        *,
        id: str = "",  # noqa: A002  as `artifact`
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        extensions: Sequence[str] = (),
    ) -> ArtifactWriter:
        """Return an artifact of a kind that supervisors and forwarders tell apart."""
        data = None if metadata is None else build_struct(metadata)
        start = event_pb2.ArtifactStart(
            name=name, description=description, metadata=data, kind=kind, extensions=extensions
        )
        return self._open_artifact(id, start)

    async def record(self, *events: event_pb2.Event, waits: bool = True) -> None:
        """Write events of children, approvals, plans and routes, also while the turn is stopped.

        They are durable afterwards if the call `waits`.
        """
        await self._record(*events, waits=waits)

    def forward(self, sealed: bytes, batch: event_pb2.EventBatch, *, agent: str) -> None:
        """Append the artifact deltas of a child's sealed batch, under their origin.

        `batch` is the sealed batch, parsed, and `agent` the child's agent. The child has to be in
        the journal. Deltas that were forwarded before are skipped, so a child's stream may be read
        again. Call `make_room` afterwards, or forward only while `has_room`.

        Raises:
            InvalidAgentResponseError: the turn is over, or was canceled.
            FencedError: the host has lost the task.
            JournalUnavailableError: the journal can't be written.
        """
        drafts = splice(sealed, batch, agent=agent, forwarded=self._forwarded)
        if drafts:
            self._check_open()
            self._emitter.put_drafts(drafts)

    @property
    def has_room(self) -> bool:
        """True unless more events wait for the journal than it may have to catch up with."""
        return not self._emitter.is_full

    async def make_room(self) -> None:
        """Wait until the turn has room for more events."""
        await self._emitter.make_room()

    async def flush(self) -> None:
        """Wait until all events are in the journal.

        Raises:
            FencedError: the host has lost the task.
            JournalUnavailableError: the journal can't be written.
        """
        await self._emitter.commit()

    def on_end(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call and await a function when the task's end is durable, also an end by the host."""
        self._end_callbacks.append(callback)

    # The control of the host.

    def create(self) -> Awaitable[None] | None:
        """Write the task unless that was begun; return what the first event has to wait for."""
        return self._begin_creation()

    async def open_turn(self, message: message_pb2.Message) -> None:
        """Journal the start of the next turn and the approvals that its message answers.

        All events are in one commit.

        Raises:
            JournalUnavailableError: the journal can't be written; nothing has changed.
            InvalidArgumentError, ApprovalNotFoundError, ApprovalAnsweredError: an answer to an
                approval is not valid.
        """
        answers = self._approvals.parse_answers(message, turn=self.number + 1)
        check_transition(self.agent, self._state, State.TASK_STATE_WORKING)
        self._note_approved([*answers, *self._approvals.answers(since=self.number + 1)])
        started = event_pb2.TurnStarted(message=message, turn=self.number + 1)
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
        """Journal the answer to an approval for the next turn to act on."""
        self._approvals.seal(answer, turn=self.number + 1)
        await self.record(event_pb2.Event(approval_answered=answer))

    async def start_attempt(self, drafts: Sequence[Draft]) -> None:
        """Journal that the turn runs again.

        First ends the tool calls of the last attempt. `drafts` rewind its artifacts.
        """
        emitter = await self._begin()
        self._finish_calls(HOST_STOPPED)
        self._state = _WORKING
        text = f"its host stopped; this is attempt {self.attempt}"
        event = self._build_status(_WORKING, text)
        update_struct(event.status.metadata, {ATTEMPT_KEY: self.attempt})
        emitter.put(event, hold=True)
        emitter.put_drafts(drafts)
        await emitter.commit()

    def begin_cancel(self) -> None:
        """Refuse further writes of the agent."""
        self._is_canceling = True
        # Frees the waiter that the callback refers to: no task is created any more.
        self._create = None

    async def end(self, state: task_pb2.TaskState.ValueType, reason: str) -> None:
        """End the task in place of its agent."""
        self._is_canceling = self._is_over = False
        self._finish_calls("the task was ended")
        await self._enter(state, reason or None)


def get_turn_runtime(task: TaskContext[Any]) -> TurnRuntime:
    """Return the turn for its host, for adapters of frameworks and protocols."""
    assert isinstance(task, TurnRuntime)  # noqa: S101  the host builds no other
    return task
