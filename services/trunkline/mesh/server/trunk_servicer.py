"""The servicer of trunkline.v1.TrunkService, which carries all calls of a peer on one stream."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

import grpc

from trunkline.core.identity import LIFETIME
from trunkline.errors import PeerUnavailableError
from trunkline.mesh.server.authorization import MeshAuthorizer
from trunkline.mesh.server.handlers import OpenStream, TaskStreamMethod, parse_request
from trunkline.mesh.server.trunk_connection import (
    SerializedMethod,
    TrunkMethods,
    TrunkServerConnection,
)
from trunkline.v1 import trunk_service_pb2

MAX_AGE_S: Final = LIFETIME.total_seconds()
"""The time for which a connection takes new calls. The peer's certificate has ended then."""
SERVICE = trunk_service_pb2.DESCRIPTOR.services_by_name["TrunkService"].full_name

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# gRPC's name of the peer of the trunk on which a call arrives.
_peer: ContextVar[str] = ContextVar("peer", default="")


class TrunkServicer:
    """Serves trunks. Peers can call the methods added by `add_methods` over them."""

    def __init__(self, authorizer: MeshAuthorizer) -> None:
        """`authorizer` checks each call."""
        self._authorizer = authorizer
        self._methods = TrunkMethods({}, {})
        self._connections: set[TrunkServerConnection] = set()
        self._is_draining = False

    def add_methods(
        self,
        service: str,
        handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]",
        streams: Mapping[str, TaskStreamMethod[Any]],
    ) -> None:
        """Serve the methods of a service: the unary ones by their handlers, and the streams.

        Other streams are served by plain gRPC only.
        """
        for name, handler in handlers.items():
            if name not in streams and not handler.response_streaming:
                self._methods.unary[f"{service}/{name}"] = _wrap_handler(handler)
        for name, method in streams.items():
            self._methods.streams[f"{service}/{name}"] = method

    async def Connect(self, _requests: object, context: _Context) -> None:
        """Serve one peer until it leaves."""
        # The tasks of the group inherit it.
        _peer.set(context.peer())
        async with asyncio.TaskGroup() as group:
            connection = TrunkServerConnection(self._methods, context, group, self._authorizer)
            if self._is_draining:
                connection.drain()
            self._connections.add(connection)
            aging = asyncio.get_running_loop().call_later(MAX_AGE_S, connection.drain)
            try:
                await connection.serve()
            finally:
                aging.cancel()
                self._connections.discard(connection)
                connection.close()
        raise PeerUnavailableError("this host", "it is shutting down; try again elsewhere")

    def drain(self) -> None:
        """Refuse new calls; each trunk ends after its last open one."""
        self._is_draining = True
        for connection in self._connections:
            connection.drain()

    def end_revoked(self) -> None:
        """End the trunks of peers that are no longer accepted, with all their calls."""
        for connection in self._connections:
            connection.end_if_revoked()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """Return the handlers by method name."""
        return {
            "Connect": grpc.stream_stream_rpc_method_handler(
                self.Connect,
                request_deserializer=trunk_service_pb2.ConnectRequest.FromString,
                response_serializer=trunk_service_pb2.ConnectResponse.SerializeToString,
            )
        }


class _TrunkContext:
    """The `UnaryContext` of a call on a trunk."""

    __slots__ = ("on_done",)

    def __init__(self) -> None:
        self.on_done: Callable[[], None] | None = None

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Call `callback` when the response is sent."""
        self.on_done = partial(callback, self)

    def peer(self) -> str:
        """Return gRPC's name of the peer of the trunk."""
        return _peer.get()


def _wrap_handler(handler: "grpc.RpcMethodHandler[Any, Any]") -> SerializedMethod:
    # Any, because grpc's handler does not keep the types of its method.
    function: Any = handler.unary_unary
    parse: Any = handler.request_deserializer
    serialize: Any = handler.response_serializer

    async def answer(serialized: bytes) -> OpenStream:
        context = _TrunkContext()
        response = await function(parse_request(parse, serialized), context)
        return OpenStream(serialize(response), on_sent=context.on_done)

    return answer
