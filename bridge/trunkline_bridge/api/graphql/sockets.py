"""GraphQL over WebSockets: the subprotocol graphql-transport-ws at `/graphql`.

The library speaks the protocol. This module authenticates callers, as for the sockets of rooms,
checks the messages of clients, and ends connections.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState
from strawberry.asgi import ASGIWebSocketAdapter, GraphQL
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL
from strawberry.subscriptions.protocols.graphql_transport_ws.handlers import (
    BaseGraphQLTransportWSHandler,
    Operation,
)
from strawberry.subscriptions.protocols.graphql_transport_ws.types import Message

from trunkline.a2a_wire.errors import WireError, invalid_params, to_wire_error
from trunkline.errors import TrunklineError
from trunkline_bridge.api.graphql.context import MeshAccess, OperationContext
from trunkline_bridge.api.graphql.endpoint import parse_request
from trunkline_bridge.api.graphql.errors import LIMIT_ERROR, error_result
from trunkline_bridge.api.graphql.schema import MeshSchema
from trunkline_bridge.callers.caller import CallerFactory
from trunkline_bridge.callers.socket_callers import authenticate_socket
from trunkline_bridge.http.in_flight import Connection, InFlightRequests, find_connection
from trunkline_bridge.http.json_decoder import decode_json
from trunkline_bridge.http.tracing import SocketTrace
from trunkline_bridge.http.websockets import (
    CLOSE_RESTART,
    WRITE_TIMEOUT_S,
    cut_reason,
    find_close_code,
    refuse_socket,
)

if TYPE_CHECKING:
    from strawberry.schema import BaseSchema

_INIT_TIMEOUT_S: Final = 10.0
_MAX_ID_CHARS: Final = 100


class GraphQLSockets:
    """The ASGI application of GraphQL over WebSockets."""

    def __init__(
        self,
        schema: MeshSchema,
        mesh: MeshAccess,
        callers: CallerFactory,
        in_flight: InFlightRequests,
    ) -> None:
        self._mesh = mesh
        self._callers = callers
        self._in_flight = in_flight
        self._view = _View(schema, mesh)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        try:
            if GRAPHQL_TRANSPORT_WS_PROTOCOL not in scope.get("subprotocols", ()):
                problem = f"must have {GRAPHQL_TRANSPORT_WS_PROTOCOL}"
                raise invalid_params(("Sec-WebSocket-Protocol", problem))
            caller = await authenticate_socket(self._callers, scope)
        except (WireError, TrunklineError) as error:
            await refuse_socket(to_wire_error(error), scope, receive, send)
            return
        socket = WebSocket(scope, receive, send)
        connection = find_connection(scope) or Connection()

        async def abort(error: Exception | None) -> None:
            await _close(socket, error)

        async with self._in_flight.track(connection, send_abort=abort):
            # Each operation is counted for the rate of the account when it begins.
            await self._view.run(socket, OperationContext(caller, self._mesh, counted=0))


async def _close(socket: WebSocket, error: Exception | None) -> None:
    """Close a connection: its credential is refused, or this process stops."""
    if socket.application_state is not WebSocketState.CONNECTED:
        return
    if error is None:
        await socket.close(CLOSE_RESTART, "the bridge stops; connect again, after the last cursor")
        return
    wire_error = to_wire_error(error)
    await socket.close(find_close_code(wire_error), cut_reason(wire_error.text))


class _Adapter(ASGIWebSocketAdapter):
    """Sends frames with a time limit."""

    async def send_json(self, message: Mapping[str, object]) -> None:
        """Send a frame. It waits while the client's buffers are full."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await super().send_json(message)
        except TimeoutError:
            connection = find_connection(self.ws.scope)
            if connection is not None:
                with suppress(TimeoutError):
                    await connection.abort()


class _Handler(BaseGraphQLTransportWSHandler[OperationContext, None]):
    """Checks the frames of clients, and makes a span of each operation."""

    websocket: _Adapter

    async def handle_message(self, message: Message) -> None:
        """Serve a frame."""
        frame: Any = message
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            await self.handle_invalid_message("frames are objects with `type`")
            return
        if frame["type"] in ("subscribe", "complete"):
            tag = frame.get("id")
            if not isinstance(tag, str) or not 0 < len(tag) <= _MAX_ID_CHARS:
                reason = f"`id` must be a text of up to {_MAX_ID_CHARS} characters"
                await self.handle_invalid_message(reason)
                return
            if frame["type"] == "subscribe" and not await self._can_start(frame):
                return
        await super().handle_message(message)

    async def _can_start(self, frame: Mapping[str, Any]) -> bool:
        """Return whether an operation may start; otherwise report the reason."""
        try:
            parse_request(frame.get("payload"))
            limit = self.context.mesh.settings.subscriptions
            if len(self.operations) >= limit and frame["id"] not in self.operations:
                text = f"the connection runs {limit} operations already; end one, or open another"
                raise WireError(LIMIT_ERROR, text)
        except WireError as error:
            payload: Any = error_result(error)["errors"]
            await self.send_message({"id": frame["id"], "type": "error", "payload": payload})
            return False
        return True

    def forget_id(self, id: str) -> None:  # noqa: A002  the library's name
        """Forget an operation, which its client may have ended at the same time."""
        self.operations.pop(id, None)

    async def run_operation(self, operation: Operation[OperationContext, None]) -> None:
        """Run an operation in a span of the trace that the connection's request names.

        The check of limits names the span.
        """
        with SocketTrace(self.websocket.ws.scope).operation_span("graphql"):
            await super().run_operation(operation)


class _View(GraphQL[OperationContext, None]):
    """The library's view, for WebSockets only."""

    websocket_adapter_class = _Adapter
    graphql_transport_ws_handler_class = _Handler

    def __init__(self, schema: MeshSchema, mesh: MeshAccess) -> None:
        super().__init__(
            # The handler of this subprotocol calls `stream` of a schema, and nothing else.
            cast("BaseSchema", schema),
            graphql_ide=None,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL,),
            connection_init_wait_timeout=timedelta(seconds=_INIT_TIMEOUT_S),
            max_subscriptions_per_connection=mesh.settings.subscriptions,
        )

    def is_websocket_origin_allowed(self, _request: WebSocket, _origin: str) -> bool:
        """Return True, because the origin was checked with the credential."""
        return True

    def decode_json(self, data: str | bytes) -> object:
        """Return the JSON of a frame, within our limits of nesting and numbers."""
        text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        try:
            return decode_json(text)
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None
