"""Runs one turn of a task on a remote agent, across broken streams and takeovers."""

import asyncio
import base64
import contextlib
import hashlib
import logging
import uuid
from datetime import UTC, datetime
from typing import Final

from trunkline import TurnRuntime
from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import Backoff
from trunkline.client.idle_timeout import IdleTimeout
from trunkline.errors import (
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.task_states import TERMINAL
from trunkline.v1 import message_pb2
from trunkline_bridge.client.a2a_client import A2AClient
from trunkline_bridge.client.errors import ConnectionLostError, NotProcessedError
from trunkline_bridge.client.remote_files import FileReceiver, inline_files
from trunkline_bridge.client.task_mirror import TaskMirror
from trunkline_bridge.client.transport import CallOptions, RemoteEvent, RemoteEvents

logger = logging.getLogger(__name__)

# A stream without an event for so long may be dead, so it is opened again.
_STREAM_IDLE_S: Final = 60.0
# Refusals by a peer that doesn't know the context id.
_UNKNOWN_CONTEXT_REASONS: Final = frozenset(
    {"INVALID_PARAMS", "TASK_NOT_FOUND", "CONTEXT_NOT_FOUND"}
)
# The namespace of context ids derived from ours.
_CONTEXT_NAMESPACE: Final = uuid.UUID("6f1d7c52-9f0e-5a64-8d55-0f3f0f8d8f2b")


class RemoteTurn:
    """Runs one turn of a local task on a remote agent.

    A broken stream is resumed after its last event if the peer supports that. Otherwise the remote
    task is read, and content that the local task lacks is added. The turn continues while the peer
    responds at least once in `patience_s`.
    """

    def __init__(self, task: TurnRuntime, peer: A2AClient) -> None:
        self._task = task
        self._peer = peer
        self._mirror = TaskMirror(
            task,
            peer=peer.name,
            content_bytes=peer.settings.content_bytes,
            receive=FileReceiver(task, peer).receive,
        )
        self._message_id = f"{task.id}.{task.turn}"
        self._event_id = ""
        # Events may have been missed or seen twice, so the task is read again at the end.
        self._may_have_gaps = False
        # The peer can't stream a running task, so its state is polled.
        self._polls_only = False
        self._may_have_arrived = task.attempt > 1
        self._sends_context_id = True
        # The time of the last response or event of the peer.
        self._last_heard_s = self._now()
        self._idle_timeout = IdleTimeout(peer.settings.idle_s)

    async def run(self) -> None:
        """Run the turn to its end.

        Raises:
            TrunklineError: The remote agent can't be reached, refused the message, broke the
                protocol or sent nothing for `idle_s`. Its task is canceled with the local task.
        """
        limit_s = self._peer.settings.idle_s
        try:
            async with self._idle_timeout:
                await self._follow()
        except TimeoutError:
            problem = f"nothing came for {limit_s:g} s, so its task is canceled"
            raise PeerTimeoutError(self._peer.name, problem) from None

    async def _follow(self) -> None:
        """Send the message and apply events until the turn is over."""
        backoff = Backoff(first_s=0.2, limit_s=3.0)
        while not self._mirror.is_over:
            heard_s = self._last_heard_s
            error: TrunklineError
            try:
                await self._attempt()
                error = PeerUnavailableError(self._peer.name, "its stream ended before its task")
            except (ConnectionLostError, PeerTimeoutError) as broken:
                error = broken
                self._may_have_arrived = True
            except PeerUnavailableError as away:
                error = away
                if not (self._mirror.is_known or isinstance(away, NotProcessedError)):
                    raise  # The breaker is open.
            if self._mirror.is_over:
                return
            if self._last_heard_s > heard_s:
                backoff.reset()
            elif self._now() - self._last_heard_s > self._peer.settings.patience_s:
                raise error
            logger.info("remote.again", extra={"peer": self._peer.name, "reason": error.reason})
            pause_s = error.retry_after_s if isinstance(error, NotProcessedError) else 0.0
            await asyncio.sleep(max(pause_s, backoff.next_s()))

    async def _attempt(self) -> None:
        """Send the message or resume the stream, and read until the turn or the stream ends."""
        if self._mirror.is_known or (self._may_have_arrived and await self._has_arrived()):
            await self._resume()
        else:
            await self._send()

    async def _has_arrived(self) -> bool:
        """Return whether the peer has the message that may have arrived before a failure.

        Raises:
            PeerUnavailableError: It can't be determined.
        """
        if not self._mirror.task_id:
            if self._peer.card.supports_resume:
                return False  # Sending the same message id again attaches to its task.
            problem = "the connection broke while the message was sent; it may have arrived, so it "
            raise PeerUnavailableError(self._peer.name, problem + "isn't sent again")
        self._may_have_gaps = True
        if self._task.turn == 1:
            return True
        remote = await self._peer.get_task(self._mirror.task_id)
        return self._mirror.has_message(self._message_id, remote)

    async def _send(self) -> None:
        """Send the message and read its stream."""
        try:
            options = self._call_options()._replace(tree=self._tree())
            async with self._peer.stream_message(await self._request(), options) as events:
                await self._read(events, is_beginning=True)
        except PeerRefusedError as error:
            if self._mirror.is_known:
                raise
            if self._mirror.task_id:
                await self._apply_end(error)
            elif self._sends_context_id and error.refusal in _UNKNOWN_CONTEXT_REASONS:
                # Some agents accept only context ids that they generated.
                self._sends_context_id = False
                await self._send()
            else:
                raise

    async def _apply_end(self, error: PeerRefusedError) -> None:
        """Apply the end of a remote task that ended before it got our message."""
        task = await self._peer.get_task(self._mirror.task_id)
        if task.status.state not in TERMINAL:
            raise error
        await self._mirror.apply_snapshot(task)

    async def _resume(self) -> None:
        """Resume the stream; if that is not possible, read the remote task."""
        task_id = self._mirror.task_id
        if self._event_id:
            try:
                options = self._call_options(self._event_id)
                async with self._peer.subscribe_to_task(task_id, options) as events:
                    await self._read(events)
                    return
            except PeerRefusedError:
                # The cursor is past retention, or the task has ended: read the task.
                self._event_id = ""
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
            if self._mirror.is_over:
                return
        before = self._mirror.change_count
        task = await self._peer.get_task(task_id)
        await self._mirror.apply_snapshot(task, is_first=True)
        self._last_heard_s = self._now()
        if self._mirror.change_count != before:
            self._idle_timeout.resume()

    async def _read(self, events: RemoteEvents, *, is_beginning: bool = False) -> None:
        """Apply events until the turn is over or the stream ends."""
        is_first = is_beginning
        while not self._mirror.is_over:
            try:
                # Before the first event, the agent may be thinking.
                async with asyncio.timeout(None if is_first else _STREAM_IDLE_S):
                    event = await anext(events, None)
            except TimeoutError:
                problem = f"nothing came for {_STREAM_IDLE_S:g} s"
                raise PeerTimeoutError(self._peer.name, problem) from None
            if event is None:
                return
            await self._apply(event, is_first=is_first)
            is_first = False

    async def _apply(self, event: RemoteEvent, *, is_first: bool = False) -> None:
        # A slow write to our journal must not count as idle time of the peer.
        self._last_heard_s = self._now()
        self._idle_timeout.pause()
        response = event.response
        if self._may_have_gaps and self._mirror.is_terminal_event(response):
            await self._verify_end()
        if not self._mirror.is_over:
            await self._mirror.apply(response, is_first=is_first)
        if self._peer.card.supports_resume:
            self._event_id = event.id or self._event_id
        self._idle_timeout.resume()

    async def _verify_end(self) -> None:
        """Read the remote task to fill gaps before its end is applied."""
        with contextlib.suppress(PeerUnavailableError, PeerTimeoutError, PeerRefusedError):
            task = await self._peer.get_task(self._mirror.task_id)
            await self._mirror.apply_snapshot(task)

    async def _request(self) -> a2a_pb2.SendMessageRequest:
        """Build the remote request: the turn's message with remote ids."""
        original = self._task.message
        request = a2a_pb2.SendMessageRequest()
        message = request.message
        message.role = message_pb2.ROLE_USER
        message.message_id = self._message_id
        message.parts.extend(await inline_files(self._task, original.parts, peer=self._peer.name))
        message.extensions.extend(original.extensions)
        if original.HasField("metadata"):
            message.metadata.CopyFrom(original.metadata)
        message.task_id = self._mirror.task_id
        message.context_id = self._mirror.context_id
        if self._sends_context_id:
            message.context_id = message.context_id or self._context_id()
        request.configuration.accepted_output_modes.extend(
            self._task.snapshot.accepted_output_modes
        )
        return request

    def _context_id(self) -> str:
        """Return a remote context id, derived from the account, the agent and our context id.

        The tasks of one conversation share it. It depends on the account, because the remote agent
        sees all our accounts as one caller.
        """
        parts = (self._task.account, self._task.agent, self._task.context_id)
        # A backslash and an n: another separator would change the ids of conversations.
        digest = hashlib.sha256("\\n".join(parts).encode()).hexdigest()
        return str(uuid.uuid5(_CONTEXT_NAMESPACE, digest))

    def _tree(self) -> str:
        """Return the value of Trunkline-Tree.

        It is empty for an agent that is not served by Trunkline, so that the names of our agents go
        to nobody who has no use for them. The ids of our tasks stay here.
        """
        if not self._peer.card.supports_resume:
            return ""
        position = self._task.tree.position_of_child("")
        for ancestor in position.ancestors:
            ancestor.ClearField("task_id")
        return base64.urlsafe_b64encode(position.SerializeToString()).decode()

    def _call_options(self, last_event_id: str = "") -> CallOptions:
        deadline, left_s = self._task.deadline, None
        if deadline is not None:
            left_s = max(0.001, (deadline - datetime.now(UTC)).total_seconds())
        return CallOptions(self._peer.card.supports_resume, last_event_id, left_s)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
