"""Pages beside the bindings: probes, and responses to unknown paths and methods."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Router, request_response
from starlette.types import Receive, Scope, Send

from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline.a2a_wire.protocol import CARD_PATH
from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline_bridge.edge.caller import CallerFactory
from trunkline_bridge.edge.http import (
    ROUTE_NOT_FOUND,
    RequestHeaders,
    error_response,
    method_not_allowed_error,
)

REFUSAL_KEY = "trunkline.refusal"
"""Key of the WireError in the scope of a request that is refused at any path."""

_SHOWN_LENGTH = 100
_NO_STORE = {"cache-control": "no-store"}


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


class HealthEndpoints:
    """The handlers of `/healthz` and `/readyz`."""

    def __init__(self, directory: Directory, callers: CallerFactory, default_agent: str) -> None:
        """Prepare the handlers; the bridge is ready if `default_agent` is."""
        self._directory = directory
        self._callers = callers
        self._default_agent = default_agent

    async def health(self, _request: Request) -> Response:
        """Respond that the process is alive."""
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    async def readiness(self, request: Request) -> Response:
        """Respond with 200 if the default agent is registered, else with 503.

        An authenticated caller also gets the problem, the state of each circuit breaker by host
        address and by agent name, and where messages between agents are stored.
        """
        parameters = RequestHeaders(request.scope)
        body: dict[str, object] = {"status": "ready"}
        detail: dict[str, object] = {}
        status = 200
        try:
            self._directory.get_agent(self._default_agent)
        except TrunklineError as error:
            body, status = {"status": "unavailable"}, 503
            detail["problem"] = to_wire_error(error).text
        # Probes have no credentials. They must not count as failed attempts to authenticate.
        if self._callers.has_credentials(parameters):
            try:
                identity = await self._callers.authenticate(parameters)
            except (WireError, TrunklineError) as error:
                return error_response(to_wire_error(error))
            if identity.is_authenticated:
                detail["breakers"] = self._directory.breaker_states()
                detail["agents"] = self._directory.agent_breaker_states()
                detail["messages"] = self._directory.messaging_mode() or "not served"
                body |= detail
        return JSONResponse(body, status_code=status, headers=_NO_STORE)
