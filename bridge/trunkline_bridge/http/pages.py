"""Single pages, and the responses to unknown paths and methods."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Router, request_response
from starlette.types import Receive, Scope, Send

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.protocol import CARD_PATH
from trunkline_bridge.http.messages import (
    ROUTE_NOT_FOUND,
    error_response,
    method_not_allowed_error,
)

REFUSAL_KEY = "trunkline.refusal"
"""Key of the WireError in the scope of a request that is refused at any path."""

_SHOWN_LENGTH = 100


class Page:
    """An ASGI application that serves GET and HEAD with one endpoint function."""

    def __init__(self, function: Callable[[Request], Awaitable[Response]]) -> None:
        self._app = request_response(function)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app = self._app
        if scope["method"] not in ("GET", "HEAD"):
            app = method_not_allowed(scope["method"], allowed="GET, HEAD")
        await app(scope, receive, send)


def mount(path: str, routes: Sequence[BaseRoute]) -> Mount:
    """Return a mount of routes that, unlike Starlette's default, redirects no path."""
    return Mount(path, Router(routes, redirect_slashes=False, default=not_found))


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with 404, or with the refusal in the scope: no route matches the path."""
    if REFUSAL_KEY in scope:
        refusal = error_response(scope[REFUSAL_KEY], headers={"connection": "close"})
        await refusal(scope, receive, send)
        return
    # `Request.url` would include the Host header, which may contain anything.
    path = unquote(scope["path"])[:_SHOWN_LENGTH]
    text = (
        f"nothing is served at {path}; an agent has JSON-RPC at /agents/NAME and HTTP+JSON below "
        f"that (/message:send, /tasks and others; A2A 0.3: /v1/message:send and others); its card "
        f"is below that at {CARD_PATH}"
    )
    await error_response(WireError(ROUTE_NOT_FOUND, text))(scope, receive, send)


def method_not_allowed(method: str, *, allowed: str, hint: str = "") -> JSONResponse:
    """Return the response to an HTTP method that a path does not serve."""
    error = method_not_allowed_error(method, allowed=allowed, hint=hint)
    return error_response(error, headers={"allow": allowed})
