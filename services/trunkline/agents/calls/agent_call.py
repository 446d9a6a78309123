"""The calls of other agents in one turn, by its code or by the plan of a supervisor.

Each call is a child task. The journal has the child before its message is sent, so a turn that runs
again finds the child, and follows it in place of a second one. A call is followed over broken
connections, canceled with its parent, and its outcome is recorded.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from opentelemetry.trace import SpanKind

from trunkline.agents.calls.child_readers import ArtifactForwarder, ChildReader
from trunkline.agents.calls.outcome import MAX_TEXT_CHARS, Outcome, failed_outcome, shorten
from trunkline.agents.calls.transcript import ALL_KINDS, Transcript
from trunkline.core.settings import Settings
from trunkline.errors import (
    PeerError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.events import EventKind, parse_journal_id
from trunkline.mesh.client import Directory, ResumingStream, allocate_task_id
from trunkline.mesh.client.idle_timeout import IdleTimeout
from trunkline.observe import telemetry
from trunkline.tasks.approvals import build_answer_message
from trunkline.tasks.content import message_text
from trunkline.tasks.lifecycle import State, state_name
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, tree_pb2

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

# Shorter than the grace period of a canceled turn.
_CANCEL_S: Final = 1.5
_MIB: Final = 1024 * 1024
_TEXT: Final = EventKind.DELTA.bit


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """The limits of a parent for one child. Times are in seconds."""

    idle_s: float = 300.0
    """A child that sends nothing for this long, not even a status, is canceled."""
    patience_s: float = 3.0
    """The time that the host of a child may be away, for a restart or a takeover."""
    resume_patience_s: float = 20.0
    """The time that the host of a child may be away if the child was called in an earlier turn, or
    before the host of the parent was lost. The whole mesh may be starting then, and giving up would
    lose the work of the child."""
    content_bytes: int = 16 * _MIB
    """The limit of what a child may send in a turn."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the limits of a mesh with these settings.

        If the host of a child is lost, another takes the child over within two leases, or the child
        fails.
        """
        return cls(patience_s=2.5 * settings.lease_s)


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A message for a child that is in the journal."""

    agent: str
    child_id: str
    message: message_pb2.Message
    """Opens the first turn of the child. With the id of the child it opens the next turn."""
    shown_text: str = ""
    """The message in the tool event of the parent."""
    is_repeated: bool = False
    """True if an earlier attempt may have sent the message, which is then not sent twice."""
    attributes: "Mapping[str, AttributeValue]" = field(default_factory=dict)
    """Further attributes of the span."""


class AgentCalls:
    """Makes the calls of one turn to other agents."""

    def __init__(
        self,
        turn: TurnRuntime,
        directory: Directory,
        limits: ChildLimits,
        *,
        is_detached: Callable[[], bool] = lambda: False,
    ) -> None:
        """If `is_detached` returns True, a cancellation ends a call and not its child."""
        self.turn = turn
        self.directory = directory
        self.limits = limits
        self.is_detached = is_detached
        self.children: dict[str, snapshot_pb2.ChildInfo] = {}
        """The children of the task by their ids, in the order of their calls."""
        for child in turn.latest.children:
            copy = self.children[child.started.task_id] = snapshot_pb2.ChildInfo()
            copy.CopyFrom(child)

    async def start(self, agent: str, *, step_id: str, shares: int = 1) -> snapshot_pb2.ChildInfo:
        """Start a child of the task, which is durable before anything is sent to the child.

        The child gets one of `shares` equal parts of what remains of the limits per request.

        Raises:
            AgentNotFoundError: no live host has the agent.
            PeerUnavailableError: the registry has not answered yet.
            TreeLimitError: nothing remains of the limits.
        """
        host = self.directory.choose_host(agent, context_id=self.turn.context_id)
        child_id = allocate_task_id(host)
        started = event_pb2.ChildStarted(
            task_id=child_id,
            agent=agent,
            step_id=step_id,
            budget=self.turn.tree.reserve(child_id, agent, shares=shares),
        )
        # Known before the first await: another call may have the same step.
        child = self.children[child_id] = snapshot_pb2.ChildInfo(started=started)
        await self.turn.record(event_pb2.Event(child_started=started))
        return child

    def build_answer(
        self, child_id: str, answers: Sequence[event_pb2.ApprovalAnswered], *, turn: int
    ) -> message_pb2.Message:
        """Return the message that passes the answers of a turn to approvals on to a child."""
        return build_answer_message(
            answers,
            message_id=f"{child_id}-{turn}",
            task_id=child_id,
            context_id=self.turn.context_id,
        )

    async def make(self, call: AgentCall, reader: ChildReader | None = None) -> Outcome:
        """Send a child its message, follow its turn, and record the outcome.

        By default, the artifacts of the child are forwarded to the journal of the parent. An error
        of the call is an outcome. A cancellation cancels the child.
        """
        turn, agent = self.turn, call.agent
        child = _ChildTurn(self, call, reader or ArtifactForwarder(turn, agent, call.child_id))
        attributes: dict[str, AttributeValue] = {
            telemetry.GEN_AI_OPERATION_NAME: telemetry.INVOKE_AGENT,
            telemetry.GEN_AI_PROVIDER_NAME: telemetry.TRUNKLINE,
            telemetry.GEN_AI_AGENT_NAME: agent,
            telemetry.GEN_AI_CONVERSATION_ID: turn.context_id,
            telemetry.TASK_ID: call.child_id,
            telemetry.PARENT_TASK_ID: turn.id,
            **call.attributes,
        }
        name = f"{telemetry.INVOKE_AGENT} {agent}"
        with telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes) as span:
            async with turn.tool(agent, {"message": call.shown_text}) as event:
                try:
                    outcome = await child.follow()
                except asyncio.CancelledError:
                    if self.is_detached():
                        event.summary = f"{agent}: still at work"
                        raise
                    event.summary = f"{agent}: canceled"
                    canceled = Outcome(agent, State.TASK_STATE_CANCELED, usage=child.usage)
                    await self._record_end(call, canceled, "")
                    raise
                except TrunklineError as error:
                    outcome = failed_outcome(
                        agent, error, child_id=call.child_id, usage=child.usage
                    )
                    telemetry.mark_error(span, error)
                else:
                    if outcome.is_failure:
                        telemetry.mark_error(span, state_name(outcome.state))
                event.is_error = outcome.is_failure
                event.summary = f"{agent}: {state_name(outcome.state)}"
        # The text of an answer is in its artifacts, unless it came as a status or a direct reply.
        is_recorded = outcome.is_status_text or not outcome.is_answer
        await self._record_end(call, outcome, outcome.text if is_recorded else "")
        return outcome

    async def read_again(self, call: AgentCall, reader: ChildReader) -> Outcome:
        """Read the turn of a child that has ended, for code that runs again. Records nothing."""
        try:
            return await _ChildTurn(self, call, reader).follow()
        except TrunklineError as error:
            return failed_outcome(call.agent, error, child_id=call.child_id)

    async def _record_end(self, call: AgentCall, outcome: Outcome, text: str) -> None:
        end = event_pb2.ChildFinished(
            task_id=call.child_id,
            agent=call.agent,
            state=outcome.state,
            text=text,
            usage=outcome.usage,
            partial=outcome.is_partial,
            failures_named=outcome.names_failures,
        )
        if (child := self.children.get(call.child_id)) is not None:
            child.finished.CopyFrom(end)
        await self.turn.record(event_pb2.Event(child_finished=end))


class _ChildTurn:
    """One turn of a child while its parent follows it."""

    def __init__(self, calls: AgentCalls, call: AgentCall, reader: ChildReader) -> None:
        """`reader` takes what the child writes."""
        self._calls = calls
        self._call = call
        self._message = call.message
        self._id = call.child_id
        self._peer = f"agent {call.agent!r}"
        self._reader = reader
        self._turn = calls.turn
        self._directory = calls.directory
        self._limits = calls.limits
        self._patience_s = calls.limits.patience_s
        self._idle = IdleTimeout(calls.limits.idle_s)
        self._transcript: Transcript | None = None
        self._bytes = 0
        # The error of a batch that was rejected while the reader of the stream waited.
        self._rejection: Exception | None = None

    @property
    def usage(self) -> tree_pb2.TreeUsage | None:
        """The usage of the child and of the tasks below it, as far as the child reported it."""
        return None if self._transcript is None else self._transcript.usage

    async def follow(self) -> Outcome:
        """Send the message, and read what the child writes until its turn ends.

        The child is read from its start if the reader lacks some events. The message of a new child
        may be sent twice, because it attaches to the task that it created. An answer to a question
        must not be sent twice, because it could answer the next question. If another client
        answered the question, the child is read to its end.

        Raises:
            TrunklineError: the child can't be reached, was idle too long, or sent too much or
                invalid events. It was canceled, if it could be reached.
        """
        message, is_repeated = self._message, self._call.is_repeated
        try:
            async with self._idle:
                if is_repeated or message.task_id:
                    await self._wait_for_host()
                if is_repeated and await self._has_arrived():
                    return await self._read_from_start()
                try:
                    async with self._submit() as stream:
                        if stream.message is not None:
                            return await self._use_direct_reply(stream.message)
                        snapshot = stream.snapshot
                        if snapshot is not None and not self._lacks_events(snapshot):
                            self._reader.start(snapshot)
                            transcript = Transcript(self._id, self._call.agent, snapshot)
                            return await self._read(stream, transcript)
                except TaskEndedError:
                    if not message.task_id:
                        raise
                return await self._read_from_start()
        except TimeoutError:
            await self._cancel()
            problem = f"nothing came for {self._limits.idle_s:g} s, so it was canceled"
            raise PeerTimeoutError(self._peer, problem) from None
        except (asyncio.CancelledError, TrunklineError):
            await self._cancel()
            raise

    def _submit(self) -> ResumingStream:
        """Return the stream that sends the message, to be entered."""
        message = self._message
        submission = self._turn.child_submission("" if message.task_id else self._id)
        submission.is_first_attempt = not (message.task_id or self._call.is_repeated)
        submission.approval_statements.extend(
            self._turn.pending_approvals.statements_for(self._id, turn=self._turn.number)
        )
        return self._directory.submit(
            self._call.agent, message=message, submission=submission, patience_s=self._patience_s
        )

    async def _wait_for_host(self) -> None:
        """Wait for the host of a child that was called earlier. It may start later than ours."""
        self._patience_s = self._limits.resume_patience_s
        with contextlib.suppress(PeerError):
            await self._directory.wait_until(self._is_served, timeout_s=self._patience_s)
        if not self._is_served(self._directory):
            problem = "its host is not on the mesh; start it again"
            raise PeerUnavailableError(self._peer, problem)

    async def _has_arrived(self) -> bool:
        """Return whether an earlier attempt sent the message, by the ids in the child's history."""
        watch = self._directory.watch(
            self._id, account=self._turn.account, patience_s=self._patience_s
        )
        try:
            async with watch as stream:
                history = stream.snapshot.task.history if stream.snapshot is not None else ()
                return any(each.message_id == self._message.message_id for each in history)
        except TaskNotFoundError:
            if self._message.task_id:
                raise
            return False

    def _is_served(self, mesh: Directory) -> bool:
        journal_id = parse_journal_id(self._id)
        return any(journal_id in host.journal_ids for host in mesh.hosts)

    def _lacks_events(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return whether the child has events that we lack, because an earlier call reached it."""
        pending_approvals = self._turn.pending_approvals
        if any(
            pending_approvals.find(approval.requested.approval_id) is None
            for approval in snapshot.approvals
        ):
            return True
        return not self._reader.has_all(snapshot)

    async def _read_from_start(self) -> Outcome:
        """Read the child from its start. A reader skips the events that it has."""
        self._reader.start(None)
        message_id = self._message.message_id
        transcript = Transcript(self._id, self._call.agent, message_id=message_id)
        watch = self._directory.watch(
            self._id, account=self._turn.account, after=0, patience_s=self._patience_s
        )
        async with watch as stream:
            return await self._read(stream, transcript)

    async def _read(self, stream: ResumingStream, transcript: Transcript) -> Outcome:
        """Read a stream until the turn of the child ends."""
        self._transcript = transcript
        if transcript.is_over:
            return transcript.outcome()
        stream.set_sink(partial(self._take_texts, transcript))
        async for batches in stream:
            # The time that the reader takes does not count as idle time of the child.
            self._idle.pause()
            for sealed in batches:
                if self._rejection is not None:
                    raise self._rejection
                self._take(sealed, transcript)
                await self._reader.make_room()
                if transcript.approval_events:
                    await self._forward_approvals(transcript)
                if transcript.is_over:
                    return transcript.outcome()
            self._idle.resume()
        raise PeerProtocolError(self._peer, "its stream ended before its task")

    def _take_texts(self, transcript: Transcript, batches: list[bytes]) -> int:
        """Take batches of text only, as they arrive; return their number.

        The first batch that has other events or has to wait is left to `_read`, with all batches
        after it.
        """
        count = 0
        try:
            for sealed in batches:
                if not (self._reader.has_room and self._take(sealed, transcript, kinds=_TEXT)):
                    break
                count += 1
        except Exception as error:  # noqa: BLE001  any error is raised to the reader
            self._rejection = error
        self._idle.resume()
        return count

    def _take(self, sealed: bytes, transcript: Transcript, *, kinds: int = ALL_KINDS) -> bool:
        """Take the next batch. Returns False if it has other kinds of events than `kinds`."""
        batch = transcript.apply(sealed, kinds=kinds)
        if batch is None:
            return False
        self._bytes += len(sealed)
        limit = self._limits.content_bytes
        if self._bytes > limit:
            problem = f"it sent more than {limit / _MIB:.3g} MiB in one turn; ask it for less"
            raise PeerProtocolError(self._peer, problem)
        self._reader.take(sealed, batch)
        return True

    async def _forward_approvals(self, transcript: Transcript) -> None:
        """Record the new approval requests and answers of the child in the parent."""
        pending_approvals = self._turn.pending_approvals
        events: list[event_pb2.Event] = []
        for event in transcript.approval_events:
            is_question = event.HasField("approval_requested")
            details = event.approval_requested if is_question else event.approval_answered
            approval = pending_approvals.find(details.approval_id)
            if is_question and approval is None:
                event.approval_requested.child_task_id = self._id
            elif not is_question and approval is not None and not approval.HasField("answered"):
                # The answer went to the child directly.
                event.approval_answered.turn = self._turn.number
            else:
                continue
            pending_approvals.apply(event)
            events.append(event)
        transcript.approval_events = []
        if events:
            await self._turn.record(*events)

    async def _use_direct_reply(self, message: message_pb2.Message) -> Outcome:
        await self._reader.take_reply(message)
        text = message_text(message)
        return Outcome(
            self._call.agent,
            State.TASK_STATE_COMPLETED,
            shorten(text, len(text), MAX_TEXT_CHARS, self._call.agent),
            tuple(part for part in message.parts if not part.HasField("text")),
            child_id=self._id,
            is_status_text=True,
        )

    async def _cancel(self) -> None:
        if self._calls.is_detached() or (self._transcript is not None and self._transcript.is_over):
            return
        with contextlib.suppress(TrunklineError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._directory.client_for_task(self._id).cancel_task(
                    self._id, account=self._turn.account, reason="its parent task ended"
                )
