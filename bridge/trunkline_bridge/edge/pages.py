"""Pages beside the bindings: probes, and responses to unknown paths and methods."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Router, request_response
from starlette.types import Receive, Scope, Send

from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline_bridge.edge.http import METHOD_NOT_ALLOWED, ROUTE_NOT_FOUND, error_response
from trunkline_bridge.errors import WireError, to_wire_error
from trunkline_bridge.protocol import CARD_PATH

_SHOWN_LENGTH = 100


class Page:
    """Serves GET and HEAD by a Starlette endpoint function, and refuses other methods."""

    def __init__(self, function: Callable[[Request], Awaitable[Response]]) -> None:
        self._app = request_response(function)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app = self._app
        if scope["method"] not in ("GET", "HEAD"):
            app = method_not_allowed(scope["method"], allowed="GET, HEAD")
        await app(scope, receive, send)


def mount(path: str, routes: Sequence[BaseRoute]) -> Mount:
    """Return routes below a path. Unlike Starlette's own, no path is redirected."""
    return Mount(path, Router(routes, redirect_slashes=False, default=not_found))


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that no route has the path of a request."""
    # Not from the URL: that includes the Host header, which may contain anything.
    path = unquote(scope["path"])[:_SHOWN_LENGTH]
    text = (
        f"nothing is served at {path}; agents are at /agents/NAME (JSON-RPC), and below it "
        f"(HTTP+JSON: /message:send, /tasks and so on, of A2A 0.3 /v1/message:send and so on); "
        f"their cards are below it at {CARD_PATH}"
    )
    await error_response(WireError(ROUTE_NOT_FOUND, text))(scope, receive, send)


def method_not_allowed(method: str, *, allowed: str, hint: str = "") -> JSONResponse:
    """Return the response to an HTTP method that a path does not serve."""
    text = f"{method[:_SHOWN_LENGTH]} is not served here; send {allowed}{hint}"
    return error_response(WireError(METHOD_NOT_ALLOWED, text), headers={"allow": allowed})


class HealthEndpoints:
    """The handlers of `/healthz` and `/readyz`."""

    def __init__(self, directory: Directory, default_agent: str) -> None:
        """`default_agent` decides whether the bridge is ready."""
        self._directory = directory
        self._default_agent = default_agent

    async def health(self, _request: Request) -> Response:
        """Respond that the process is alive."""
        return JSONResponse({"status": "ok"}, headers={"cache-control": "no-store"})

    async def readiness(self, _request: Request) -> Response:
        """Respond whether requests would reach the default agent: 200, or 503 with the problem.

        The body also has the states of the circuit breakers, by the address of each host that was
        called and by the names of its agents.
        """
        body: dict[str, object]
        try:
            self._directory.get_agent(self._default_agent)
        except TrunklineError as error:
            body, status = {"status": "not ready", "problem": to_wire_error(error).text}, 503
        else:
            body, status = {"status": "ready"}, 200
        body["breakers"] = self._directory.breaker_states()
        body["agents"] = self._directory.agent_breaker_states()
        return JSONResponse(body, status_code=status, headers={"cache-control": "no-store"})
