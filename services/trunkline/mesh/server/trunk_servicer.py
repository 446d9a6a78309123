"""The servicer of trunkline.v1.TrunkService, which carries all calls of a peer on one stream."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import grpc

from trunkline.core.identity import LIFETIME
from trunkline.errors import PeerUnavailableError
from trunkline.mesh.server.authorization import MeshAuthorizer
from trunkline.mesh.server.trunk_connection import TrunkServerConnection
from trunkline.mesh.server.trunk_method import TrunkMethod
from trunkline.mesh.trunk_wire.methods import is_carried
from trunkline.v1 import trunk_service_pb2, trunk_service_pb2_grpc

MAX_AGE_S: Final = LIFETIME.total_seconds()
"""The time for which a connection takes new calls. The peer's certificate has ended then."""
SERVICE = trunk_service_pb2.DESCRIPTOR.services_by_name["TrunkService"].full_name

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class TrunkServicer(trunk_service_pb2_grpc.TrunkServiceServicer):
    """Serves trunks. Peers can call the methods over them that trunks carry."""

    def __init__(self, authorizer: MeshAuthorizer) -> None:
        """`authorizer` checks each call."""
        self._authorizer = authorizer
        self._methods: dict[str, TrunkMethod] = {}
        self._connections: set[TrunkServerConnection] = set()
        self._is_draining = False

    @property
    def has_methods(self) -> bool:
        """True if there is a method to call."""
        return bool(self._methods)

    def add_methods(
        self, service: str, handlers: Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
    ) -> None:
        """Serve those methods of a service that trunks carry, by the handlers of their names."""
        for name, handler in handlers.items():
            method = f"{service}/{name}"
            if is_carried(method, is_stream=handler.response_streaming):
                self._methods[method] = TrunkMethod(handler)

    # A coroutine that reads and writes. The generated stubs know only iterators.
    async def Connect(  # type: ignore[override]
        self, _requests: object, context: _Context
    ) -> None:
        """Serve one peer until it leaves."""
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
