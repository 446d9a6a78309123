"""A participant behind HTTP: each message is a POST, and the response is its answer."""

import asyncio
from collections.abc import Mapping
from typing import Final, Self

from trunkline.a2a_client.http import HttpClient, HttpResponse
from trunkline.a2a_wire.json_values import dumps
from trunkline.core.json_values import message_to_dict
from trunkline.core.settings import ParticipantSettings
from trunkline.errors import (
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
)
from trunkline.messages.store import Envelope
from trunkline_bridge.api.participants.replies import decode_replies

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
# Refusals that may pass: timeouts, early data, and failures of the server.
_PASSING: Final = frozenset({408, 425, *range(500, 600)})


class HttpParticipant:
    """Posts messages to one participant."""

    def __init__(
        self,
        peer: str,
        settings: ParticipantSettings,
        headers: Mapping[str, str],
    ) -> None:
        self._peer = peer
        self._settings = settings
        self._client = HttpClient(
            peer,
            settings.url,
            headers,
            max_body_bytes=settings.content_bytes,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    async def exchange(self, envelope: Envelope) -> list[Envelope]:
        """Send a message and return the replies to it.

        Raises:
            PeerUnavailableError, PeerTimeoutError: a retry may help.
            PeerProtocolError: the response is not a valid answer.
            PeerRefusedError: the participant refuses the message.
        """
        body = dumps(message_to_dict(envelope)).encode()
        headers = {
            "content-type": _JSON,
            "accept": f"{_JSON}, {_TEXT}",
            "idempotency-key": envelope.envelope_id,
        }
        timeout_s = self._settings.timeout_s
        try:
            # The client limits each read only, and the answer may come byte by byte.
            async with asyncio.timeout(timeout_s):
                response = await self._client.request(
                    "POST", self._settings.url, body=body, headers=headers, timeout_s=timeout_s
                )
        except TimeoutError:
            raise PeerTimeoutError(self._peer, f"no answer in {timeout_s:g} s") from None
        return self._read(response)

    def _read(self, response: HttpResponse) -> list[Envelope]:
        status = response.status
        if status in _PASSING:
            raise PeerUnavailableError(self._peer, f"it failed (HTTP {status})")
        if status >= 400:
            problem = f"it does not take the message (HTTP {status})"
            raise PeerRefusedError(self._peer, problem, f"HTTP_{status}")
        if not response.body.strip():
            return []
        if response.media_type == _TEXT:
            text = response.body.decode("utf-8", "replace")
            return [Envelope(type="answer", text=text)]
        if response.media_type and not response.media_type.endswith("json"):
            problem = f"its answer is {response.media_type[:100]!r}, not {_JSON} or {_TEXT}"
            raise PeerProtocolError(self._peer, problem)
        return decode_replies(self._peer, response.body, default_type=self._settings.reply_type)
