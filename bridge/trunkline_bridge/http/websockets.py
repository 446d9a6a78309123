"""WebSockets under uvicorn: limits, and responses to refused requests."""

from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from trunkline.a2a_wire.errors import FORBIDDEN, UNAUTHENTICATED, UNAVAILABLE, WireError
from trunkline.a2a_wire.json_values import dumps
from trunkline_bridge.http.messages import encode_headers, rest_error_body

MAX_FRAME_BYTES: Final = 512 * 1024
"""Limit of a message that a client sends. Larger ones close the connection with 1009."""


CLOSE_NORMAL: Final = 1000
CLOSE_UNSUPPORTED: Final = 1003
CLOSE_CREDENTIAL: Final = 1008
CLOSE_INTERNAL: Final = 1011
CLOSE_RESTART: Final = 1012
CLOSE_TRY_AGAIN: Final = 1013

WRITE_TIMEOUT_S: Final = 60.0
"""A client that takes a frame no faster than this is disconnected, and may continue later."""
# RFC 6455, 5.5.
_REASON_BYTES: Final = 123


def cut_reason(reason: str) -> str:
    """Return a reason that fits into a close frame."""
    return reason.encode()[:_REASON_BYTES].decode(errors="ignore")


def find_close_code(error: WireError) -> int:
    """Return the code with which a connection is closed for an error."""
    if error.kind in (UNAUTHENTICATED, FORBIDDEN):
        return CLOSE_CREDENTIAL
    return CLOSE_TRY_AGAIN if error.kind is UNAVAILABLE else CLOSE_INTERNAL


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
        close = {"type": "websocket.close", "code": CLOSE_CREDENTIAL}
        await send({**close, "reason": cut_reason(error.text)})
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
