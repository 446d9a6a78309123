"""Calls one child task, follows it over broken connections, and cancels it with its parent.

A `ChildReader` takes what the child writes: a supervisor forwards it to its own journal, and the
author of an agent gets it as the answer.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from trunkline.calls.outcome import MAX_TEXT_CHARS, Outcome, shorten
from trunkline.calls.transcript import Transcript
from trunkline.client import Directory, TaskStream
from trunkline.client.idle_timeout import IdleTimeout
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
from trunkline.settings import Settings
from trunkline.tasks.content import message_text
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, tree_pb2

# Shorter than the grace period of a canceled turn.
_CANCEL_S = 1.5
_MIB = 1024 * 1024
_TEXT = EventKind.DELTA.bit


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """The limits of a parent for one child. Times are in seconds."""

    idle_s: float = 300.0
    """A child that sends nothing for this long, not even a status, is canceled."""
    patience_s: float = 3.0
    """The time that a child's host may be away, for a restart or a takeover."""
    resume_patience_s: float = 20.0
    """The same for a child called in an earlier turn, or before the parent's host was lost. The
    whole mesh may be starting then, and giving up would lose the child's work."""
    content_bytes: int = 16 * _MIB
    """The limit of what a child may send in a turn."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the limits of a mesh with these settings.

        If a child's host is lost, another takes the child over within two leases, or it fails.
        """
        return cls(patience_s=2.5 * settings.lease_s)


class ChildReader(Protocol):
    """Takes what a child writes in one turn, after the transcript has checked it."""

    def start(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        """Start at a snapshot of the child, or at its first event."""

    def has_all(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return True if nothing before the snapshot is missing."""

    @property
    def can_take_now(self) -> bool:
        """True if a batch of text can be taken without waiting."""

    def take_now(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Take a batch of text without waiting. Requires `can_take_now`."""

    async def take(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Take a batch."""

    async def take_reply(self, message: message_pb2.Message) -> None:
        """Take a direct reply."""


class ArtifactForwarder:
    """Forwards a child's artifacts to its parent's journal."""

    def __init__(self, task: TurnRuntime, agent: str, child_id: str) -> None:
        self._task = task
        self._agent = agent
        self._child_id = child_id

    def start(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        """Do nothing: the journal knows the events that were forwarded before."""

    def has_all(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return True if the parent's journal has all artifacts of the child."""
        own_artifacts = {
            (info.origin.task_id, info.artifact_id) for info in self._task.latest.artifacts
        }
        return all(
            (info.origin.task_id or self._child_id, info.artifact_id) in own_artifacts
            for info in snapshot.artifacts
        )

    @property
    def can_take_now(self) -> bool:
        """True if the parent's journal does not have to wait."""
        return self._task.can_forward_now

    def take_now(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Forward a batch of text."""
        self._task.forward_now(sealed, batch.header, agent=self._agent)

    async def take(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Forward a batch."""
        await self._task.forward(sealed, agent=self._agent)

    async def take_reply(self, message: message_pb2.Message) -> None:
        """Write the files of a direct reply as an artifact of the parent."""
        files = [part for part in message.parts if not part.HasField("text")]
        if files:
            # It has its own id, because a repeated turn numbers its artifacts anew.
            artifact = self._task.artifact(
                self._agent, id=f"reply-{self._child_id}", is_answer=False
            )
            for part in files:
                await artifact.append(part, last=part is files[-1])


class ChildTask:
    """A child task during one turn of its parent."""

    def __init__(  # noqa: PLR0913  collaborators and options, each by name
        self,
        task: TurnRuntime,
        directory: Directory,
        *,
        agent: str,
        task_id: str,
        limits: ChildLimits,
        reader: ChildReader | None = None,
        is_detached: Callable[[], bool] | None = None,
    ) -> None:
        """By default the child's artifacts are forwarded to the parent's journal.

        If `is_detached` returns True, a cancellation ends the call and not the child.
        """
        self.id = task_id
        self.agent = agent
        self.error: TrunklineError | None = None
        """The error that ended the call, if any."""
        self._task = task
        self._directory = directory
        self._agent = agent
        self._reader = reader or ArtifactForwarder(task, agent, task_id)
        self._check_detached = is_detached
        self._limits = limits
        self._patience_s = limits.patience_s
        self._transcript: Transcript | None = None
        self._bytes = 0
        # The error of a batch that was rejected while the reader of the stream waited.
        self._rejection: Exception | None = None

    @property
    def is_detached(self) -> bool:
        """True if a cancellation now ends the call and not the child."""
        return self._check_detached is not None and self._check_detached()

    @property
    def usage(self) -> tree_pb2.TreeUsage | None:
        """The usage of the child and the tasks below it, as far as it reported."""
        return None if self._transcript is None else self._transcript.usage

    async def run(self, message: message_pb2.Message, *, is_retry: bool = False) -> Outcome:
        """Send the child its message, and read what it writes until its turn ends.

        A message with the child's id opens the next turn of a waiting child. `is_retry` is
        True if an earlier attempt of the parent may have called the child: then its message is not
        sent twice. Cancellation cancels the child.

        Raises:
            TrunklineError: the child can't be reached, was idle too long, or sent too much or
                invalid events. It was canceled, if it could be reached.
        """
        try:
            async with IdleTimeout(self._limits.idle_s) as idle:
                return await self._send_and_follow(message, idle, is_retry=is_retry)
        except TimeoutError:
            await self._cancel()
            problem = f"nothing came for {self._limits.idle_s:g} s, so it was canceled"
            raise PeerTimeoutError(f"agent {self._agent!r}", problem) from None
        except (asyncio.CancelledError, TrunklineError):
            await self._cancel()
            raise

    async def _send_and_follow(
        self, message: message_pb2.Message, idle: IdleTimeout, *, is_retry: bool
    ) -> Outcome:
        """Send the message and follow the child, from its start if we lack some of its events.

        A new child's message may be sent twice, because it attaches to the task that it created. An
        answer to a question must not be sent twice, because it could answer the next question. If
        the question was answered by another client, the child is read to its end.
        """
        if is_retry or message.task_id:
            await self._wait_for_host()
        if is_retry and await self._has_arrived(message):
            return await self._read_from_start(message, idle)
        submission = self._task.child_submission("" if message.task_id else self.id)
        submission.approval_statements.extend(
            self._task.pending_approvals.statements_for(self.id, turn=self._task.number)
        )
        call = self._directory.submit(
            self._agent,
            message=message,
            submission=submission,
            patience_s=self._patience_s,
        )
        try:
            async with call as stream:
                if stream.message is not None:
                    return await self._use_direct_reply(stream.message)
                snapshot = stream.snapshot
                if snapshot is not None and not self._lacks_events(snapshot):
                    self._reader.start(snapshot)
                    return await self._follow_stream(
                        stream, Transcript(self.id, self._agent, snapshot), idle
                    )
        except TaskEndedError:
            if not message.task_id:
                raise
        return await self._read_from_start(message, idle)

    async def _wait_for_host(self) -> None:
        """Wait for the host of a child called earlier. It may start later than ours."""
        self._patience_s = self._limits.resume_patience_s
        with contextlib.suppress(PeerError):
            await self._directory.wait_until(self._is_served, timeout_s=self._patience_s)
        if not self._is_served(self._directory):
            problem = "its host is not on the mesh; start it again"
            raise PeerUnavailableError(f"agent {self._agent!r}", problem)

    async def _has_arrived(self, message: message_pb2.Message) -> bool:
        """Return whether an earlier attempt sent the message, by the ids in the child's history."""
        watch = self._directory.watch(
            self.id, account=self._task.account, patience_s=self._patience_s
        )
        try:
            async with watch as stream:
                history = stream.snapshot.task.history if stream.snapshot is not None else ()
                return any(earlier.message_id == message.message_id for earlier in history)
        except TaskNotFoundError:
            if message.task_id:
                raise
            return False

    def _is_served(self, mesh: Directory) -> bool:
        journal_id = parse_journal_id(self.id)
        return any(journal_id in host.journal_ids for host in mesh.hosts)

    def _lacks_events(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return whether the child has events that we lack, because an earlier call reached it."""
        pending_approvals = self._task.pending_approvals
        if any(
            pending_approvals.find(approval.requested.approval_id) is None
            for approval in snapshot.approvals
        ):
            return True
        return not self._reader.has_all(snapshot)

    async def _read_from_start(self, message: message_pb2.Message, idle: IdleTimeout) -> Outcome:
        """Read the child from its start. A reader that has some of its events skips them."""
        self._reader.start(None)
        transcript = Transcript(self.id, self._agent, message_id=message.message_id)
        watch = self._directory.watch(
            self.id, account=self._task.account, after=0, patience_s=self._patience_s
        )
        async with watch as stream:
            return await self._follow_stream(stream, transcript, idle)

    async def _follow_stream(
        self, stream: TaskStream, transcript: Transcript, idle: IdleTimeout
    ) -> Outcome:
        """Read a stream until the child's turn ends."""
        self._transcript = transcript
        if transcript.is_over:
            return transcript.outcome()
        stream.set_sink(lambda batches: self._take_texts(batches, transcript, idle))
        async for batches in stream:
            # The time that the reader takes does not count as idle time of the child.
            idle.pause()
            for sealed in batches:
                if self._rejection is not None:
                    raise self._rejection
                batch = transcript.parse_batch(sealed)
                transcript.apply_batch(batch)
                self._count_bytes(sealed)
                await self._reader.take(sealed, batch)
                if transcript.approval_events:
                    await self._forward_approvals(transcript)
                if transcript.is_over:
                    return transcript.outcome()
            idle.resume()
        raise PeerProtocolError(f"agent {self._agent!r}", "its stream ended before its task")

    def _take_texts(self, batches: list[bytes], transcript: Transcript, idle: IdleTimeout) -> int:
        """Take text batches at once, up to the first that has to wait; return their number."""
        count = 0
        try:
            while count < len(batches) and self._take_text(batches[count], transcript):
                count += 1
        except Exception as error:  # noqa: BLE001  any error is raised to the reader
            self._rejection = error
        idle.resume()
        return count

    def _take_text(self, sealed: bytes, transcript: Transcript) -> bool:
        """Take a batch of text only. Returns False if it has other events or has to wait."""
        size = len(sealed)
        if self._bytes + size > self._limits.content_bytes or not self._reader.can_take_now:
            return False
        batch = transcript.parse_batch(sealed)
        if batch.header.kinds != _TEXT:
            return False
        transcript.apply_batch(batch)
        self._bytes += size
        self._reader.take_now(sealed, batch)
        return True

    def _count_bytes(self, sealed: bytes) -> None:
        self._bytes += len(sealed)
        limit = self._limits.content_bytes
        if self._bytes > limit:
            problem = f"it sent more than {limit / _MIB:.3g} MiB in one turn; ask it for less"
            raise PeerProtocolError(f"agent {self._agent!r}", problem)

    async def _forward_approvals(self, transcript: Transcript) -> None:
        """Record the child's new approval requests and answers in the parent."""
        pending_approvals = self._task.pending_approvals
        events: list[event_pb2.Event] = []
        for event in transcript.approval_events:
            is_question = event.HasField("approval_requested")
            details = event.approval_requested if is_question else event.approval_answered
            approval = pending_approvals.find(details.approval_id)
            if is_question and approval is None:
                event.approval_requested.child_task_id = self.id
            elif not is_question and approval is not None and not approval.HasField("answered"):
                # The answer went to the child directly.
                event.approval_answered.turn = self._task.number
            else:
                continue
            pending_approvals.apply(event)
            events.append(event)
        transcript.approval_events = []
        if events:
            await self._task.record(*events)

    async def _use_direct_reply(self, message: message_pb2.Message) -> Outcome:
        """Use a direct reply as the answer."""
        await self._reader.take_reply(message)
        text = message_text(message)
        text = shorten(text, len(text), MAX_TEXT_CHARS, self._agent)
        return Outcome(
            self._agent,
            State.TASK_STATE_COMPLETED,
            text,
            tuple(part for part in message.parts if not part.HasField("text")),
            child_id=self.id,
            is_status_text=True,
        )

    async def _cancel(self) -> None:
        if self.is_detached:
            return
        if self._transcript is not None and self._transcript.is_over:
            return
        with contextlib.suppress(TrunklineError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._directory.client_for_task(self.id).cancel_task(
                    self.id, account=self._task.account, reason="its parent task ended"
                )
