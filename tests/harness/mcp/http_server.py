"""A scripted MCP server over streamable HTTP on a real socket, which records its requests."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from harness.remote.oauth_server import OAuthServer
from trunkline.tools.config import ServerConfig

PATIENCE_S = 300.0
SESSION = "mcp-session-id"


class Seats(BaseModel):
    """The form of a person's answer to an elicitation."""

    seats: int = 2
    view: str = "garden"


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request."""

    method: str
    headers: Mapping[str, str]


class HttpTools:
    """The server's script and its record of requests."""

    def __init__(self, *, is_older: bool, is_json: bool) -> None:
        self.url = ""
        self.requests: list[SeenRequest] = []
        self.answers: list[tuple[int, bytes]] = []
        """Statuses and bodies that replace the answers to the next posts."""
        self.call_answers: list[tuple[int, bytes]] = []
        """Those that replace the answers to the next tool calls; only in the newer protocol."""
        self.known: set[str] | None = None
        """The sessions that it knows; None: every opened one."""
        self.is_unknown_an_error = False
        """It answers requests of other sessions with an error of JSON-RPC, not with HTTP 404."""
        self.issuer: OAuthServer | None = None
        """The authorization server whose tokens it requires."""
        self.resource = ""
        """The resource of its metadata; empty: its URL."""
        self.authorization_server: str | None = ""
        """What its metadata names; empty: the issuer. None: only the issuer's metadata is here."""
        self.rights: dict[str, str] = {}
        """The scopes that tools need; only in the newer protocol."""
        self.calls: list[str] = []
        self.began = asyncio.Event()
        self.canceled = asyncio.Event()
        self.mcp = MCPServer("elsewhere")
        self._add_tools()
        self._is_older = is_older
        self._inner: ASGIApp = self.mcp.streamable_http_app(json_response=is_json)

    def config(self, **more: object) -> ServerConfig:
        """Return an entry of the `mcpServers` file for this server."""
        return ServerConfig.model_validate({"url": self.url, **more})

    def sessions(self) -> list[str]:
        """The sessions that requests named, each once, in order."""
        return list(
            dict.fromkeys(s for request in self.requests if (s := request.headers.get(SESSION)))
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the script, else as the SDK's server does."""
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        self.requests.append(SeenRequest(scope["method"], headers))
        if self.issuer is not None and await self._refuse(
            self.issuer, scope["path"], headers, send
        ):
            return None
        is_post = scope["method"] == "POST"
        if is_post and self._is_older and headers.get("mcp-method") == "server/discover":
            return await _say(send, 400, b'{"error": "no such method"}')
        if is_post and self.answers:
            return await _say(send, *self.answers.pop(0))
        if self.call_answers and headers.get("mcp-method") == "tools/call":
            return await _say(send, *self.call_answers.pop(0))
        session = headers.get(SESSION)
        if is_post and session and self.known is not None and session not in self.known:
            if self.is_unknown_an_error:
                message = json.loads((await receive())["body"])
                unknown = {"code": -32603, "message": "Session not found"}
                error = {"jsonrpc": "2.0", "id": message.get("id"), "error": unknown}
                return await _say(send, 200, json.dumps(error).encode())
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "gone"}}
            return await _say(send, 404, json.dumps(error).encode())
        return await self._inner(scope, receive, send)

    async def _refuse(
        self, issuer: OAuthServer, path: str, headers: Mapping[str, str], send: Send
    ) -> bool:
        """Answer with the metadata (RFC 9728), or refuse a token (RFC 6750)."""
        well_known = "/.well-known/oauth-protected-resource"
        if path.startswith("/.well-known/"):
            about: dict[str, Any] = {
                "resource": self.resource or self.url,
                "authorization_servers": [self.authorization_server or issuer.url],
            }
            if self.authorization_server is None:
                about, well_known = issuer.metadata(), "/.well-known/oauth-authorization-server"
            is_found = path.startswith(well_known)
            await _say(send, 200 if is_found else 404, json.dumps(about).encode())
            return True
        place = self.url.removesuffix("/mcp") + well_known + "/mcp"
        granted = issuer.granted.get(headers.get("authorization", "").removeprefix("Bearer "))
        right = self.rights.get(headers.get("mcp-name", ""), "")
        if granted is None:
            challenge = f'Bearer resource_metadata="{place}", scope="tools"'
            await _say(send, 401, b"{}", challenge)
        elif right and right not in granted.split():
            problem = f'error="insufficient_scope", scope="{right}"'
            await _say(send, 403, b"{}", f'Bearer {problem}, resource_metadata="{place}"')
        else:
            return False
        return True

    def _add_tools(self) -> None:
        def repeat(text: str) -> str:
            self.calls.append(text)
            return text

        async def count(n: int, ctx: Context) -> str:
            for done in range(1, n + 1):
                await ctx.report_progress(done, n, f"step {done}")
            return f"counted to {n}"

        async def hang() -> str:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.canceled.set()
            return "never"

        async def learn(ctx: Context) -> str:
            self.mcp.add_tool(repeat, name="learned")
            await ctx.session.send_tool_list_changed()
            await ctx.notify_tools_changed()
            return "learned"

        async def forget(ctx: Context) -> str:
            self.mcp.remove_tool("repeat")
            await ctx.session.send_tool_list_changed()
            await ctx.notify_tools_changed()
            return "forgotten"

        self.mcp.add_tool(demand)
        self.mcp.add_tool(repeat)
        self.mcp.add_tool(
            repeat, name="repeat_reading", annotations=ToolAnnotations(read_only_hint=True)
        )
        self.mcp.add_tool(self._reserve, name="reserve")
        for tool in (count, object_to, hang, learn, forget):
            self.mcp.add_tool(tool)

    async def _reserve(self, city: str, rounds: int, ctx: Context) -> str:
        """Ask by elicitation while the call is open."""
        self.calls.append(city)
        views: list[str] = []
        try:
            for number in range(1, rounds + 1):
                answer = await ctx.elicit(f"Table {number} in {city}?", Seats)
                if answer.action != "accept":
                    return f"No table in {city}: {answer.action}"
                views.append(f"{answer.data.seats} {answer.data.view}")
                await ctx.report_progress(number, rounds, "reserving")
        finally:
            self.canceled.set()
        return f"{city}: {', '.join(views)}"


def object_to(code: int) -> str:
    """Answer with an error of JSON-RPC, not with a result."""
    raise MCPError(code, "not with this text")


async def demand(what: str, ctx: Context) -> str:
    """Requests capabilities that an agent's client does not have."""
    match what:
        case "roots":
            return str(await ctx.session.list_roots())
        case "sampling":
            words = SamplingMessage(role="user", content=TextContent(type="text", text="?"))
            return str(await ctx.session.create_message([words], max_tokens=5))
    return str(await ctx.elicit("A table?", Seats))


async def _say(send: Send, status: int, body: bytes, challenge: str = "") -> None:
    headers = [(b"www-authenticate", challenge.encode())] if challenge else []
    kind = b"text/event-stream" if body.startswith(b"data:") else b"application/json"
    headers += [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def http_tools(
    *, is_older: bool = False, is_json: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpTools]:
    """Serve for the length of a block. `is_older` speaks the protocol before 2026-07-28."""
    tools = HttpTools(is_older=is_older, is_json=is_json)
    async with serving(tools, tls=tls):
        yield tools


@asynccontextmanager
async def serving(
    tools: HttpTools, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve it at a port; leaving cuts every connection."""
    config = _Config(
        tools.app,
        "127.0.0.1",
        port,
        interface="asgi3",
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=0,
        tls=tls,
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as group:
        served = group.create_task(server.serve())
        async with asyncio.timeout(PATIENCE_S):
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.005)
        at = server.servers[0].sockets[0].getsockname()[1]
        tools.url = f"{'https' if tls else 'http'}://localhost:{at}/mcp"
        try:
            yield
        finally:
            server.should_exit = True
            # A canceled server would leave its listening socket open.
            await served


class _Config(uvicorn.Config):
    def __init__(self, *args: Any, tls: ssl.SSLContext | None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._tls = tls

    def load(self) -> None:
        super().load()
        self.ssl = self._tls
