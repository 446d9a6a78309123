"""Speaks MCP with one running server, through the SDK's client. Imports mcp, so load it lazily."""

import asyncio
import contextvars
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import context as otel_context
from opentelemetry import trace
from pydantic import ValidationError

from trunkline.errors import PeerProtocolError, ToolServerUnavailableError
from trunkline.tools.config import Overlay
from trunkline.tools.content import failed, to_result, to_tool
from trunkline.tools.server_process import ServerProcess
from trunkline.v1 import tool_service_pb2

logger = logging.getLogger(__name__)

# A tool that prints a stray line to stdout is forgiven; a server that does nothing else is not.
_STRAY_LINES_IN_A_ROW = 100
_LIST_PAGES = 100


class Session:
    """An open MCP session. Calls may come from any task, many at a time."""

    def __init__(self, name: str, process: ServerProcess, client: Client) -> None:
        self._name = name
        self._process = process
        self._client = client

    async def list_tools(self, overlay: Overlay) -> dict[str, tool_service_pb2.Tool]:
        """Return all tools the server has now, by name.

        Raises:
            ToolServerUnavailableError: it did not list them.
        """
        tools: dict[str, tool_service_pb2.Tool] = {}
        cursor: str | None = None
        try:
            for _ in range(_LIST_PAGES):
                with _unrecorded():
                    page = await self._client.list_tools(cursor=cursor)
                for tool in page.tools:
                    tools[tool.name] = to_tool(self._name, tool, overlay)
                cursor = page.next_cursor
                if cursor is None:
                    break
        except (MCPError, ValidationError) as error:
            if self._process.has_ended.is_set():
                problem = f"{await self._process.problem()} before it was ready"
            else:
                problem = "it does not list its tools"
            raise ToolServerUnavailableError(self._name, problem) from error
        return tools

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], *, on_progress: ProgressFnT, limit_bytes: int
    ) -> tool_service_pb2.ToolResult:
        """Call a tool. Canceling this tells the server to cancel the tool.

        Raises:
            ToolServerUnavailableError: the server ended meanwhile.
            PeerProtocolError: what it answered is no result, or not what it declared.
        """
        try:
            result = await self._client.call_tool(
                tool, dict(arguments), progress_callback=on_progress
            )
        except MCPError as error:
            if self._process.has_ended.is_set():
                problem = f"{await self._process.problem()} during the call"
                raise ToolServerUnavailableError(self._name, problem) from error
            return failed(error.error.message)
        except (ValidationError, RuntimeError) as error:
            # The SDK's RuntimeError says that the result doesn't fit the tool's output schema.
            problem = f"the result of {tool} is not what the server declares"
            raise PeerProtocolError(f"tool server {self._name!r}", problem) from error
        return to_result(result, tool=f"{self._name}/{tool}", limit_bytes=limit_bytes)

    async def watch(self, on_tools_changed: Callable[[], None]) -> None:
        """Listen for changes of the tool list on protocols where one has to; else return."""
        capability = self._client.server_capabilities.tools
        if capability is None or not capability.list_changed:
            return
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            with _unrecorded():
                async with self._client.listen(tools_list_changed=True) as changes:
                    # What changed before this was open has not been told.
                    on_tools_changed()
                    async for _ in changes:
                        on_tools_changed()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            extra = {"server": self._name, "error": type(error).__name__}
            logger.info("tool_server.not_watched", extra=extra)


@asynccontextmanager
async def open_session(
    process: ServerProcess, *, on_tools_changed: Callable[[], None]
) -> AsyncIterator[Session]:
    """Shake hands with a server that has just been started. Give it a deadline from outside."""

    async def handle(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            on_tools_changed()

    client = Client(
        _Pipes(process),
        cache=None,
        message_handler=handle,
        client_info=mcp_types.Implementation(name="trunkline", version=version("trunkline")),
    )
    async with AsyncExitStack() as stack:
        with _unrecorded():
            await stack.enter_async_context(client)
        yield Session(process.name, process, client)


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Keep spans from being recorded inside, here and in the server: nobody asked for the work."""
    parent = trace.SpanContext(
        trace_id=random.getrandbits(128) | 1,
        span_id=random.getrandbits(64) | 1,
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.DEFAULT),
    )
    token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    try:
        yield
    finally:
        otel_context.detach(token)


class _Pipes:
    """The process as the SDK's transport: newline-delimited JSON-RPC, and no queue between."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def __aenter__(self) -> tuple["_Reader", "_Writer"]:
        return _Reader(self._process), _Writer(self._process)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The process belongs to whoever started it."""


class _End:
    """One end of the pipes, which there is nothing to close on."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Reader(_End):
    def __aiter__(self) -> "_Reader":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        strays = 0
        while (line := await self._process.read_line()) is not None:
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                strays += 1
            else:
                return SessionMessage(message)
            # We are inside the client here, whose work has a parent, if one of no trace.
            extra = {"server": self._process.name}
            contextvars.Context().run(logger.debug, "tool_server.stray_line", extra=extra)
            if strays >= _STRAY_LINES_IN_A_ROW:
                self._process.give_up("it prints what is no MCP message on stdout")
                break
            if not strays % 10:
                # Lines that are there already are read without giving way to anyone else.
                await asyncio.sleep(0)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Writer(_End):
    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._process.write_line(line.encode())
            if not _is_farewell(item):
                await self._process.drain()
        except OSError:
            self._process.has_ended.set()
            raise anyio.ClosedResourceError from None


def _is_farewell(item: SessionMessage) -> bool:
    """Whether it takes back a request: its caller has left, and waits for no slow reader."""
    message = item.message
    if isinstance(message, mcp_types.JSONRPCNotification):
        return message.method == "notifications/cancelled"
    return False
