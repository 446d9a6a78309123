"""The servicer of trunkline.v1.TrunkService, which carries all calls of a peer on one stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from trunkline.errors import InvalidArgumentError, PeerUnavailableError
from trunkline.server.handlers import StreamOpener
from trunkline.server.trunk_connection import TrunkMethods, TrunkServerConnection
from trunkline.v1 import trunk_service_pb2

SERVICE = trunk_service_pb2.DESCRIPTOR.services_by_name["TrunkService"].full_name

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class TrunkServicer:
    """Serves trunks. Peers can call the methods added by `add_methods` over them."""

    def __init__(self) -> None:
        self._methods = TrunkMethods({}, {})
        self._connections: set[TrunkServerConnection] = set()
        self._is_draining = False

    def add_methods(
        self,
        service: str,
        handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]",
        streams: Mapping[str, StreamOpener],
    ) -> None:
        """Serve the unary handlers of a service, and its streams by their openers."""
        for name, handler in handlers.items():
            if name not in streams:
                self._methods.unary[f"{service}/{name}"] = _call_serialized(handler)
        for name, opener in streams.items():
            self._methods.streams[f"{service}/{name}"] = opener

    async def Connect(self, _requests: object, context: _Context) -> None:
        """Serve one peer until it leaves."""
        async with asyncio.TaskGroup() as group:
            connection = TrunkServerConnection(self._methods, context, group)
            if self._is_draining:
                connection.drain()
            self._connections.add(connection)
            try:
                await connection.serve()
            finally:
                self._connections.discard(connection)
                connection.close()
        raise PeerUnavailableError("this host", "it is shutting down; try again elsewhere")

    def drain(self) -> None:
        """Refuse new calls; each trunk ends after its last open one."""
        self._is_draining = True
        for connection in self._connections:
            connection.drain()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """Return the handlers by method name."""
        return {
            "Connect": grpc.stream_stream_rpc_method_handler(
                self.Connect,
                request_deserializer=trunk_service_pb2.ConnectRequest.FromString,
                response_serializer=trunk_service_pb2.ConnectResponse.SerializeToString,
            )
        }


def _call_serialized(
    handler: "grpc.RpcMethodHandler[Any, Any]",
) -> Callable[[bytes], Awaitable[bytes]]:
    # Typed by the handler's maker. Our handlers do not use their context.
    function: Any = handler.unary_unary
    parse: Any = handler.request_deserializer
    serialize: Any = handler.response_serializer

    async def answer(serialized: bytes) -> bytes:
        try:
            request = parse(serialized)
        except DecodeError:
            raise InvalidArgumentError("request", "can't be read as the method's") from None
        response: bytes = serialize(await function(request, None))
        return response

    return answer
