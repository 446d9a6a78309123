"""Speaks MCP with one running server, through the SDK's client. Imports mcp, so load it lazily."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

import mcp_types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import context as otel_context
from opentelemetry import trace
from pydantic import ValidationError

from trunkline.client.backoff import Backoff
from trunkline.errors import PeerProtocolError, ToolServerUnavailableError
from trunkline.tools.config import ServerOverlay
from trunkline.tools.connection import (
    CallNotDeliveredError,
    RequestOutcome,
    ServerConnection,
    request_outcome,
)
from trunkline.tools.conversion import to_result, to_tool
from trunkline.tools.http_endpoint import HttpEndpoint
from trunkline.tools.results import failed_result
from trunkline.tools.server_process import ServerProcess
from trunkline.tools.stdio import StdioTransport
from trunkline.tools.streamable_http import open_http_streams
from trunkline.v1 import tool_service_pb2

logger = logging.getLogger(__name__)

_LIST_PAGES = 100
# Resources that are read for one result; more stay links.
_RESOURCES = 8
# Before changes of a list are listened for again, after the server has broken that off.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class McpSession:
    """An open MCP session. Calls may come from any task, many at a time."""

    def __init__(self, link: ServerConnection, client: Client) -> None:
        self._name = link.name
        self._link = link
        self._client = client

    async def list_tools(self, overlay: ServerOverlay) -> dict[str, tool_service_pb2.Tool]:
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
            if self._link.has_ended.is_set():
                problem = await self._link.describe_failed_start()
            else:
                problem = "it does not list its tools"
            raise ToolServerUnavailableError(self._name, problem) from error
        return tools

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any], *, on_progress: ProgressFnT
    ) -> tool_service_pb2.ToolResult:
        """Call a tool. Canceling this tells the server to cancel the tool.

        What the result links to on the server, and nobody else can read, is read at once.

        Raises:
            ToolServerUnavailableError: the server ended meanwhile.
            NotTakenError: it ended before, or knows this session no more.
            PeerProtocolError: what it answered is no result, or not what it declared.
        """
        note = RequestOutcome()
        token = request_outcome.set(note)
        try:
            result = await self._client.call_tool(
                tool, dict(arguments), progress_callback=on_progress
            )
            result.content = await self._with_resources(result.content)
        except MCPError as error:
            if note.is_undelivered:
                raise CallNotDeliveredError(await self._link.describe_end()) from error
            if self._link.has_ended.is_set():
                problem = await self._link.describe_end("during the call")
                raise ToolServerUnavailableError(self._name, problem) from error
            if note.is_server_down or error.error.code == CONNECTION_CLOSED:
                problem = note.problem or "the connection broke off during the call"
                raise ToolServerUnavailableError(self._name, problem) from error
            return failed_result(note.problem or error.error.message)
        except (ValidationError, RuntimeError) as error:
            # The SDK's RuntimeError says that the result doesn't fit the tool's output schema.
            problem = f"the result of {tool} is not what the server declares"
            raise PeerProtocolError(f"tool server {self._name!r}", problem) from error
        finally:
            request_outcome.reset(token)
        return to_result(result, tool=f"{self._name}/{tool}")

    async def _with_resources(
        self, blocks: Sequence[mcp_types.ContentBlock]
    ) -> list[mcp_types.ContentBlock]:
        """Put what links to the server's own resources lead to in their place.

        A caller has no session with the server, and this one may be gone when the link is followed.
        """
        found: list[mcp_types.ContentBlock] = []
        left = _RESOURCES
        for block in blocks:
            if isinstance(block, mcp_types.ResourceLink) and not _is_public(block.uri) and left:
                left -= 1
                found += await self._resource(block)
            else:
                found.append(block)
        return found

    async def _resource(self, link: mcp_types.ResourceLink) -> list[mcp_types.ContentBlock]:
        try:
            read = await self._client.read_resource(link.uri)
        except (MCPError, ValidationError):
            # It says more than nothing.
            return [link]
        return [mcp_types.EmbeddedResource(type="resource", resource=one) for one in read.contents]

    async def watch_tools(self, on_tools_changed: Callable[[], None]) -> None:
        """Listen for changes of the tool list on protocols where one has to; else return."""
        capability = self._client.server_capabilities.tools
        if capability is None or not capability.list_changed:
            return
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        backoff = Backoff(first_s=_FIRST_PAUSE_S, limit_s=_LONGEST_PAUSE_S)
        while not self._link.has_ended.is_set():
            try:
                with _unrecorded():
                    async with self._client.listen(tools_list_changed=True) as changes:
                        # What changed before this was open has not been told.
                        on_tools_changed()
                        async for _ in changes:
                            backoff.reset()
                            on_tools_changed()
            except SubscriptionLost:
                pass
            except (MCPError, TimeoutError) as error:
                extra = {"server": self._name, "error": type(error).__name__}
                logger.info("tool_server.not_watched", extra=extra)
                return
            await asyncio.sleep(backoff.next_s())


@asynccontextmanager
async def open_session(
    link: ServerConnection, *, on_tools_changed: Callable[[], None]
) -> AsyncIterator[McpSession]:
    """Shake hands with a server. Give it a deadline from outside.

    Raises:
        ToolServerUnavailableError: it does not want to, and is still there.
    """

    async def handle(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            on_tools_changed()

    client = Client(
        _transport(link),
        cache=None,
        message_handler=handle,
        client_info=mcp_types.Implementation(name="trunkline", version=version("trunkline")),
    )
    async with AsyncExitStack() as stack:
        try:
            with _unrecorded():
                await stack.enter_async_context(client)
        except Exception as error:
            # The SDK's own, in a group or not; what was seen on the way says more.
            if link.has_ended.is_set() or not link.transport_error:
                raise
            raise ToolServerUnavailableError(link.name, link.transport_error) from error
        yield McpSession(link, client)


def _is_public(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _transport(link: ServerConnection) -> Transport:
    if isinstance(link, ServerProcess):
        return StdioTransport(link)
    if isinstance(link, HttpEndpoint):
        return open_http_streams(link)
    raise TypeError(link)


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
