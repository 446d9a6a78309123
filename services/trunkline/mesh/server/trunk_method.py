"""Calls the methods of generated servicers for calls that come by a trunk."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.mesh.server.requests import check_request, make_deserializer

if TYPE_CHECKING:
    import grpc


class TrunkMethod:
    """A method of a servicer, as trunks call it."""

    def __init__(self, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """`handler` is generated, for a unary method or a method that returns a BatchStream."""
        self.is_stream: bool = handler.response_streaming
        # Any, because grpc's handler does not keep the types of its method.
        self._function: Any = handler.unary_unary or handler.unary_stream
        parse: Any = handler.request_deserializer
        self._parse = make_deserializer(parse)

    async def answer(self, request: bytes, context: "TrunkContext") -> BatchStream:
        """Answer a serialized request. The answer of a unary method is a stream without a source.

        Raises:
            TrunklineError: the error of the request or of the method.
        """
        answer = await self._function(check_request(self._parse(request)), context)
        return answer if self.is_stream else BatchStream(answer, on_sent=context.on_done)


class TrunkContext:
    """What methods that trunks carry use of gRPC's context."""

    __slots__ = ("_peer", "on_done")

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.on_done: Callable[[], None] | None = None

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Call `callback` when the response is sent."""
        self.on_done = partial(callback, self)

    def peer(self) -> str:
        """Return gRPC's name of the peer of the trunk."""
        return self._peer
