"""The tool adapter over real gRPC: lists, calls, cancellation, and one trace."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mcp.shared._otel
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mcp import asking_server
from harness.mcp.scripted_servers import awkward, collect_responses
from harness.mesh.identity import mesh_credentials
from harness.polling import wait_for
from harness.remote.measurements import measuring
from trunkline.core.json_values import update_struct
from trunkline.errors import (
    PeerTimeoutError,
    ToolServerUnavailableError,
)
from trunkline.mesh.client import ChannelPool, ToolClient
from trunkline.mesh.server import MeshServer
from trunkline.observe import telemetry
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import AdapterSettings, McpConfig, ServerConfig, ServerOverlay
from trunkline.tools.tool_servicer import SERVICE, ToolServicer
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import tool_service_pb2, tool_service_pb2_grpc

TIMEOUT_S = 300.0
AWKWARD = awkward()


@asynccontextmanager
async def client_of(**servers: ServerConfig) -> AsyncIterator[ToolClient]:
    settings = AdapterSettings(restart_delay_s=0.05, grace_s=1.0)
    never = ServerOverlay(approval="never")
    servers = {
        name: config.model_copy(update={"trunkline": never}) for name, config in servers.items()
    }
    async with (
        ToolAdapter(McpConfig(servers), settings=settings) as adapter,
        ChannelPool(mesh_credentials()) as known,
    ):
        server = MeshServer(mesh_credentials())
        server.add_service(
            SERVICE,
            tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
            # No call needs an approval, so nothing is stored.
            ToolServicer(adapter, ApprovalGate(None, SqliteUsedApprovals(Path(os.devnull)))),
        )
        (address,) = await server.start("127.0.0.1:0")
        try:
            yield ToolClient(known.get(address))
        finally:
            await server.stop(0)


async def call(
    client: ToolClient,
    tool: str,
    server: str = "awkward",
    **arguments: Any,
) -> list[tool_service_pb2.CallToolResponse]:
    request = tool_service_pb2.CallToolRequest(server=server, tool=tool)
    update_struct(request.arguments, arguments)
    async with asyncio.timeout(TIMEOUT_S):
        return await collect_responses(client, request)


def operations(tool: str, error_type: str | None) -> dict[tuple[str, ...], float]:
    """Return what one call is measured as."""
    error = () if error_type is None else (error_type,)
    return {("tools/call", tool, "awkward", "pipe", *error): 1}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    # The SDK keeps the tracer of the first provider in this process.
    monkeypatch.setattr(mcp.shared._otel, "_tracer", provider.get_tracer("mcp-python-sdk"))
    yield memory
    provider.shutdown()


async def test_integers_arrive_as_integers_at_any_depth() -> None:
    async with client_of(awkward=AWKWARD) as client:
        (response,) = await call(client, "types", value={"a": [2, 2.5, {"b": 3}], "c": 4})
    assert response.result.content[0].text == '{"a": [2, 2.5, {"b": 3}], "c": 4}'


async def test_a_watch_sees_start_end_and_restart_of_a_server() -> None:
    starting = tool_service_pb2.TOOL_SERVER_STATE_STARTING
    ready = tool_service_pb2.TOOL_SERVER_STATE_READY
    seen: list[int] = []
    async with client_of(awkward=AWKWARD) as client:
        lists = client.watch_tools(("awkward",))
        async with asyncio.timeout(TIMEOUT_S):
            async for listed in lists:
                (server,) = listed.servers
                if not seen or seen[-1] != server.state:
                    seen.append(server.state)
                assert bool(listed.tools) == (server.state == ready)
                if seen == [starting, ready]:
                    with pytest.raises(ToolServerUnavailableError):
                        await call(client, "die", code=3)
                elif len(seen) > 2 and server.state == ready:
                    break
        await lists.aclose()
    assert seen == [starting, ready, starting, ready]


async def test_a_list_names_servers_that_are_down_and_leaves_out_unknown_ones() -> None:
    async with client_of(missing=ServerConfig(command="no-such-command")) as client:
        with pytest.raises(ToolServerUnavailableError):
            await call(client, "any", server="missing")
        listing = await client.list_tools(("missing", "unknown"))
    (server,) = listing.servers
    assert (server.name, server.state) == ("missing", tool_service_pb2.TOOL_SERVER_STATE_FAILED)
    assert "not on PATH" in server.error
    assert list(listing.tools) == []


async def test_closing_a_call_cancels_the_tool(tmp_path: Path) -> None:
    async with client_of(awkward=AWKWARD) as client:
        with measuring() as measured:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(call(client, "hang", marks=str(tmp_path)))
                await wait_for((tmp_path / "began").exists)
                task.cancel()
            await wait_for((tmp_path / "canceled").exists)
            await wait_for(lambda: bool(measured.of("mcp.client.operation.duration")))
            expected = operations("hang", "cancelled")
            assert measured.of("mcp.client.operation.duration") == expected
        (response,) = await call(client, "repeat", text="still here")
    assert response.result.content[0].text == "still here"


async def test_the_deadline_in_the_request_ends_the_call(tmp_path: Path) -> None:
    request = tool_service_pb2.CallToolRequest(server="awkward", tool="hang")
    update_struct(request.arguments, {"marks": str(tmp_path)})
    async with client_of(awkward=AWKWARD) as client:
        await call(client, "repeat", text="ready")
        request.deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=1))
        with measuring() as measured:
            with pytest.raises(PeerTimeoutError):
                await collect_responses(client, request)
            # The limit is no cancel by the caller.
            assert measured.of("mcp.client.operation.duration") == operations("hang", "timeout")
        request.deadline.FromDatetime(datetime.now(UTC) - timedelta(seconds=5))
        with pytest.raises(PeerTimeoutError):
            await collect_responses(client, request)
        await wait_for((tmp_path / "canceled").exists)


async def test_a_call_is_measured_and_traced_with_the_kind_of_its_error(
    exporter: InMemorySpanExporter,
) -> None:
    rows: tuple[tuple[str, dict[str, Any], str | None], ...] = (
        ("repeat", {"text": "a"}, None),
        ("refuse", {}, "tool_error"),
        ("explode", {}, "tool_error"),
        ("repeat", {}, "tool_error"),
        ("mend", {}, "tool_error"),
        ("object_to", {"code": -32050}, "-32050"),
        ("die", {"code": 3}, "TOOL_SERVER_UNAVAILABLE"),
    )
    async with client_of(awkward=AWKWARD) as client:
        for tool, arguments, error_type in rows:
            exporter.clear()
            with measuring() as measured:
                with suppress(ToolServerUnavailableError):
                    await call(client, tool, **arguments)
                assert measured.of("mcp.client.operation.duration") == operations(tool, error_type)
            if tool == "die":
                # The SDK ends the span of a call whose server is gone without an error.
                continue
            spans = exporter.get_finished_spans()
            (span,) = [span for span in spans if span.name == f"tools/call {tool}"]
            attributes = span.attributes or {}
            assert span.kind is trace.SpanKind.CLIENT
            assert attributes["gen_ai.tool.name"] == tool
            assert attributes.get("error.type") == error_type
            assert span.status.is_ok == (error_type is None)


async def test_a_question_of_a_tool_is_measured_as_no_error(tmp_path: Path) -> None:
    config = ServerConfig(
        command=sys.executable,
        args=[asking_server.__file__],
        env={"ASKING_FOLDER": str(tmp_path)},
    )
    async with client_of(asking=config) as client:
        with measuring() as measured:
            (response,) = await call(client, "book_table", server="asking", city="Bern")
            assert response.result.HasField("question")
            ((attributes, number),) = measured.of("mcp.client.operation.duration").items()
    assert (attributes, number) == (("tools/call", "book_table", "asking", "pipe"), 1)


async def test_a_call_is_one_trace_into_the_server_and_maintenance_has_none(
    exporter: InMemorySpanExporter,
) -> None:
    async with client_of(awkward=AWKWARD) as client:
        with telemetry.span("first") as first:
            await call(client, "repeat", text="ready")
        names = {span.name for span in exporter.get_finished_spans()}
        # Neither its start nor its list of tools is one.
        calls = {name for name in names if name.startswith(("MCP", "tools"))}
        assert calls == {"tools/call repeat"}
        with telemetry.span("root") as root:
            (response,) = await call(client, "traceparent")
    trace_id = root.get_span_context().trace_id
    spans = [span for span in exporter.get_finished_spans() if span.context.trace_id == trace_id]
    (send_span,) = [span for span in spans if span.name == "tools/call traceparent"]
    (server,) = [
        span
        for span in spans
        if span.kind is trace.SpanKind.SERVER and span.name.endswith("CallTool")
    ]
    assert send_span.parent is not None
    assert send_span.parent.span_id == server.context.span_id
    seen = response.result.content[0].text
    sent = trace.format_span_id(send_span.context.span_id)
    assert seen.startswith(f"00-{trace.format_trace_id(trace_id)}-{sent}-")
    assert {span.context.trace_id for span in exporter.get_finished_spans()} == {
        first.get_span_context().trace_id,
        trace_id,
    }
