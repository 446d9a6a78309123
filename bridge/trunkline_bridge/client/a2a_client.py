"""A remote agent as we reach it: its card, its address, its version, its breaker."""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client.breaker import Breaker
from trunkline.errors import PeerProtocolError, PeerRefusedError
from trunkline.v1 import task_pb2
from trunkline_bridge.client.agent_card import RemoteCard, card_url_candidates, parse_remote_card
from trunkline_bridge.client.errors import WRONG_VERSION_REASONS
from trunkline_bridge.client.http import HttpClient
from trunkline_bridge.client.interfaces import Interface, InterfaceSelector, ProtocolBinding
from trunkline_bridge.client.jsonrpc import JsonRpcTransport
from trunkline_bridge.client.rest import RestTransport
from trunkline_bridge.client.settings import RemoteSettings
from trunkline_bridge.client.transport import (
    CALL_TIMEOUT_S,
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    Transport,
)

if TYPE_CHECKING:
    import grpc.aio

logger = logging.getLogger(__name__)

_CARD_BYTES: Final = 1024 * 1024
_STREAMING_UNSUPPORTED: Final = "UNSUPPORTED_OPERATION"
_NOT_FOUND: Final = "TASK_NOT_FOUND"


class A2AClient:
    """A remote agent. An async context manager: its connections are closed in the end.

    Methods raise what those of PeerBinding do. Behind an open breaker messages are refused with
    PeerUnavailableError at once.
    """

    def __init__(
        self, settings: RemoteSettings, *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """`ssl_context` says who is trusted over HTTPS."""
        self.settings = settings
        self.name = f"remote agent {settings.name!r}" if settings.name else settings.url
        """What errors call it."""
        self._http = HttpClient(self.name, settings.url, settings.headers, ssl_context=ssl_context)
        self._breaker = Breaker(
            self.name,
            failures=settings.breaker.failures,
            open_s=settings.breaker.open_s,
            successes=settings.breaker.successes,
        )
        self._card: RemoteCard | None = None
        self._transports: dict[Interface, Transport] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        # Addresses where the peer turned out to speak another version than its card says.
        self._other_version_interfaces: set[Interface] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._http.close()
        for channel in self._channels.values():
            await channel.close()

    def rename(self, name: str) -> None:
        """Take the name that the agent has on the mesh."""
        self.name = self._http.peer = self._breaker.name = f"remote agent {name!r}"

    @property
    def card(self) -> RemoteCard:
        """The card that was read last. PeerProtocolError: none was yet."""
        if self._card is None:
            raise PeerProtocolError(self.name, "its card has not been read yet")
        return self._card

    async def read_card(self) -> RemoteCard:
        """Find and read the card anew.

        Raises:
            PeerProtocolError: there is no card, or none with an interface that we speak.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError.
        """
        settings = self.settings
        problem = ""
        for url in card_url_candidates(settings.url):
            answer = await self._http.request("GET", url, headers={}, timeout_s=CALL_TIMEOUT_S)
            if answer.status != 200:
                problem = problem or f"there is no agent card (HTTP {answer.status}) at {url}"
                continue
            if len(answer.body) > _CARD_BYTES:
                raise PeerProtocolError(self.name, "its card is over 1 MiB")
            choice = InterfaceSelector(url, settings.hosts, settings.bindings, settings.versions)
            try:
                self._card = parse_remote_card(answer.body, choice)
            except ValueError as error:
                raise PeerProtocolError(self.name, str(error)) from None
            return self._card
        raise PeerProtocolError(self.name, problem)

    @asynccontextmanager
    async def stream_message(
        self, request: a2a_pb2.SendMessageRequest, call: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """Send a message and read what answers it: a stream, or one event of a peer without.

        What refuses the message is raised on entering.
        """
        is_new = not request.message.task_id
        try:
            answer = await self._start_in_either_version(request, call)
        except PeerRefusedError as error:
            # A card may promise streams that aren't there.
            if not (
                self.card.supports_streaming and is_new and error.refusal == _STREAMING_UNSUPPORTED
            ):
                raise
            answer = await self._start(_send_without_stream(request, call, self.settings.idle_s))
        async with answer.opened, aclosing(answer.events()) as events:
            yield events

    @asynccontextmanager
    async def subscribe_to_task(
        self, task_id: str, call: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """Read what becomes of a task. What refuses that is raised on entering.

        This and `get` are for tasks that are under way: they are tried behind an open breaker, too.
        """
        answer = await _await_first_event(self._transport().subscribe(task_id, call))
        self._breaker.allow_probe()
        async with answer.opened, aclosing(answer.events()) as events:
            yield events

    async def get_task(self, task_id: str) -> task_pb2.Task:
        """Return a task."""
        task = await self._transport().get(task_id)
        self._breaker.allow_probe()
        return task

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file at the peer's own address in pieces, with its credentials.

        Raises:
            PeerRefusedError: there is none.
            PeerUnavailableError, PeerTimeoutError, PeerProtocolError: it can't be read.
        """
        async with self._http.download(url) as pieces:
            yield pieces

    async def cancel_task(self, task_id: str) -> task_pb2.Task:
        """Cancel a task and return it."""
        return await self._transport().cancel(task_id)

    async def _start_in_either_version(
        self, request: a2a_pb2.SendMessageRequest, call: CallOptions
    ) -> "_StartedStream":
        """Begin as the card says; in the other version, once, if that turns out to be wrong."""

        def opening() -> _OpenStream:
            if self.card.supports_streaming:
                return lambda binding: binding.stream(request, call)
            return _send_without_stream(request, call, self.settings.idle_s)

        try:
            return await self._start(opening())
        except PeerRefusedError as error:
            is_path_missing = error.refusal == _NOT_FOUND and not request.message.task_id
            if self.card.interface in self._other_version_interfaces or not (
                error.refusal in WRONG_VERSION_REASONS or is_path_missing
            ):
                raise
            self._other_version_interfaces.add(self.card.interface)
            try:
                answer = await self._start(opening())
            except PeerRefusedError as other:
                self._other_version_interfaces.discard(self.card.interface)
                if other.refusal in WRONG_VERSION_REASONS:
                    raise error from None
                raise
        logger.warning("remote.other_version", extra={"peer": self.name})
        return answer

    async def _start(self, opening: "_OpenStream") -> "_StartedStream":
        """Open a stream and wait for its first event: only then the peer has answered."""
        with self._breaker.guard():
            return await _await_first_event(opening(self._transport()))

    def _transport(self) -> Transport:
        interface = self.card.interface
        if interface in self._other_version_interfaces:
            interface = interface.with_other_version()
        found = self._transports.get(interface)
        if found is None:
            found = self._transports[interface] = self._open_transport(interface)
        return found

    def _open_transport(self, interface: Interface) -> Transport:
        match interface.binding:
            case ProtocolBinding.JSONRPC:
                return JsonRpcTransport(self._http, interface)
            case ProtocolBinding.REST:
                return RestTransport(self._http, interface)
        # gRPC is loaded by processes of agents anyway, but the types of its status aren't.
        from trunkline_bridge.client.grpc import GrpcTransport, open_channel

        channel = self._channels.get(interface.url)
        if channel is None:
            channel = self._channels[interface.url] = open_channel(interface)
        return GrpcTransport(self.name, channel, interface, self.settings.headers)


_OpenStream: TypeAlias = Callable[[Transport], AbstractAsyncContextManager[RemoteEvents]]


class _StartedStream(NamedTuple):
    """A stream whose first event has come; without one, it ended at once."""

    first: RemoteEvent | None
    rest: RemoteEvents
    opened: AsyncExitStack

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
    request: a2a_pb2.SendMessageRequest, call: CallOptions, timeout_s: float
) -> _OpenStream:
    """Send without a stream, for an answer at once: how a task goes on is looked at later."""
    now = a2a_pb2.SendMessageRequest()
    now.CopyFrom(request)
    now.configuration.return_immediately = True

    @asynccontextmanager
    async def send(binding: Transport) -> AsyncIterator[RemoteEvents]:
        response = await binding.send(now, call, timeout_s=timeout_s)
        yield _single_event(response)

    return send


async def _single_event(response: a2a_pb2.StreamResponse) -> RemoteEvents:
    yield RemoteEvent(response)
