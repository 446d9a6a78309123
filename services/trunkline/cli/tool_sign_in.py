"""`trunkline tools login`: a person's sign-in to an MCP server by OAuth.

The tool adapter has the OAuth client and the tokens. The command brings it the redirect of the
person's browser, which a loopback address of this machine receives (RFC 8252, section 7.3).
"""

import asyncio
import secrets
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import print_stderr
from trunkline.errors import ConfigurationError, SignInFailedError

_PATH: Final = "/callback"
_WAIT_S: Final = 600.0
_READ_S: Final = 10.0
_LIMIT_BYTES: Final = 16 * 1024
_DONE: Final = "Trunkline has the answer. Close this page, and see the terminal."


async def log_in(server: str, mesh: str | None, *, port: int, opens_browser: bool) -> ExitCode:
    """Sign in to a server: print the URL, and wait for the browser's redirect.

    `port` is that of the redirect, on 127.0.0.1; 0: a free one.

    Raises:
        ConfigurationError: the port is taken.
        InvalidArgumentError: there is no such server, or nobody signs in to it.
        SignInFailedError: the server or the authorization server refuses, or nobody signs in.
    """
    async with (
        open_mesh_view(mesh) as view,
        _receive_redirect(port) as (redirect_uri, redirect),
    ):
        client = view.tool_client()
        url = await client.start_sign_in(server, redirect_uri)
        redirect.state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        print_stderr("Open this page to sign in:")
        print(url, flush=True)
        if opens_browser:
            await asyncio.to_thread(webbrowser.open, url)
        try:
            async with asyncio.timeout(_WAIT_S):
                parameters = await redirect.answer
        except TimeoutError:
            problem = "nobody has signed in within ten minutes"
            raise SignInFailedError(server, problem) from None
        await client.complete_sign_in(server, parameters)
    print_stderr(f"signed in to {server}")
    return ExitCode.OK


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
async def _receive_redirect(port: int) -> AsyncIterator[tuple[str, _Redirect]]:
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
