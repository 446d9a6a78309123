"""A participant behind a WebSocket: one connection for all messages and their answers.

We send `{"message": ENVELOPE}` and read `{"replyTo": ID, "replies": …}`, or `{"replyTo": ID,
"error": TEXT}` for a message that the participant refuses.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from trunkline.a2a_client.http import CONNECT_TIMEOUT_S
from trunkline.a2a_wire.json_values import dumps
from trunkline.core.json_values import message_to_dict
from trunkline.core.network import is_this_machine
from trunkline.core.settings import ParticipantSettings
from trunkline.errors import (
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.messages.store import Envelope
from trunkline.observe import telemetry
from trunkline_bridge.api.participants.replies import read_replies
from trunkline_bridge.http.json_decoder import decode_json

logger = logging.getLogger(__name__)
# `websockets` logs headers, and so credentials, at the level `debug`.
_silent_logger = logging.getLogger(f"{__name__}.frames")
_silent_logger.setLevel(logging.INFO)

_PING_INTERVAL_S: Final = 20.0
_REFUSALS: Final = frozenset(range(400, 500)) - {408, 425, 429}
_TEXT_LIMIT: Final = 300


class _DirectConnect(connect):
    """Connects without following redirects, which would get the credentials."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocketParticipant:
    """Sends messages to one participant. It connects at the first, and again after a loss."""

    def __init__(
        self,
        peer: str,
        settings: ParticipantSettings,
        headers: Mapping[str, str],
    ) -> None:
        self._peer = peer
        self._settings = settings
        self._headers = dict(headers)
        self._connection: ClientConnection | None = None
        self._connecting = asyncio.Lock()
        # The exchanges that wait for their answers, by message.
        self._waiting: dict[str, asyncio.Future[list[Envelope]]] = {}
        self._readers = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._readers.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for reader in self._running:
            reader.cancel()
        await self._readers.__aexit__(None, None, None)

    async def exchange(self, envelope: Envelope) -> list[Envelope]:
        """Send a message and return the replies to it. Raises as `HttpParticipant.exchange`."""
        loop = asyncio.get_running_loop()
        # A repeated delivery takes the place of a delivery of the same message that waits.
        answer: asyncio.Future[list[Envelope]] = loop.create_future()
        key = envelope.envelope_id
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                connection = await self._connect()
                self._waiting[key] = answer
                frame: dict[str, Any] = {
                    "message": message_to_dict(envelope),
                    **telemetry.inject(),
                }
                await connection.send(dumps(frame))
                return await answer
        except TimeoutError:
            problem = f"no answer in {self._settings.timeout_s:g} s"
            raise PeerTimeoutError(self._peer, problem) from None
        except WebSocketException:
            raise PeerUnavailableError(self._peer, "the connection broke") from None
        finally:
            if self._waiting.get(key) is answer:
                del self._waiting[key]
            if answer.done() and not answer.cancelled():
                # Sending failed as well. asyncio logs errors of futures that are never read.
                answer.exception()

    async def _connect(self) -> ClientConnection:
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            try:
                connection = await self._open()
            except InvalidStatus as error:
                status = error.response.status_code
                problem = f"it refuses the connection (HTTP {status})"
                if status in _REFUSALS:
                    raise PeerRefusedError(self._peer, problem, f"HTTP_{status}") from None
                raise PeerUnavailableError(self._peer, problem) from None
            except InvalidHandshake:
                raise PeerProtocolError(self._peer, "it is no WebSocket") from None
            except (OSError, WebSocketException):
                raise PeerUnavailableError(self._peer, "nothing answers at its address") from None
            self._connection = connection
            reader = self._readers.create_task(self._read(connection))
            self._running.add(reader)
            reader.add_done_callback(self._running.discard)
            return connection

    async def _open(self) -> ClientConnection:
        is_local = is_this_machine(self._settings.url.replace("ws", "http", 1))
        return await _DirectConnect(
            self._settings.url,
            additional_headers=self._headers,
            user_agent_header="Trunkline",
            # Compressed messages could expand without a limit.
            compression=None,
            open_timeout=CONNECT_TIMEOUT_S,
            close_timeout=1.0,
            ping_interval=_PING_INTERVAL_S,
            max_size=self._settings.content_bytes,
            max_queue=16,
            proxy=None if is_local else True,
            logger=_silent_logger,
        )

    async def _read(self, connection: ClientConnection) -> None:
        """Read answers until the connection ends; then the exchanges that wait fail."""
        error: TrunklineError = PeerUnavailableError(self._peer, "the connection broke")
        try:
            async for frame in connection:
                self._take(frame)
        except PeerProtocolError as problem:
            error = problem
        except WebSocketException:
            logger.debug("participant.disconnected", extra={"peer": self._peer})
        finally:
            self._connection = None
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(error)
            self._waiting.clear()
            await connection.close()

    def _take(self, frame: str | bytes) -> None:
        """Give an answer to the exchange that waits for it."""
        try:
            value = decode_json(frame.encode() if isinstance(frame, str) else frame)
        except ValueError as error:
            raise PeerProtocolError(self._peer, f"it sent no JSON: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("replyTo"), str):
            raise PeerProtocolError(self._peer, "it sent a frame without `replyTo`")
        answer = self._waiting.get(value["replyTo"])
        if answer is None or answer.done():
            # The exchange timed out, or had an answer before.
            return
        if "error" in value:
            problem = " ".join(str(value["error"]).split())[:_TEXT_LIMIT]
            answer.set_exception(PeerRefusedError(self._peer, problem or "it did not say why", ""))
            return
        try:
            replies = read_replies(
                self._peer, value.get("replies"), default_type=self._settings.reply_type
            )
        except PeerProtocolError as error:
            answer.set_exception(error)
        else:
            answer.set_result(replies)
