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
from urllib.parse import parse_qsl, urlsplit

from trunkline.errors import ConfigurationError

_PATH: Final = "/callback"
SIGN_IN_S: Final = 600.0
"""The time in which a person has to sign in."""
_READ_S: Final = 10.0
_LIMIT_BYTES: Final = 16 * 1024
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
    """Listen for the redirect. Yield its address, and what gets it."""
    redirect = _Redirect(asyncio.get_running_loop().create_future())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            parts = urlsplit(rest.rpartition(" ")[0])
            is_redirect = (
                method == "GET"
                and parts.path == _PATH
                and redirect.take(dict(parse_qsl(parts.query)))
            )
            status, text = ("200 OK", _DONE) if is_redirect else ("404 Not Found", "Not here.")
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
                f"Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}".encode()
            )
            await writer.drain()
        except (TimeoutError, ValueError, OSError, EOFError, asyncio.LimitOverrunError):
            # A port scanner or a browser's early connection.
            return
        finally:
            writer.close()

    try:
        listener = await asyncio.start_server(serve, "127.0.0.1", port, limit=_LIMIT_BYTES)
    except OSError as error:
        raise ConfigurationError("--port", f"{port} can't be used: {error.strerror}") from error
    async with listener:
        own = listener.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{own}{_PATH}", redirect
