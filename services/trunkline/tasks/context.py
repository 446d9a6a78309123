"""What an agent's code sees of its task, and all it can do to it: the `task` of an agent."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from trunkline.errors import InvalidAgentResponseError
from trunkline.journal.events import splice
from trunkline.tasks.content import Content, agent_message, now, struct, text_of
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, check_transition
from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_pb2,
)


class TaskContext:
    """One turn of one task, as its agent sees it.

    Whatever is emitted is journaled in the order of the calls. After the turn has ended, nothing
    more can be emitted. Only one turn of a task runs at a time, on one host.
    """

    def __init__(
        self,
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        emitter: Emitter,
        *,
        forwarded: Mapping[str, int] | None = None,
        create: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start from the fold at the start of the turn.

        `forwarded` is the last sequence that the task has taken over, by the task that wrote it.
        `create` makes the task exist, if it does not yet; that of a direct reply never does.
        """
        self.snapshot = snapshot
        self.message = message
        self.reply_message: message_pb2.Message | None = None
        """The direct reply, if there was one."""
        self._emitter = emitter
        self._create = create
        self._state = snapshot.task.status.state
        self._is_over = False
        self._is_canceling = False
        self._artifacts = len(snapshot.artifacts)
        self._plans = len(snapshot.plans)
        self._calls = len(snapshot.tool_calls)
        self._forwarded = dict(forwarded or {})

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
        """Name of the agent that runs."""
        return self.snapshot.agent

    @property
    def account(self) -> str:
        """Whom the caller belongs to."""
        return self.snapshot.account

    @property
    def caller(self) -> str:
        """The caller within the account."""
        return self.snapshot.caller

    @property
    def turn(self) -> int:
        """Counts the task's messages, from 1."""
        return self.snapshot.turn

    @property
    def deadline(self) -> datetime | None:
        """When the task ends at the latest, in UTC."""
        if not self.snapshot.HasField("deadline"):
            return None
        return self.snapshot.deadline.ToDatetime(tzinfo=UTC)

    @property
    def text(self) -> str:
        """The text parts of this turn's message, joined by a space."""
        return text_of(self.message)

    @property
    def history(self) -> Sequence[message_pb2.Message]:
        """The messages of the task up to and including this turn's, oldest first."""
        return self.snapshot.task.history

    @property
    def path(self) -> tuple[str, ...]:
        """Agents from the root of the request down to this one."""
        return (*self.snapshot.parent.path, self.agent)

    @property
    def state(self) -> task_pb2.TaskState.ValueType:
        """The state the task is in."""
        return self._state

    @property
    def is_over(self) -> bool:
        """The turn has ended or is being stopped; the agent can emit nothing more."""
        return self._is_over or self._is_canceling

    async def working(self, text: str | None = None) -> None:
        """Say that the work is under way, or how it is getting on."""
        await self._set_state(State.TASK_STATE_WORKING, text)

    async def complete(self, message: Content | None = None) -> None:
        """End the task with success."""
        await self._set_state(State.TASK_STATE_COMPLETED, message)

    async def fail(self, message: Content | None = None) -> None:
        """End the task with an error that the message explains."""
        await self._set_state(State.TASK_STATE_FAILED, message)

    async def reject(self, message: Content | None = None) -> None:
        """End the task because the agent won't do it."""
        await self._set_state(State.TASK_STATE_REJECTED, message)

    async def require_input(self, message: Content | None = None) -> None:
        """End the turn with a question; the answer is the next turn's message."""
        await self._set_state(State.TASK_STATE_INPUT_REQUIRED, message)

    async def require_auth(self, message: Content | None = None) -> None:
        """End the turn because credentials are needed; the message says which."""
        await self._set_state(State.TASK_STATE_AUTH_REQUIRED, message)

    async def reply(self, message: Content) -> None:
        """Answer with a message instead of a task.

        Raises:
            InvalidAgentResponseError: something was emitted before, or the agent isn't declared
                with direct_replies.
        """
        if self._create is None:
            raise InvalidAgentResponseError(
                self.agent, "a direct reply needs direct_replies and must come before anything else"
            )
        self._check_open()
        self.reply_message = agent_message(message, task_id="", context_id=self.context_id)
        self._is_over = True

    def artifact(
        self,
        name: str = "",
        *,
        id: str = "",  # noqa: A002 - the name authors expect
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        kind: event_pb2.ArtifactKind.ValueType = event_pb2.ARTIFACT_KIND_UNSPECIFIED,
    ) -> ArtifactWriter:
        """Return a new artifact to write to. It exists from its first append on."""
        self._artifacts += 1
        start = event_pb2.ArtifactStart(
            name=name, description=description, metadata=struct(metadata), kind=kind
        )
        artifact_id = id or f"artifact-{self._artifacts}"
        return ArtifactWriter(self._begin_work, self.agent, artifact_id, start)

    def plan(self) -> PlanWriter:
        """Return a new plan to write to."""
        self._plans += 1
        return PlanWriter(self._begin_work, f"plan-{self._plans}")

    @asynccontextmanager
    async def tool(
        self, name: str, arguments: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ToolCall]:
        """Record a tool call: its start on entering, its end on leaving, whatever happens inside.

        Set `summary` and `is_error` of what is yielded; an exception makes it an error.
        """
        self._calls += 1
        call = ToolCall(f"call-{self._calls}", name)
        started = event_pb2.ToolStarted(call_id=call.id, tool=name, arguments=struct(arguments))
        (await self._begin_work()).put(event_pb2.Event(tool_started=started))
        try:
            yield call
        except BaseException as error:
            call.is_error = True
            call.summary = call.summary or f"{name} did not finish ({type(error).__name__})"
            raise
        finally:
            finished = event_pb2.ToolFinished(
                call_id=call.id, tool=name, is_error=call.is_error, summary=call.summary
            )
            self._emitter.put(event_pb2.Event(tool_finished=finished))

    async def record(self, *events: event_pb2.Event) -> None:
        """Put typed facts in the journal; they are there when this returns.

        While the task is being canceled that still works: what was done is to be known.
        """
        emitter = self._emitter if self._is_canceling else await self._begin_work()
        emitter.put(*events)
        await emitter.commit()

    async def forward(self, sealed: bytes, *, agent: str) -> None:
        """Append what a sealed batch of `agent`'s task adds to artifacts, under its origin.

        What was forwarded before is left out, so a child's stream may be read again.
        """
        drafts = splice(sealed, agent=agent, known=self._forwarded)
        if drafts:
            (await self._begin_work()).put_drafts(drafts)
            await self._emitter.make_room()

    def child_submission(self, task_id: str) -> message_service_pb2.Submission:
        """Return the submission of a child: same caller, same deadline, this task as parent."""
        submission = message_service_pb2.Submission(
            account=self.account,
            caller=self.caller,
            task_id=task_id,
            priority=self.snapshot.priority,
            parent=event_pb2.ParentTask(task_id=self.id, agent=self.agent, path=self.path),
        )
        if self.snapshot.HasField("deadline"):
            submission.deadline.CopyFrom(self.snapshot.deadline)
        return submission

    async def open_turn(self, message: message_pb2.Message) -> None:
        """Journal that the message opens the task's next turn. For the host only."""
        emitter = await self._begin()
        check_transition(self.agent, self._state, State.TASK_STATE_WORKING)
        started = event_pb2.TurnStarted(message=message, turn=self.turn + 1)
        started.message.context_id = self.context_id
        emitter.put(event_pb2.Event(turn_started=started), hold=True)
        await self._set_state(State.TASK_STATE_WORKING, None)

    def begin_cancel(self) -> None:
        """Take nothing more from the agent: it is being stopped. For the host only."""
        self._is_canceling = True

    async def end(self, state: task_pb2.TaskState.ValueType, reason: str) -> None:
        """End the task over the agent's head. For the host only."""
        self._is_canceling = self._is_over = False
        await self._set_state(state, reason or None)

    async def _set_state(
        self, state: task_pb2.TaskState.ValueType, message: Content | None
    ) -> None:
        emitter = await self._begin()
        check_transition(self.agent, self._state, state)
        event = _status_event(state)
        if message is not None:
            said = agent_message(message, task_id=self.id, context_id=self.context_id)
            event.status.status.message.CopyFrom(said)
        self._state = state
        self._is_over = state in TERMINAL or state in INTERRUPTED
        emitter.put(event)
        await emitter.commit()

    async def _begin(self) -> Emitter:
        """Make the task exist, if it doesn't."""
        self._check_open()
        if self._create is not None:
            create, self._create = self._create, None
            await create()
        return self._emitter

    async def _begin_work(self) -> Emitter:
        """Working is implied before the first thing that is written."""
        emitter = await self._begin()
        if self._state != State.TASK_STATE_WORKING:
            check_transition(self.agent, self._state, State.TASK_STATE_WORKING)
            self._state = State.TASK_STATE_WORKING
            emitter.put(_status_event(self._state), hold=True)
        return emitter

    def _check_open(self) -> None:
        if self._is_over:
            raise InvalidAgentResponseError(self.agent, "it emitted something after the turn's end")
        if self._is_canceling:
            raise InvalidAgentResponseError(self.agent, "it went on after it was canceled")


def _status_event(state: task_pb2.TaskState.ValueType) -> event_pb2.Event:
    status = task_pb2.TaskStatus(state=state, timestamp=now())
    return event_pb2.Event(status=event_pb2.StatusChanged(status=status))
