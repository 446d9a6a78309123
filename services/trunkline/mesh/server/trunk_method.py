"""The methods of generated servicers, for calls that come by a trunk."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from trunkline.mesh.server.requests import make_deserializer

if TYPE_CHECKING:
    import grpc


class TrunkMethod:
    """A method of a servicer, as trunks call it."""

    __slots__ = ("call", "is_stream", "parse")

    def __init__(self, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """`handler` is generated, for a unary method or a method that returns a BatchStream."""
        self.is_stream: bool = handler.response_streaming
        # Any, because grpc's handler does not keep the types of its method.
        self.call: Any = handler.unary_unary or handler.unary_stream
        """The method of the servicer. It takes a request and a context."""
        parse: Any = handler.request_deserializer
        self.parse: Callable[[bytes], object] = make_deserializer(parse)
        """Reads a request, or returns UNREADABLE."""


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
