"""The listener for join tokens: TLS without client certificates, and one method."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from trunkline.core.identity import MeshCredentials
from trunkline.core.runtime import start_grpc_server
from trunkline.errors import UnauthenticatedError
from trunkline.mesh.server.authorization import admit_anybody
from trunkline.mesh.server.interceptor import CallInterceptor
from trunkline.mesh.server.mesh_server import HANDSHAKE_MS
from trunkline.v1 import identity_service_pb2, identity_service_pb2_grpc

_JOIN: Final = "/trunkline.v1.IdentityService/Join"
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    # A token and a signing request.
    ("grpc.max_receive_message_length", 64 * 1024),
    # Anybody may connect. A connection that says nothing must not hold a file for two minutes.
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # Until a client confirms our settings, grpc accepts headers of any size up to 16 MiB.
    ("grpc.http2.settings_timeout", HANDSHAKE_MS),
)
_CALLS: Final = 16
_STOP_GRACE_S: Final = 1.0


@asynccontextmanager
async def serve_join(
    servicer: identity_service_pb2_grpc.IdentityServiceServicer,
    credentials: MeshCredentials,
    address: str,
) -> AsyncIterator[str]:
    """Serve `Join` at an address; yield it with its real port. Other methods are refused.

    Raises:
        RuntimeError: the address can't be listened on.
    """
    server = grpc.aio.server(
        interceptors=(CallInterceptor(admit_anybody),),
        options=_OPTIONS,
        maximum_concurrent_rpcs=_CALLS,
    )
    server.add_generic_rpc_handlers((_JoinHandler(servicer.Join),))
    port = server.add_secure_port(address, credentials.public_server_credentials())
    await start_grpc_server(server)
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(_STOP_GRACE_S)


class _JoinHandler(grpc.GenericRpcHandler):
    """Serves `Join`. Every other method of any service says how to join."""

    def __init__(self, join: Callable[..., Any]) -> None:
        self._join = grpc.unary_unary_rpc_method_handler(
            join,
            request_deserializer=identity_service_pb2.JoinRequest.FromString,
            response_serializer=identity_service_pb2.JoinResponse.SerializeToString,
        )
        self._refuse: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
            _refuse
        )

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a method."""
        return self._join if handler_call_details.method == _JOIN else self._refuse


async def _refuse(_requests: object, _context: object) -> None:
    raise UnauthenticatedError(
        "this address only takes join tokens: `trunkline mesh token` where the mesh runs makes one"
    )
