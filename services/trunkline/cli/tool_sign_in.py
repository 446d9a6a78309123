"""The redirect of a person's sign-in to an MCP server by OAuth.

The tool adapter has the OAuth client and the tokens. The command brings it the redirect of the
person's browser, which a loopback address of this machine receives (RFC 8252, section 7.3).
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from trunkline.embedded_http import serve_routes
from trunkline.settings import HostPort

_PATH: Final = "/callback"
SIGN_IN_S: Final = 600.0
"""The time in which a person has to sign in."""
_DONE: Final = "Trunkline has the answer. Close this page, and see the terminal."


@dataclass(slots=True)
class _Redirect:
    """The redirect of the browser to this machine."""

    answer: "asyncio.Future[dict[str, str]]"
    """Its parameters."""
    state: str = ""
    """The `state` of the sign-in (RFC 6749, section 10.12). Requests with another are ignored."""

    def take(self, parameters: dict[str, str]) -> bool:
        """Take the parameters of a request; return whether they are of this sign-in."""
        is_ours = bool(self.state) and secrets.compare_digest(
            self.state.encode(), parameters.get("state", "").encode()
        )
        if is_ours and not self.answer.done():
            self.answer.set_result(parameters)
        return is_ours


@asynccontextmanager
async def receive_redirect(port: int) -> AsyncIterator[tuple[str, _Redirect]]:
    """Listen for the redirect. Yield its address, and the object that takes its parameters.

    Raises:
        ConfigurationError: the port can't be listened on.
    """
    redirect = _Redirect(asyncio.get_running_loop().create_future())

    async def respond(request: Request) -> Response:
        is_redirect = request.method == "GET" and redirect.take(dict(request.query_params))
        status, text = (200, _DONE) if is_redirect else (404, "Not here.")
        return PlainTextResponse(text, status, {"referrer-policy": "no-referrer"})

    routes, address = [Route(_PATH, respond)], HostPort("127.0.0.1", port)
    async with serve_routes(routes, address, where="--port") as own:
        yield f"http://127.0.0.1:{own}{_PATH}", redirect
