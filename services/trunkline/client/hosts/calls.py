"""How calls to a host are made: on the trunk where there is one, else one by one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from trunkline.client.backoff import Backoff
from trunkline.client.channels import MeshChannel, peer_of
from trunkline.client.status import mesh_errors
from trunkline.client.stream import TaskStream
from trunkline.client.stream import opened as opened_plainly
from trunkline.client.trunk import REQUEST_BYTES, Trunk
from trunkline.errors import PeerProtocolError, PeerUnavailableError, UnsupportedOperationError

UNARY_TIMEOUT_S = 60.0

_Response = TypeVar("_Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[_Response]):
    """A method by its full name; how its plain call is made, and what it answers with."""

    name: str
    plain: Callable[..., Any]
    response: type[_Response]


class HostCalls:
    """Makes the calls of a client. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.peer = peer_of(channel)
        self._trunk: Trunk | None = channel.trunk if isinstance(channel, MeshChannel) else None

    def probe(self) -> None:
        """Let the next call through even if the host kept failing: whoever asks paces himself."""
        if self._trunk is not None:
            self._trunk.breaker.retry_now()

    async def read(self, method: Method[_Response], request: Message) -> _Response:
        """Call a method that may be repeated: once more if the trunk breaks under it."""
        try:
            return await self.call(method, request)
        except PeerUnavailableError as error:
            if self._trunk is None or error.peer != self.peer:
                # gRPC repeats plain calls by itself.
                raise
        await Backoff().pause()
        return await self.call(method, request)

    async def call(
        self, method: Method[_Response], request: Message, *, timeout_s: float = UNARY_TIMEOUT_S
    ) -> _Response:
        """Call a method once."""
        serialized = request.SerializeToString()
        trunk = self._trunk
        if trunk is not None and trunk.is_served and len(serialized) <= REQUEST_BYTES:
            try:
                answer = await trunk.unary(method.name, serialized, timeout_s=timeout_s)
            except UnsupportedOperationError:
                if trunk.is_served:
                    raise
            else:
                return self._parsed(method, answer)
        with mesh_errors(self.peer):
            response: Awaitable[_Response] = method.plain(request, timeout=timeout_s)
            return await response

    @asynccontextmanager
    async def opened(self, method: Method[Any], request: Message) -> AsyncIterator[TaskStream]:
        """Open a method's stream."""
        serialized = request.SerializeToString()
        trunk = self._trunk
        if trunk is not None and trunk.is_served and len(serialized) <= REQUEST_BYTES:
            async with AsyncExitStack() as stack:
                try:
                    first, batches = await stack.enter_async_context(
                        trunk.stream(method.name, serialized)
                    )
                except UnsupportedOperationError:
                    if trunk.is_served:
                        raise
                else:
                    begun = TaskStream(self._parsed(method, first), batches)
                    # A stream may stand for days, and this hold a large snapshot.
                    del first
                    yield begun
                    return
        async with opened_plainly(lambda: method.plain(request), peer=self.peer) as stream:
            yield stream

    def _parsed(self, method: Method[_Response], serialized: bytes) -> _Response:
        try:
            return method.response.FromString(serialized)
        except DecodeError:
            raise PeerProtocolError(self.peer, "its answer can't be read") from None
