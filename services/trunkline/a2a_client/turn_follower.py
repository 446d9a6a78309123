"""Follows one turn of a remote task to its end, across broken streams."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import Final, Protocol

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.errors import ConnectionLostError, NotProcessedError
from trunkline.a2a_client.transport import (
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    read_late_events,
)
from trunkline.core.task_states import INTERRUPTED, TERMINAL
from trunkline.errors import (
    PeerCircuitOpenError,
    PeerError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.mesh.client import Backoff
from trunkline.mesh.client.idle_timeout import IdleTimeout
from trunkline.v1 import task_pb2

logger = logging.getLogger(__name__)

# A stream without an event for so long may be dead, so it is opened again.
_STREAM_IDLE_S: Final = 60.0


class RemoteTaskView(Protocol):
    """The local view of a remote task, to which events are applied."""

    task_id: str
    """Empty until known."""
    is_known: bool
    """True after an event of this turn has named the task."""
    is_over: bool
    """True after the turn has ended."""
    change_count: int
    """Number of changes that were applied."""


class TurnFollower(ABC):
    """Sends the message of a turn and applies events to a view until the turn is over.

    A broken stream is resumed after its last event if the peer supports that. Otherwise the remote
    task is read, and the view adds the content that it lacks. The turn continues while the peer
    responds at least once in `patience_s`.
    """

    def __init__(
        self, peer: A2AClient, view: RemoteTaskView, *, message_id: str, may_have_arrived: bool
    ) -> None:
        """Prepare a turn; nothing is sent yet.

        Args:
            peer: The remote agent.
            view: The view of the remote task.
            message_id: The id of the turn's message, the same for each time that it is sent.
            may_have_arrived: An earlier process may have sent the message.
        """
        self._peer = peer
        self._view = view
        self._message_id = message_id
        self._event_id = ""
        # Events may have been missed or seen twice, so the task is read again at the end.
        self._may_have_gaps = False
        self._has_artifacts = False
        # The task as it was read after it had ended, while its last events may be missing.
        self._ended_task: task_pb2.Task | None = None
        # The peer can't stream a running task, so its state is polled.
        self._polls_only = False
        self._has_tried = False
        self._may_have_arrived = may_have_arrived
        # The reason why it is not known whether the message arrived.
        self._break = "the connection broke"
        # The time of the last response or event of the peer.
        self._last_heard_s = self._now()
        self._idle_timeout = IdleTimeout(peer.settings.idle_s)

    @abstractmethod
    async def _build_request(self) -> a2a_pb2.SendMessageRequest:
        """Return the request with the turn's message."""

    @abstractmethod
    def _call_options(self) -> CallOptions:
        """Return the options of the next call."""

    @abstractmethod
    async def _apply_event(self, event: RemoteEvent, *, is_first: bool) -> None:
        """Apply an event to the view. With `is_first`, it may have the state before the message."""

    async def _on_refusal(self, error: PeerRefusedError) -> None:
        """Handle that the peer refused the message. Raise the error, or end or resend the turn."""
        raise error

    async def _follow(self) -> None:
        """Send the message and apply events until the turn is over.

        Raises:
            TimeoutError: The peer sent nothing for `idle_s`.
            TrunklineError: The peer can't be reached, refused the message or broke the protocol.
        """
        async with self._idle_timeout:
            backoff = Backoff(first_s=0.2, limit_s=3.0)
            while not self._view.is_over:
                heard_s = self._last_heard_s
                error: TrunklineError
                try:
                    await self._attempt()
                    error = PeerUnavailableError(
                        self._peer.name, "its stream ended before its task"
                    )
                except (ConnectionLostError, PeerTimeoutError) as broken:
                    error = broken
                    self._may_have_arrived = True
                    self._break = broken.problem
                except PeerUnavailableError as away:
                    error = away
                    if not self._may_try_again(away):
                        raise
                if self._view.is_over:
                    return
                if self._last_heard_s > heard_s:
                    backoff.reset()
                elif self._now() - self._last_heard_s > self._peer.settings.patience_s:
                    raise error
                logger.info("remote.again", extra={"peer": self._peer.name, "reason": error.reason})
                self._has_tried = True
                await asyncio.sleep(max(_retry_after_s(error), backoff.next_s()))

    def _may_try_again(self, error: PeerUnavailableError) -> bool:
        """Return whether a turn continues after an error.

        An open breaker refuses a new turn at once, while a turn that has begun waits for the next
        probe.
        """
        if isinstance(error, PeerCircuitOpenError):
            return self._view.is_known or self._has_tried
        return self._view.is_known or isinstance(error, NotProcessedError)

    async def _attempt(self) -> None:
        """Send the message or resume the stream, and read until the turn or the stream ends."""
        if self._view.is_known or (self._may_have_arrived and await self._has_arrived()):
            await self._resume()
        else:
            await self._send()

    async def _has_arrived(self) -> bool:
        """Return whether the peer has the message that may have arrived before a failure.

        Raises:
            PeerUnavailableError: It can't be determined.
        """
        if not self._view.task_id:
            if self._peer.card.supports_resume:
                return False  # Sending the same message id again attaches to its task.
            problem = f"{self._break}; the message may have arrived, so it isn't sent again"
            raise PeerUnavailableError(self._peer.name, problem)
        self._may_have_gaps = True
        if self._is_first_turn:
            return True
        remote = await self._peer.get_task(self._view.task_id)
        # A task that does not wait for a message has taken it.
        return remote.status.state not in INTERRUPTED or any(
            message.message_id == self._message_id for message in remote.history
        )

    @property
    @abstractmethod
    def _is_first_turn(self) -> bool:
        """The turn's message starts the remote task."""

    def _send_options(self) -> CallOptions:
        """Return the options with which the message is sent."""
        return self._call_options()

    async def _send(self) -> None:
        """Send the message and read its stream."""
        try:
            request = await self._build_request()
            async with self._peer.stream_message(request, self._send_options()) as events:
                await self._read(events, is_beginning=True)
        except PeerRefusedError as error:
            if self._view.is_known:
                raise
            await self._on_refusal(error)

    async def _resume(self) -> None:
        """Resume the stream; if that is not possible, read the remote task."""
        task_id = self._view.task_id
        if self._event_id:
            try:
                options = self._call_options()._replace(last_event_id=self._event_id)
                async with self._peer.subscribe_to_task(task_id, options) as events:
                    has_events = await self._read(events)
            except PeerRefusedError:
                # The cursor is past retention, or the task has ended: read the task.
                self._event_id = ""
            else:
                if not has_events:
                    await self._end_without_events()
                return
        self._may_have_gaps = True
        if self._peer.card.supports_streaming and not self._polls_only:
            with contextlib.suppress(PeerRefusedError):
                async with self._peer.subscribe_to_task(task_id, self._call_options()) as events:
                    first = await anext(events, None)
                    if first is not None and first.response.HasField("task"):
                        await self._apply(first, is_first=True)
                        await self._read(events)
                        return
                    # Without a snapshot first, the missed events are unknown.
                    self._polls_only = first is not None
            if self._view.is_over:
                return
        before = self._view.change_count
        task = await self._peer.get_task(task_id)
        await self._apply_event(_snapshot_event(task), is_first=True)
        self._last_heard_s = self._now()
        if self._view.change_count != before:
            self._idle_timeout.resume()

    async def _end_without_events(self) -> None:
        """End the turn of a task that has ended and has no events after the last one.

        The stream was empty. If the task has ended by now, the next stream is opened after its end,
        so that neither stream misses events.
        """
        ended, self._ended_task = self._ended_task, None
        if ended is not None:
            await self._apply_event(_end_event(ended), is_first=False)
            return
        task = await self._peer.get_task(self._view.task_id)
        self._last_heard_s = self._now()
        if task.status.state in TERMINAL | INTERRUPTED:
            self._ended_task = task

    async def _read(self, events: RemoteEvents, *, is_beginning: bool = False) -> bool:
        """Apply events until the turn is over or the stream ends; return whether there were any."""
        is_first, has_events = is_beginning, False
        while not self._view.is_over:
            try:
                # Before the first event, the agent may be thinking.
                async with asyncio.timeout(None if is_first else _STREAM_IDLE_S):
                    event = await anext(events, None)
            except TimeoutError:
                problem = f"nothing came for {_STREAM_IDLE_S:g} s"
                raise PeerTimeoutError(self._peer.name, problem) from None
            if event is None:
                break
            if _is_end(event.response):
                event = await self._apply_late_events(event, events, is_first=is_first)
            await self._apply(event, is_first=is_first)
            is_first, has_events = False, True
        return has_events

    async def _apply_late_events(
        self, end: RemoteEvent, events: RemoteEvents, *, is_first: bool
    ) -> RemoteEvent:
        """Apply the artifacts that follow the end of the task; return the event that is the end.

        A stream that does not end soon may lack artifacts.
        """
        late_events = read_late_events(events, peer=self._peer.name)
        async with aclosing(late_events):
            while True:
                try:
                    event = await anext(late_events, None)
                except PeerError:
                    self._may_have_gaps = True
                    return end
                if event is None:
                    return end
                if event.response.HasField("task") and _is_end(event.response):
                    end = event
                elif event.response.HasField("artifact_update"):
                    if end.response.HasField("task"):
                        task = end.response.task
                        await self._apply(_snapshot_event(_as_working(task)), is_first=is_first)
                        end = _end_event(task)
                    await self._apply(event)

    async def _apply(self, event: RemoteEvent, *, is_first: bool = False) -> None:
        # A slow reader of ours must not count as idle time of the peer.
        self._last_heard_s = self._now()
        self._idle_timeout.pause()
        response = event.response
        is_end = _is_end(response)
        self._has_artifacts |= response.HasField("artifact_update") or (
            is_end and bool(response.task.artifacts)
        )
        if is_end and self._may_lack_artifacts(response):
            await self._verify_end(response)
        if not self._view.is_over:
            await self._apply_event(event, is_first=is_first)
        if self._peer.card.supports_resume:
            self._event_id = event.id or self._event_id
        self._idle_timeout.resume()

    def _may_lack_artifacts(self, end: a2a_pb2.StreamResponse) -> bool:
        """Return whether the task is read once more before its end is applied.

        An agent may store an artifact after it has reported the end. The resume extension promises
        the order of events.
        """
        if self._may_have_gaps and end.HasField("status_update"):
            return True
        return not (self._has_artifacts or self._peer.card.supports_resume)

    async def _verify_end(self, end: a2a_pb2.StreamResponse) -> None:
        """Read the remote task to add missing content. The reported end of the task is kept."""
        reported = end.task if end.HasField("task") else end.status_update
        task_id = self._view.task_id or end.task.id or end.status_update.task_id
        try:
            task = await self._peer.get_task(task_id)
        except PeerError:
            return
        task.status.CopyFrom(reported.status)
        if reported.HasField("metadata"):
            task.metadata.MergeFrom(reported.metadata)
        await self._apply_event(_snapshot_event(task), is_first=False)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _retry_after_s(error: TrunklineError) -> float:
    """Return the time in seconds before which trying again is useless."""
    if isinstance(error, PeerCircuitOpenError):
        return float(error.retry_after_s)
    return error.retry_after_s if isinstance(error, NotProcessedError) else 0.0


def _snapshot_event(task: task_pb2.Task) -> RemoteEvent:
    return RemoteEvent(a2a_pb2.StreamResponse(task=task))


def _end_event(task: task_pb2.Task) -> RemoteEvent:
    update = a2a_pb2.TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=task.status, metadata=task.metadata
    )
    return RemoteEvent(a2a_pb2.StreamResponse(status_update=update))


def _as_working(task: task_pb2.Task) -> task_pb2.Task:
    """Return a task that has ended as it was before its end."""
    working = task_pb2.Task()
    working.CopyFrom(task)
    working.status.Clear()
    working.status.state = task_pb2.TASK_STATE_WORKING
    return working


def _is_end(response: a2a_pb2.StreamResponse) -> bool:
    """Return whether an event is the end of the remote task: its status, or the whole task."""
    if response.HasField("task"):
        return response.task.status.state in TERMINAL
    return response.HasField("status_update") and response.status_update.status.state in TERMINAL
