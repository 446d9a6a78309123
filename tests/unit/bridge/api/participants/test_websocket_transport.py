"""Exchanges with a participant behind a WebSocket whose connection breaks."""

import asyncio
import gc
from typing import Any, Self

import pytest
from websockets.exceptions import ConnectionClosedError

from trunkline.errors import PeerUnavailableError
from trunkline.settings import ParticipantSettings
from trunkline.v1 import envelope_pb2
from trunkline_bridge.api.participants.websocket_transport import WebSocketParticipant


class BreakingConnection:
    """A connection that breaks while a frame is sent: the reader sees it first."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def send(self, _frame: str) -> None:
        await self._closed.wait()
        raise ConnectionClosedError(None, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        raise ConnectionClosedError(None, None)

    async def close(self) -> None:
        self._closed.set()


async def test_a_connection_that_breaks_in_a_send_leaves_no_unread_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_connection(_participant: WebSocketParticipant) -> Any:
        return BreakingConnection()

    monkeypatch.setattr(WebSocketParticipant, "_open", open_connection)
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: problems.append(context["message"])
    )
    settings = ParticipantSettings(url="ws://127.0.0.1:1/")
    async with WebSocketParticipant("the studio", settings, {}) as participant:
        with pytest.raises(PeerUnavailableError, match="broke"):
            await participant.exchange(envelope_pb2.Envelope(envelope_id="e-1"))
    gc.collect()
    assert problems == []
