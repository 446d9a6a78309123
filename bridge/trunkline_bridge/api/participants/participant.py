"""Delivers messages to one participant: retries with back-off, behind a circuit breaker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from opentelemetry.trace import SpanKind

from trunkline.core.settings import ParticipantSettings
from trunkline.errors import PeerCircuitOpenError, PeerTimeoutError, PeerUnavailableError
from trunkline.mesh.client import Backoff
from trunkline.mesh.client.breaker import EARLY_PROBE_S, Breaker, BreakerSettings, BreakerState
from trunkline.messages.store import Envelope
from trunkline.observe import telemetry
from trunkline_bridge.api.participants.credentials import build_headers
from trunkline_bridge.api.participants.http_transport import HttpParticipant
from trunkline_bridge.api.participants.websocket_transport import WebSocketParticipant


class ParticipantTransport(Protocol):
    """Sends a message to a participant and returns the replies."""

    async def exchange(self, envelope: Envelope) -> list[Envelope]:
        """Send a message once.

        Raises:
            PeerUnavailableError, PeerTimeoutError: a retry may help.
            PeerProtocolError: the response is not a valid answer.
            PeerRefusedError: the participant refuses the message.
        """
        ...


class Participant:
    """An agent behind HTTP or a WebSocket."""

    def __init__(
        self,
        name: str,
        settings: ParticipantSettings,
        breaker: Breaker,
        transport: ParticipantTransport,
        on_change: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._breaker = breaker
        self._transport = transport
        self._on_change = on_change
        self._last_state = breaker.state

    @property
    def breaker_state(self) -> BreakerState:
        """The state of its circuit breaker."""
        return self._breaker.state

    async def deliver(self, envelope: Envelope, *, waits_for_breaker: bool) -> list[Envelope]:
        """Send a message and return the replies. Try again if a retry may help.

        The id of the message is the idempotency key of all tries. While the breaker is open, the
        delivery waits, or fails at once without `waits_for_breaker`.

        Raises:
            PeerCircuitOpenError: the breaker is open.
            PeerUnavailableError, PeerTimeoutError: no try got an answer.
            PeerProtocolError: the response is not a valid answer.
            PeerRefusedError: the participant refuses the message.
        """
        backoff = Backoff(first_s=self._settings.backoff_s, limit_s=self._settings.max_backoff_s)
        retries = self._settings.retries
        while True:
            try:
                return await self._try(envelope)
            except PeerCircuitOpenError as error:
                if not waits_for_breaker:
                    raise
                # Half-open: another delivery is the probe.
                await asyncio.sleep(max(self._breaker.retry_in_s, float(error.retry_after_s) / 10))
            except (PeerUnavailableError, PeerTimeoutError):
                if retries <= 0:
                    raise
                retries -= 1
                await backoff.pause()

    async def _try(self, envelope: Envelope) -> list[Envelope]:
        attributes = {
            telemetry.MESSAGING_SYSTEM: telemetry.TRUNKLINE,
            telemetry.MESSAGING_OPERATION_NAME: "send",
            telemetry.MESSAGING_DESTINATION_NAME: self._name,
            telemetry.MESSAGING_MESSAGE_ID: envelope.envelope_id,
            telemetry.MESSAGING_CONVERSATION_ID: envelope.correlation_id,
        }
        name = f"send {self._name}"
        try:
            with (
                self._breaker.guard(),
                telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes),
            ):
                return await self._transport.exchange(envelope)
        finally:
            if self._breaker.state != self._last_state:
                self._last_state = self._breaker.state
                self._on_change()


@asynccontextmanager
async def open_participant(
    name: str,
    settings: ParticipantSettings,
    breaker: BreakerSettings,
    on_change: Callable[[], None],
) -> AsyncIterator[Participant]:
    """Open a participant, without calling it. `on_change` is called when its breaker changes.

    Raises:
        ConfigurationError: a secret is missing or can't be sent.
    """
    headers = build_headers(name, settings)
    peer = f"participant {name}"
    guard = Breaker(
        peer,
        failures=settings.breaker_failures or breaker.failures,
        open_s=settings.breaker_open_s or breaker.open_s,
        first_open_s=EARLY_PROBE_S,
        successes=settings.breaker_successes or breaker.successes,
    )
    is_socket = settings.url.startswith("ws")
    transport = (WebSocketParticipant if is_socket else HttpParticipant)(peer, settings, headers)
    async with transport:
        try:
            yield Participant(name, settings, guard, transport, on_change)
        finally:
            guard.retire()
