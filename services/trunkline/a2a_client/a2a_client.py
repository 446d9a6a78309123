"""The A2A client: one remote agent over JSON-RPC, HTTP+JSON or gRPC, in v1.0 or v0.3."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.agent_card import RemoteCard, card_url_candidates
from trunkline.a2a_client.card_verifier import CardVerifier
from trunkline.a2a_client.errors import (
    WRONG_VERSION_REASONS,
    ErrorObject,
    ServerBusyError,
    refusal_error,
)
from trunkline.a2a_client.http import MAX_EVENT_BYTES, HttpClient, WireObserver
from trunkline.a2a_client.interfaces import Interface, InterfaceSelector, ProtocolBinding
from trunkline.a2a_client.jsonrpc import JsonRpcTransport
from trunkline.a2a_client.lenient_reader import LeftOutLog
from trunkline.a2a_client.rest import RestTransport
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.a2a_client.tls import ChannelSecurity
from trunkline.a2a_client.transport import (
    CALL_TIMEOUT_S,
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    Transport,
)
from trunkline.a2a_wire.errors import AGENT_NOT_FOUND
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import (
    CANCEL_TASK,
    GET_TASK,
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Operation,
)
from trunkline.a2a_wire.protocol import V1_0, VERSION_HEADER
from trunkline.errors import (
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.mesh.client.breaker import EARLY_PROBE_S, Breaker
from trunkline.v1 import task_pb2

if TYPE_CHECKING:
    import grpc.aio
    import httpx2

logger = logging.getLogger(__name__)

_CARD_BYTES: Final = 1024 * 1024
_STREAMING_UNSUPPORTED: Final = "UNSUPPORTED_OPERATION"
_NOT_FOUND: Final = "TASK_NOT_FOUND"
_TOO_MANY_REQUESTS: Final = 429
RESUME_DELAYS_S: Final = (0.1, 0.3, 1.0, 3.0, *(5.0,) * 5)
"""The seconds before each attempt to resume a broken stream or download.

Any progress starts the delays over. Their sum is half a minute, in which a mesh can restart.
"""


class A2AClient:
    """Calls one remote agent. An async context manager that closes its connections on exit.

    Methods raise the errors of `Transport`. While the circuit breaker is open, sending a message
    raises PeerUnavailableError at once.
    """

    def __init__(  # noqa: PLR0913  independent options, each by name
        self,
        settings: RemoteSettings,
        *,
        interface: Interface | None = None,
        supports_resume: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        stream_idle_s: float | None = None,
        max_event_bytes: int = MAX_EVENT_BYTES,
        query: Mapping[str, str] | None = None,
        channel_security: ChannelSecurity | None = None,
        observer: WireObserver | None = None,
        transport: "httpx2.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            settings: The agent's address, credentials and limits.
            interface: Call this interface without reading a card, and only in its version.
            supports_resume: The agent of `interface` has Trunkline's resume extension.
            ssl_context: Trusted certificates for HTTPS; the system's if None.
            stream_idle_s: Seconds without a byte after which an HTTP stream counts as broken, or
                None for no limit.
            max_event_bytes: Limit of one server-sent event.
            query: Parameters of every URL over HTTP; they hold credentials.
            channel_security: Trusted certificates for gRPC; the system's if None.
            observer: Receives what is sent and received, for diagnostics.
            transport: Makes the connections over HTTP. By default they are made with
                `ssl_context`.
        """
        self.settings = settings
        self.name = f"remote agent {settings.name!r}" if settings.name else settings.url
        """The agent's name in errors."""
        self._http = HttpClient(
            self.name,
            settings.url,
            settings.headers,
            ssl_context=ssl_context,
            stream_idle_s=stream_idle_s,
            max_event_bytes=max_event_bytes,
            query=query,
            observer=observer,
            transport=transport,
        )
        self._channel_security = channel_security
        self._observer = observer
        self._breaker = Breaker(
            self.name,
            failures=settings.breaker.failures,
            open_s=settings.breaker.open_s,
            first_open_s=EARLY_PROBE_S,
            successes=settings.breaker.successes,
        )
        self.left_out = LeftOutLog(lambda: self.name)
        """Logs unusable parts of the agent's answers."""
        self._verifier = CardVerifier(settings, self._fetch_document, self.left_out)
        self._is_version_fixed = interface is not None
        self._card = (
            None
            if interface is None
            else RemoteCard.for_interface(interface, supports_resume=supports_resume)
        )
        self._transports: dict[Interface, Transport] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        # Interfaces whose agent needs another version than its card declares.
        self._other_version_interfaces: set[Interface] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._breaker.retire()
        await self._http.close()
        for channel in self._channels.values():
            await channel.close()

    def rename(self, name: str) -> None:
        """Use the agent's name on the mesh in errors."""
        self.name = self._http.peer = self._breaker.name = f"remote agent {name!r}"

    @property
    def card(self) -> RemoteCard:
        """The card that was read last. PeerProtocolError: no card has been read."""
        if self._card is None:
            raise PeerProtocolError(self.name, "its card has not been read yet")
        return self._card

    async def read_card(self) -> RemoteCard:
        """Fetch the card from the first well-known address that has one.

        Raises:
            PeerProtocolError: There is no card, its interfaces are not supported, or it can't be
                trusted: see `CardVerifier`.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: The request failed.
            ConfigurationError: The keys or the pin of the card can't be used.
        """
        settings = self.settings
        problem = ""
        for url in card_url_candidates(settings.url):
            response = await self._http.request(
                "GET", url, headers={VERSION_HEADER: V1_0}, timeout_s=CALL_TIMEOUT_S
            )
            if response.status != 200:
                error = ErrorObject.from_body(response.body)
                if error.reason == AGENT_NOT_FOUND.reason:
                    # The host's root may have the card of another agent.
                    raise refusal_error(self.name, error.text, error.reason, error)
                problem = problem or f"there is no agent card (HTTP {response.status}) at {url}"
                continue
            if len(response.body) > _CARD_BYTES:
                raise PeerProtocolError(self.name, "its card is over 1 MiB")
            selector = InterfaceSelector(url, settings.hosts, settings.bindings, settings.versions)
            self._card = await self._verifier.verify(response.body, selector, peer=self.name)
            return self._card
        raise PeerProtocolError(self.name, problem)

    async def _fetch_document(self, url: str) -> bytes:
        """Return a small document of the agent's own origin. PeerProtocolError: it is missing."""
        response = await self._http.request(
            "GET", url, headers={VERSION_HEADER: V1_0}, timeout_s=CALL_TIMEOUT_S
        )
        if response.status != 200 or len(response.body) > _CARD_BYTES:
            raise PeerProtocolError(self.name, f"HTTP {response.status} at {url}")
        return response.body

    @asynccontextmanager
    async def stream_message(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """Send a message and open the stream of events that answers it.

        For an agent without streaming, the stream has one event. A refusal is raised on entering.
        """
        is_new = not request.message.task_id
        try:
            stream = await self._start_in_either_version(request, options)
        except PeerRefusedError as error:
            # A card may promise streaming that the agent doesn't have.
            if not (
                self.card.supports_streaming and is_new and error.refusal == _STREAMING_UNSUPPORTED
            ):
                raise
            stream = await self._start(_send_without_stream(request, options, self.settings.idle_s))
        async with stream.stack, aclosing(stream.events()) as events:
            yield events

    async def send_message(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """Send a message and return the task or the message that answers it, without a stream.

        Raises:
            PeerTimeoutError: nothing came for `timeout_s`. The task continues.
        """
        with self._breaker.guard():
            response = await self._transport().call(
                SEND_MESSAGE, request, options, timeout_s=timeout_s
            )
            event: a2a_pb2.StreamResponse = response.read()
            return event

    @asynccontextmanager
    async def subscribe_to_task(
        self, task_id: str, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """Open the stream of a task's events. A refusal is raised on entering.

        This and `get_task` call the agent even while the circuit breaker is open.
        """
        request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
        stream = await _await_first_event(
            self._transport().stream(SUBSCRIBE_TO_TASK, request, options)
        )
        self._breaker.allow_probe()
        async with stream.stack, aclosing(stream.events()) as events:
            yield events

    async def get_task(self, task_id: str) -> task_pb2.Task:
        """Return a task."""
        task = await self._read_task(GET_TASK, a2a_pb2.GetTaskRequest(id=task_id))
        self._breaker.allow_probe()
        return task

    async def cancel_task(self, task_id: str) -> task_pb2.Task:
        """Cancel a task and return it."""
        return await self._read_task(CANCEL_TASK, a2a_pb2.CancelTaskRequest(id=task_id))

    async def call(
        self,
        operation: Operation,
        request: Message,
        options: CallOptions,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Json:
        """Call an operation and return the JSON of its response, as v1.0 defines it.

        A response of v1.0 over HTTP is returned as it came. The agent is called even while the
        circuit breaker is open.

        Raises:
            PeerProtocolError: The response lacks what A2A requires, such as the id of a task.
        """
        response = await self._transport().call(operation, request, options, timeout_s=timeout_s)
        result = response.json()
        try:
            operation.check(result)
        except ValueError as error:
            problem = f"its answer to {operation.name} can't be used: {error}"
            raise PeerProtocolError(self.name, problem) from None
        return result

    async def _read_task(self, operation: Operation, request: Message) -> task_pb2.Task:
        response = await self._transport().call(
            operation, request, CallOptions(), timeout_s=CALL_TIMEOUT_S
        )
        task: task_pb2.Task = response.read()
        return task

    async def download(self, url: str, *, is_resumed: bool = False) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file at the agent's own address, fetched with its credentials.

        With `is_resumed`, a broken download resumes at the byte where it broke.

        Raises:
            PeerRefusedError: There is no such file.
            PeerUnavailableError, PeerTimeoutError, PeerProtocolError: It can't be read.
        """
        offset, etag = 0, ""
        delays = iter(RESUME_DELAYS_S if is_resumed else ())
        while True:
            try:
                async with self._http.download(url, offset=offset, etag=etag) as (etag, pieces):
                    async for piece in pieces:
                        delays = iter(RESUME_DELAYS_S if is_resumed else ())
                        offset += len(piece)
                        yield piece
                return
            except (PeerUnavailableError, PeerTimeoutError):
                delay_s = next(delays, None)
                if delay_s is None:
                    raise
            await asyncio.sleep(delay_s)

    async def _start_in_either_version(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions
    ) -> "_StartedStream":
        """Start in the card's version; if the agent refuses that version, try the other one."""

        def opening() -> _OpenStream:
            if self.card.supports_streaming:
                return lambda transport: transport.stream(SEND_STREAMING_MESSAGE, request, options)
            return _send_without_stream(request, options, self.settings.idle_s)

        try:
            return await self._start(opening())
        except PeerRefusedError as error:
            is_path_missing = error.refusal == _NOT_FOUND and not request.message.task_id
            is_other_version = error.refusal in WRONG_VERSION_REASONS or is_path_missing
            has_tried_both = self.card.interface in self._other_version_interfaces
            if self._is_version_fixed or has_tried_both or not is_other_version:
                raise
            self._other_version_interfaces.add(self.card.interface)
            try:
                stream = await self._start(opening())
            except PeerRefusedError as other:
                self._other_version_interfaces.discard(self.card.interface)
                if other.refusal in WRONG_VERSION_REASONS:
                    raise error from None
                raise
        logger.warning("remote.other_version", extra={"peer": self.name})
        return stream

    async def _start(self, opening: "_OpenStream") -> "_StartedStream":
        """Open a stream and wait for its first event, which counts as success for the breaker."""
        with self._breaker.guard(is_answer=_shows_life):
            return await _await_first_event(opening(self._transport()))

    def _transport(self) -> Transport:
        interface = self.card.interface
        if interface in self._other_version_interfaces:
            interface = interface.with_other_version()
        transport = self._transports.get(interface)
        if transport is None:
            transport = self._transports[interface] = self._open_transport(interface)
        return transport

    def _open_transport(self, interface: Interface) -> Transport:
        match interface.binding:
            case ProtocolBinding.JSONRPC:
                return JsonRpcTransport(self._http, interface)
            case ProtocolBinding.REST:
                return RestTransport(self._http, interface)
        # Imported here, because most processes call no agent over gRPC.
        from trunkline.a2a_client.grpc import GrpcTransport, open_channel

        channel = self._channels.get(interface.url)
        if channel is None:
            channel = self._channels[interface.url] = open_channel(
                interface, security=self._channel_security
            )
        return GrpcTransport(self.name, channel, interface, self.settings.headers, self._observer)


def _shows_life(error: TrunklineError) -> bool:
    """Return whether an error is an answer of a running agent, however wrong or overloaded."""
    is_overloaded = isinstance(error, ServerBusyError) and error.status == _TOO_MANY_REQUESTS
    return is_overloaded or isinstance(error, PeerProtocolError)


_OpenStream: TypeAlias = Callable[[Transport], AbstractAsyncContextManager[RemoteEvents]]


class _StartedStream(NamedTuple):
    """A stream whose first event was read; `first` is None if the stream was empty."""

    first: RemoteEvent | None
    rest: RemoteEvents
    stack: AsyncExitStack

    async def events(self) -> AsyncGenerator[RemoteEvent]:
        if self.first is not None:
            yield self.first
            async for event in self.rest:
                yield event


async def _await_first_event(opening: AbstractAsyncContextManager[RemoteEvents]) -> _StartedStream:
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(opening)
        first = await anext(events, None)
        return _StartedStream(first, events, stack.pop_all())


def _send_without_stream(
    request: a2a_pb2.SendMessageRequest, options: CallOptions, timeout_s: float
) -> _OpenStream:
    """Return a call that sends a message without waiting for its turn, as a stream of one event."""
    immediate = a2a_pb2.SendMessageRequest()
    immediate.CopyFrom(request)
    immediate.configuration.return_immediately = True

    @asynccontextmanager
    async def send(transport: Transport) -> AsyncIterator[RemoteEvents]:
        response = await transport.call(SEND_MESSAGE, immediate, options, timeout_s=timeout_s)
        yield _single_event(response.read())

    return send


async def _single_event(response: a2a_pb2.StreamResponse) -> RemoteEvents:
    yield RemoteEvent(response)
