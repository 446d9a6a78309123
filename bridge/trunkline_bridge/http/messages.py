"""HTTP for all bindings: request headers and bodies, responses, and errors of HTTP itself."""

import asyncio
import contextlib
import re
from collections.abc import Mapping

from google.rpc import code_pb2
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from trunkline.a2a_wire.errors import (
    FORBIDDEN,
    OVERLOADED,
    TIMEOUT,
    UNAUTHENTICATED,
    UNAVAILABLE,
    ErrorKind,
    WireError,
)
from trunkline.a2a_wire.json_values import Json
from trunkline_bridge.http.in_flight import Peer, find_connection

PROBE_PATHS = frozenset({"/healthz", "/readyz"})
"""The paths of health checks."""
METRICS_PATH = "/metrics"
"""The path that Prometheus scrapes."""

PAYLOAD_TOO_LARGE = ErrorKind(-32600, "INVALID_REQUEST", 413)
UNSUPPORTED_MEDIA_TYPE = ErrorKind(-32600, "INVALID_REQUEST", 415)
MISDIRECTED_REQUEST = ErrorKind(-32600, "INVALID_REQUEST", 421)
REQUEST_TIMEOUT = ErrorKind(-32600, "INVALID_REQUEST", 408)
ROUTE_NOT_FOUND = ErrorKind(-32601, "METHOD_NOT_FOUND", 404, code_pb2.NOT_FOUND)
METHOD_NOT_ALLOWED = ErrorKind(-32601, "METHOD_NOT_FOUND", 405, code_pb2.UNIMPLEMENTED)

# Errors of HTTP itself or of the whole server. JSON-RPC reports all other errors with HTTP's 200.
HTTP_LEVEL_KINDS = frozenset(
    {
        PAYLOAD_TOO_LARGE,
        UNSUPPORTED_MEDIA_TYPE,
        REQUEST_TIMEOUT,
        UNAUTHENTICATED,
        FORBIDDEN,
        OVERLOADED,
        UNAVAILABLE,
        TIMEOUT,
    }
)

_ABSOLUTE_TARGET = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
# Limits on reading the rest of a rejected body.
_DRAIN_BYTES = 64 * 1024 * 1024
_DRAIN_S = 5.0
_SHOWN_LENGTH = 100


class RequestHeaders:
    """The headers of a request, with `:scheme` as in HTTP/2. Repeated headers are joined by commas.

    They are A2A's service parameters over HTTP.
    """

    __slots__ = ("_scope", "_values")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        values: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            values[name] = value if name not in values else values[name] + b", " + value
        values[b":scheme"] = scope.get("scheme", "http").encode("ascii")
        self._values = values

    @property
    def peer(self) -> Peer:
        """The client that sent them."""
        client, connection = self._scope.get("client"), find_connection(self._scope)
        return Peer(client[0] if client else "", connection.certificate_name if connection else "")

    def get(self, name: bytes) -> str | None:
        """Return a header by its name in lower case."""
        value = self._values.get(name)
        return None if value is None else value.decode("latin-1")


def set_host(headers: list[tuple[bytes, bytes]], host: bytes) -> None:
    """Replace the value of the Host header, if there is exactly one."""
    indices = [index for index, (name, _) in enumerate(headers) if name == b"host"]
    if len(indices) == 1:
        headers[indices[0]] = (b"host", host)


def split_absolute_target(target: bytes) -> tuple[bytes, bytes] | None:
    """Return the authority and the origin form of an absolute URL, or None for other targets."""
    match = _ABSOLUTE_TARGET.fullmatch(target)
    if match is None:
        return None
    authority, rest = match.groups()
    return authority, rest if rest.startswith(b"/") else b"/" + rest


def check_content_type(headers: RequestHeaders) -> None:
    """Check that a body is declared as JSON without compression.

    The declaration may be missing unless a web page sends the request: browsers let pages of other
    sites post anything but JSON without a preflight request.

    Raises:
        WireError: the body is declared as something else (415).
    """
    content_type = headers.get(b"content-type") or ""
    media_type = content_type.partition(";")[0].strip().lower()
    is_json = media_type.startswith("application/") and media_type.endswith(
        ("/json", "+json", "json-rpc")
    )
    is_from_page = headers.get(b"origin") is not None
    if not is_json and (media_type or is_from_page):
        text = f"content type {media_type[:100]!r} is not JSON; use application/json"
        raise WireError(UNSUPPORTED_MEDIA_TYPE, text)
    encoding = (headers.get(b"content-encoding") or "").strip().lower()
    if encoding not in ("", "identity"):
        # A few compressed bytes may expand to any size.
        text = f"content encoding {encoding[:100]!r} is not supported; send plain JSON"
        raise WireError(UNSUPPORTED_MEDIA_TYPE, text)


class RequestBody:
    """The body of a request, read within limits of size and time."""

    def __init__(
        self, headers: RequestHeaders, receive: Receive, *, limit_bytes: int, timeout_s: float
    ) -> None:
        declared = headers.get(b"content-length") or "0"
        self._declared_bytes = int(declared) if declared.isdecimal() else 0
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        self._has_more = True

    async def read(self) -> bytes:
        """Return the body.

        Raises:
            WireError: the body is larger than the limit (413) or did not arrive in time (408); the
                rest of it has not been read.
            ClientDisconnect: the client disconnected before the end of the body.
        """
        if self._declared_bytes > self._limit_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read()
        except TimeoutError:
            text = f"the body did not arrive within {self._timeout_s:g} s; send it again"
            raise WireError(REQUEST_TIMEOUT, text) from None

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size_bytes = 0
        while self._has_more:
            chunks.append(await self._next())
            size_bytes += len(chunks[-1])
            if size_bytes > self._limit_bytes:
                raise self._too_large()
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read the rest of the body and discard it: at most 64 MiB and for at most 5 s."""
        remaining_bytes = _DRAIN_BYTES
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_S):
                while self._has_more and remaining_bytes > 0:
                    remaining_bytes -= len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._has_more = message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    def _too_large(self) -> WireError:
        text = f"the body is larger than {self._limit_bytes} bytes; send large content by url"
        return WireError(PAYLOAD_TOO_LARGE, text)


def rest_error_body(error: WireError) -> Json:
    """Return an error in the form of A2A's HTTP+JSON: a google.rpc.Status under `error`."""
    return {
        "error": {
            "code": error.kind.http_status,
            "status": code_pb2.Code.Name(error.kind.grpc_code),
            "message": error.text,
            "details": error.details(),
        }
    }


def method_not_allowed_error(method: str, *, allowed: str, hint: str = "") -> WireError:
    """Return the error for an HTTP method that a path does not serve."""
    text = f"{method[:_SHOWN_LENGTH]} is not served here; send {allowed}{hint}"
    return WireError(METHOD_NOT_ALLOWED, text)


def error_response(error: WireError, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as the response to a request that no binding serves."""
    all_headers = {"cache-control": "no-store", **error.headers(), **(headers or {})}
    return JSONResponse(
        rest_error_body(error), status_code=error.kind.http_status, headers=all_headers
    )


class ResponseSender:
    """Sends one response and records its progress."""

    __slots__ = ("has_started", "is_complete", "send")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.has_started = False
        self.is_complete = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        self.has_started = True
        raw = encode_headers(headers)
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes) -> None:
        """Send a chunk of the body; `finish` sends the last one."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self, body: bytes = b"") -> None:
        """Send the last chunk of the body."""
        self.is_complete = True
        await self.send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers in ASGI's form."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
