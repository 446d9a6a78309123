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
from trunkline_bridge.outbound.card import RemoteCard, card_urls, read_remote_card
from trunkline_bridge.outbound.interfaces import Binding, Choice, Interface
from trunkline_bridge.outbound.settings import RemoteSettings
from trunkline_bridge.outbound.speaking.bindings import CALL_S, Call, Events, PeerBinding, PeerEvent
from trunkline_bridge.outbound.speaking.http import Http
from trunkline_bridge.outbound.speaking.jsonrpc import JsonRpc
from trunkline_bridge.outbound.speaking.rest import Rest
from trunkline_bridge.outbound.speaking.trouble import FOREIGN

if TYPE_CHECKING:
    import grpc.aio

logger = logging.getLogger(__name__)

_CARD_BYTES: Final = 1024 * 1024
_NO_STREAMS: Final = "UNSUPPORTED_OPERATION"
_NOT_FOUND: Final = "TASK_NOT_FOUND"


class Peer:
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
        self._http = Http(self.name, settings.url, settings.headers, ssl_context=ssl_context)
        self._breaker = Breaker(
            self.name,
            failures=settings.breaker.failures,
            open_s=settings.breaker.open_s,
            successes=settings.breaker.successes,
        )
        self._card: RemoteCard | None = None
        self._bindings: dict[Interface, PeerBinding] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        # Addresses where the peer turned out to speak another version than its card says.
        self._others: set[Interface] = set()

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

    def be_called(self, name: str) -> None:
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
        for url in card_urls(settings.url):
            answer = await self._http.request("GET", url, headers={}, timeout_s=CALL_S)
            if answer.status != 200:
                problem = problem or f"there is no agent card (HTTP {answer.status}) at {url}"
                continue
            if len(answer.body) > _CARD_BYTES:
                raise PeerProtocolError(self.name, "its card is over 1 MiB")
            choice = Choice(url, settings.hosts, settings.bindings, settings.versions)
            try:
                self._card = read_remote_card(answer.body, choice)
            except ValueError as error:
                raise PeerProtocolError(self.name, str(error)) from None
            return self._card
        raise PeerProtocolError(self.name, problem)

    @asynccontextmanager
    async def converse(
        self, request: a2a_pb2.SendMessageRequest, call: Call
    ) -> AsyncIterator[Events]:
        """Send a message and read what answers it: a stream, or one event of a peer without.

        What refuses the message is raised on entering.
        """
        is_new = not request.message.task_id
        try:
            answer = await self._begin_in_some_version(request, call)
        except PeerRefusedError as error:
            # A card may promise streams that aren't there.
            if not (self.card.streams and is_new and error.refusal == _NO_STREAMS):
                raise
            answer = await self._begin(_sending(request, call, self.settings.idle_s))
        async with answer.opened, aclosing(answer.events()) as events:
            yield events

    @asynccontextmanager
    async def subscribe(self, task_id: str, call: Call) -> AsyncIterator[Events]:
        """Read what becomes of a task. What refuses that is raised on entering.

        This and `get` are for tasks that are under way: they are tried behind an open breaker, too.
        """
        answer = await _first_of(self._binding().subscribe(task_id, call))
        self._breaker.retry_now()
        async with answer.opened, aclosing(answer.events()) as events:
            yield events

    async def get(self, task_id: str) -> task_pb2.Task:
        """Return a task."""
        task = await self._binding().get(task_id)
        self._breaker.retry_now()
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

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """Cancel a task and return it."""
        return await self._binding().cancel(task_id)

    async def _begin_in_some_version(
        self, request: a2a_pb2.SendMessageRequest, call: Call
    ) -> "_Answer":
        """Begin as the card says; in the other version, once, if that turns out to be wrong."""

        def opening() -> _Open:
            if self.card.streams:
                return lambda binding: binding.stream(request, call)
            return _sending(request, call, self.settings.idle_s)

        try:
            return await self._begin(opening())
        except PeerRefusedError as error:
            is_path_missing = error.refusal == _NOT_FOUND and not request.message.task_id
            if self.card.interface in self._others or not (
                error.refusal in FOREIGN or is_path_missing
            ):
                raise
            self._others.add(self.card.interface)
            try:
                answer = await self._begin(opening())
            except PeerRefusedError as other:
                self._others.discard(self.card.interface)
                if other.refusal in FOREIGN:
                    raise error from None
                raise
        logger.warning("remote.other_version", extra={"peer": self.name})
        return answer

    async def _begin(self, opening: "_Open") -> "_Answer":
        """Open a stream and wait for its first event: only then the peer has answered."""
        with self._breaker.guard():
            return await _first_of(opening(self._binding()))

    def _binding(self) -> PeerBinding:
        interface = self.card.interface
        if interface in self._others:
            interface = interface.in_other_version()
        found = self._bindings.get(interface)
        if found is None:
            found = self._bindings[interface] = self._bind(interface)
        return found

    def _bind(self, interface: Interface) -> PeerBinding:
        match interface.binding:
            case Binding.JSONRPC:
                return JsonRpc(self._http, interface)
            case Binding.REST:
                return Rest(self._http, interface)
        # gRPC is loaded by processes of agents anyway, but the types of its status aren't.
        from trunkline_bridge.outbound.speaking.grpc import Grpc, open_channel

        channel = self._channels.get(interface.url)
        if channel is None:
            channel = self._channels[interface.url] = open_channel(interface)
        return Grpc(self.name, channel, interface, self.settings.headers)


_Open: TypeAlias = Callable[[PeerBinding], AbstractAsyncContextManager[Events]]


class _Answer(NamedTuple):
    """A stream whose first event has come; without one, it ended at once."""

    first: PeerEvent | None
    rest: Events
    opened: AsyncExitStack

    async def events(self) -> AsyncGenerator[PeerEvent]:
        if self.first is not None:
            yield self.first
            async for event in self.rest:
                yield event


async def _first_of(opening: AbstractAsyncContextManager[Events]) -> _Answer:
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(opening)
        first = await anext(events, None)
        return _Answer(first, events, stack.pop_all())


def _sending(request: a2a_pb2.SendMessageRequest, call: Call, timeout_s: float) -> _Open:
    """Send without a stream, for an answer at once: how a task goes on is looked at later."""
    now = a2a_pb2.SendMessageRequest()
    now.CopyFrom(request)
    now.configuration.return_immediately = True

    @asynccontextmanager
    async def send(binding: PeerBinding) -> AsyncIterator[Events]:
        response = await binding.send(now, call, timeout_s=timeout_s)
        yield _one(response)

    return send


async def _one(response: a2a_pb2.StreamResponse) -> Events:
    yield PeerEvent(response)
