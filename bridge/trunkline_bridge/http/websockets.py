"""WebSockets under uvicorn: limits, and responses to refused requests."""

from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import dumps
from trunkline_bridge.http.messages import encode_headers, rest_error_body

MAX_FRAME_BYTES: Final = 512 * 1024
"""Limit of a message that a client sends. Larger ones close the connection with 1009."""


class RoomSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, without headers in logs and with the timer of our server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*args, **kwargs)
        # `websockets` logs headers, and so credentials, if the log level is `debug`.
        self.conn.debug = False

    def check_timeout(self, _now: float) -> None:
        """Do nothing: pings find connections that are dead."""


async def refuse_socket(error: WireError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the request for a WebSocket with an HTTP error, before it is accepted."""
    if (await receive())["type"] != "websocket.connect":
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.text[:100]})
        return
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        **error.headers(),
    }
    status = error.kind.http_status
    start = {"type": "websocket.http.response.start", "status": status}
    await send({**start, "headers": encode_headers(headers)})
    body = dumps(rest_error_body(error)).encode()
    await send({"type": "websocket.http.response.body", "body": body})
