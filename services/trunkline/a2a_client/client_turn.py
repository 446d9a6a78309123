"""Runs one turn of a `trunkline.Client`: sends a message, or resumes a task's stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.answer_fold import SNAPSHOT_CURSOR, AnswerFold, EmitEvent
from trunkline.a2a_client.answers import ClientAnswer
from trunkline.a2a_client.errors import (
    ConnectionLostError,
    RpcError,
    ServerBusyError,
    is_shutdown,
)
from trunkline.a2a_client.refusals import to_mesh_error
from trunkline.a2a_client.transport import CallOptions, RemoteEvent, RemoteEvents
from trunkline.a2a_client.turn_follower import TurnFollower
from trunkline.core.task_states import TERMINAL, state_name
from trunkline.errors import PeerTimeoutError, PeerUnavailableError, TaskEndedError
from trunkline.v1 import message_pb2, task_pb2

_TIMEOUT_GRACE_S: Final = 5.0
"""A mesh ends a task at its deadline. The client waits this much longer for its last status."""


class ClientTurn(TurnFollower):
    """Follows one turn and collects its events in the answer."""

    def __init__(
        self,
        peer: A2AClient,
        fold: AnswerFold,
        *,
        message: message_pb2.Message,
        cursor: str = "",
        timeout_s: float | None = None,
        is_patient: bool = True,
    ) -> None:
        """Prepare a turn; nothing is sent yet.

        Args:
            peer: The agent. Its card has been read.
            fold: Gets the events.
            message: The message to send. It is not sent if the fold follows a known task.
            cursor: The event after which a known task is followed. By default it is followed from
                a snapshot.
            timeout_s: Limit of the turn in seconds. With None, only a silent agent ends the turn.
            is_patient: An agent that can't be reached is tried again for `patience_s` already
                before its first event.
        """
        super().__init__(peer, fold, message_id=message.message_id, may_have_arrived=False)
        self._event_id = cursor
        self._fold = fold
        self._message = message
        self._timeout_s = timeout_s
        self._is_patient = is_patient
        self._deadline_s = None if timeout_s is None else self._now() + timeout_s

    async def run(self) -> ClientAnswer:
        """Run the turn to its end and return the answer.

        Raises:
            PeerTimeoutError: `timeout_s` is over, or the agent sent nothing for `idle_s`.
            TrunklineError: The agent can't be reached, refused the message or broke the protocol.
        """
        async with self._limit():
            try:
                await self._follow()
            except TimeoutError:
                problem = f"nothing came for {self._peer.settings.idle_s:g} s"
                raise PeerTimeoutError(self._peer.name, problem + self._advice()) from None
            # The collected answer has only the events after the cursor.
            whole = await self._peer.get_task(self._fold.task_id) if self._fold.is_resumed else None
            return await self._fold.finish(whole)

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        limit_s = None if self._timeout_s is None else self._timeout_s + _TIMEOUT_GRACE_S
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            problem = f"the turn did not end within {self._timeout_s:g} s{self._advice()}"
            raise PeerTimeoutError(self._peer.name, problem) from None

    def _advice(self) -> str:
        task_id = self._fold.task_id
        return f"; task {task_id} may still run: resume or cancel it" if task_id else ""

    @property
    def _is_first_turn(self) -> bool:
        return not self._message.task_id

    async def _attempt(self) -> None:
        try:
            await super()._attempt()
        except ServerBusyError as busy:
            if busy.retry_after_s > self._peer.settings.patience_s:
                raise to_mesh_error(busy, peer=self._peer.name) from busy
            raise
        except (ConnectionLostError, PeerTimeoutError) as broken:
            if self._may_begin_again:
                raise
            raise PeerUnavailableError(self._peer.name, broken.problem) from broken
        if not (self._may_begin_again or self._fold.is_over):
            problem = "its stream ended before the turn began"
            raise PeerUnavailableError(self._peer.name, problem)

    async def _read(self, events: RemoteEvents, *, is_beginning: bool = False) -> bool:
        try:
            return await super()._read(events, is_beginning=is_beginning)
        except RpcError as refusal:
            if not is_shutdown(refusal):
                raise
            raise ConnectionLostError(self._peer.name, refusal.problem) from refusal

    @property
    def _may_begin_again(self) -> bool:
        return self._is_patient or self._fold.is_known

    def _may_try_again(self, error: PeerUnavailableError) -> bool:
        return self._may_begin_again and super()._may_try_again(error)

    async def _build_request(self) -> a2a_pb2.SendMessageRequest:
        return a2a_pb2.SendMessageRequest(message=self._message)

    def _call_options(self) -> CallOptions:
        left_s = None if self._deadline_s is None else max(0.001, self._deadline_s - self._now())
        return CallOptions(resumes=self._peer.card.supports_resume, timeout_s=left_s)

    async def _apply_event(self, event: RemoteEvent, *, is_first: bool) -> None:
        self._fold.trace_id = self._fold.trace_id or event.trace_id
        cursor = event.id if self._peer.card.supports_resume else ""
        await self._fold.apply(event.response, cursor=cursor, is_first=is_first)


async def open_turn(
    peer: A2AClient,
    emit: EmitEvent,
    message: message_pb2.Message,
    *,
    timeout_s: float | None,
    is_patient: bool = True,
) -> ClientTurn:
    """Prepare the turn of a message. For an earlier task, its state is read first.

    The arguments are as for `ClientTurn`.

    Raises:
        TaskNotFoundError: There is no such task.
        TaskEndedError: The task takes no more messages.
        TrunklineError: The task can't be read.
    """
    before: task_pb2.Task | None = None
    if message.task_id:
        before = await peer.get_task(message.task_id)
        if before.status.state in TERMINAL:
            raise TaskEndedError(message.task_id, state_name(before.status.state))
        message.context_id = message.context_id or before.context_id
    fold = _open_fold(peer, emit, before=before)
    return ClientTurn(peer, fold, message=message, timeout_s=timeout_s, is_patient=is_patient)


async def open_resumed_turn(
    peer: A2AClient, emit: EmitEvent, task_id: str, *, cursor: str, timeout_s: float | None
) -> ClientTurn:
    """Prepare to follow a task's current turn.

    Raises:
        TaskNotFoundError: There is no such task.
        TrunklineError: The task can't be read.
    """
    cursor = "" if cursor == SNAPSHOT_CURSOR else cursor
    fold = _open_fold(peer, emit, is_resumed=True)
    fold.follow_task(task_id, (await peer.get_task(task_id)).artifacts if cursor else ())
    message = message_pb2.Message(task_id=task_id)
    return ClientTurn(peer, fold, message=message, cursor=cursor, timeout_s=timeout_s)


def _open_fold(
    peer: A2AClient,
    emit: EmitEvent,
    *,
    before: task_pb2.Task | None = None,
    is_resumed: bool = False,
) -> AnswerFold:
    return AnswerFold(
        emit,
        peer=peer.name,
        content_bytes=peer.settings.content_bytes,
        before=before,
        is_resumed=is_resumed,
    )
