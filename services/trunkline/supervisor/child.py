"""Calls one child task, follows it over broken connections, and cancels it with its parent."""

import asyncio
import contextlib
from dataclasses import dataclass

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
from trunkline.supervisor.steps import Outcome, shorten
from trunkline.supervisor.transcript import MAX_TEXT_CHARS, Transcript
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
    """A supervisor's limits for one child. Times are in seconds."""

    idle_s: float = 300.0
    """A child that sends nothing for this long, not even a status, is canceled."""
    patience_s: float = 3.0
    """The time that a child's host may be away, for a restart or a takeover."""
    resume_patience_s: float = 20.0
    """The same for a child called in an earlier turn, or before the parent's host was lost. The
    whole mesh may be starting then, and giving up would lose the child's work."""
    content_bytes: int = 16 * _MIB
    """The limit of what a child may send in a turn. The parent's journal stores it too."""


class ChildTask:
    """A child task during one turn of its parent."""

    def __init__(
        self,
        task: TurnRuntime,
        directory: Directory,
        *,
        agent: str,
        task_id: str,
        limits: ChildLimits,
    ) -> None:
        self.id = task_id
        self._task = task
        self._directory = directory
        self._agent = agent
        self._limits = limits
        self._patience_s = limits.patience_s
        self._transcript: Transcript | None = None
        self._bytes = 0
        # The error of a batch that was rejected while it was forwarded.
        self._rejection: Exception | None = None

    @property
    def usage(self) -> tree_pb2.TreeUsage | None:
        """The usage of the child and the tasks below it, as far as it reported."""
        return None if self._transcript is None else self._transcript.usage

    async def run(self, message: message_pb2.Message, *, is_retry: bool = False) -> Outcome:
        """Send the child its message, and forward its artifacts until its turn ends.

        A message with the child's id opens the next turn of a waiting child. `is_retry` is
        True if an earlier attempt of the parent may have called the child: then its message is not
        sent twice, and its events are not forwarded twice. Cancellation cancels the child.

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
        submission.approval_statements.extend(self._task.statements_of_answers(self.id))
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
        own_artifacts = {
            (info.origin.task_id, info.artifact_id) for info in self._task.latest.artifacts
        }
        pending_approvals = self._task.pending_approvals
        if any(
            pending_approvals.find(approval.requested.approval_id) is None
            for approval in snapshot.approvals
        ):
            return True
        return any(
            (info.origin.task_id or self.id, info.artifact_id) not in own_artifacts
            for info in snapshot.artifacts
        )

    async def _read_from_start(self, message: message_pb2.Message, idle: IdleTimeout) -> Outcome:
        """Read the child from its start. Events forwarded before are skipped."""
        transcript = Transcript(self.id, self._agent, message_id=message.message_id)
        watch = self._directory.watch(
            self.id, account=self._task.account, after=0, patience_s=self._patience_s
        )
        async with watch as stream:
            return await self._follow_stream(stream, transcript, idle)

    async def _follow_stream(
        self, stream: TaskStream, transcript: Transcript, idle: IdleTimeout
    ) -> Outcome:
        """Forward a stream until the child's turn ends."""
        self._transcript = transcript
        if transcript.is_over:
            return transcript.outcome()
        stream.set_sink(lambda batches: self._forward_texts(batches, transcript, idle))
        async for batches in stream:
            # The time that our own journal takes does not count as idle time of the child.
            idle.pause()
            for sealed in batches:
                if self._rejection is not None:
                    raise self._rejection
                transcript.apply(sealed)
                await self._forward(sealed)
                if transcript.approval_events:
                    await self._forward_approvals(transcript)
                if transcript.is_over:
                    return transcript.outcome()
            idle.resume()
        raise PeerProtocolError(f"agent {self._agent!r}", "its stream ended before its task")

    def _forward_texts(
        self, batches: list[bytes], transcript: Transcript, idle: IdleTimeout
    ) -> int:
        """Forward text batches at once, up to the first that has to wait; return their number."""
        count = 0
        try:
            while count < len(batches) and self._forward_text(batches[count], transcript):
                count += 1
        except Exception as error:  # noqa: BLE001  any error is raised to the reader
            self._rejection = error
        idle.resume()
        return count

    def _forward_text(self, sealed: bytes, transcript: Transcript) -> bool:
        """Forward a batch of text only. Returns False if it has other events or has to wait."""
        size = len(sealed)
        if self._bytes + size > self._limits.content_bytes or not self._task.can_forward_now:
            return False
        batch = transcript.parse_batch(sealed)
        if batch.header.kinds != _TEXT:
            return False
        transcript.apply_batch(batch)
        self._bytes += size
        self._task.forward_now(sealed, batch.header, agent=self._agent)
        return True

    async def _forward(self, sealed: bytes) -> None:
        self._bytes += len(sealed)
        limit = self._limits.content_bytes
        if self._bytes > limit:
            problem = f"it sent more than {limit / _MIB:.3g} MiB in one turn; ask it for less"
            raise PeerProtocolError(f"agent {self._agent!r}", problem)
        await self._task.forward(sealed, agent=self._agent)

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
                event.approval_answered.turn = self._task.turn
            else:
                continue
            pending_approvals.apply(event)
            events.append(event)
        transcript.approval_events = []
        if events:
            await self._task.record(*events)

    async def _use_direct_reply(self, message: message_pb2.Message) -> Outcome:
        """Use a direct reply as the answer. Its files become an artifact of the parent."""
        files = [part for part in message.parts if not part.HasField("text")]
        if files:
            # It has its own id, because a repeated turn numbers its artifacts anew.
            artifact = self._task.artifact(
                self._agent, id=f"reply-{self.id}", kind=event_pb2.ARTIFACT_KIND_PROGRESS
            )
            for part in files:
                await artifact.append(part, last=part is files[-1])
        text = message_text(message)
        text = shorten(text, len(text), MAX_TEXT_CHARS, self._agent)
        return Outcome(
            self._agent,
            State.TASK_STATE_COMPLETED,
            text,
            tuple(files),
            child_id=self.id,
            is_status_text=True,
        )

    async def _cancel(self) -> None:
        if self._transcript is not None and self._transcript.is_over:
            return
        with contextlib.suppress(TrunklineError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._directory.client_for_task(self.id).cancel_task(
                    self.id, account=self._task.account, reason="its parent task ended"
                )
