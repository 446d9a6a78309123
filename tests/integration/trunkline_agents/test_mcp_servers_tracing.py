"""Our MCP servers export their spans, in the caller's trace, and exit cleanly."""

import asyncio
import json
import os
import queue
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import grpc
import pytest
from mcp import Client, StdioServerParameters
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from harness.mesh.command_line import start_process

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Records the spans that it receives."""

    def __init__(self) -> None:
        self.requests: queue.Queue[trace_service_pb2.ExportTraceServiceRequest] = queue.Queue()

    def Export(  # noqa: N802
        self,
        request: trace_service_pb2.ExportTraceServiceRequest,
        context: grpc.ServicerContext,
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.requests.put(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def span_named(self, name: str) -> tuple[str, str, str]:
        """Return service, trace id and parent id of a span, as soon as it arrives."""
        while True:
            request = self.requests.get(timeout=50)
            for resource in request.resource_spans:
                service = {each.key: each.value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        if span.name == name:
                            return (
                                service["service.name"].string_value,
                                span.trace_id.hex(),
                                span.parent_span_id.hex(),
                            )


@contextmanager
def collector_serving() -> Iterator[tuple[Collector, str]]:
    collector = Collector()
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
        add(collector, server)  # type: ignore[no-untyped-call]  # the package has no types for it
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield collector, f"http://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


@contextmanager
def collector_serving_http() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                collector.requests.put(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def environment(endpoint: str) -> dict[str, str]:
    variables = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    # No local call may go through a proxy of the environment.
    return {
        **variables,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "http_proxy": "http://127.0.0.1:9",
    }


def call_lines(tool: str, arguments: dict[str, str], meta: dict[str, str]) -> bytes:
    """Return the lines by which a client opens a session and calls a tool."""
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    call = {"name": tool, "arguments": arguments, "_meta": meta}
    messages = (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    )
    return b"".join(
        json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages
    )


def program(server: str) -> list[str]:
    return ["-c", f"from trunkline_agents.{server}.server import main; main()"]


async def test_a_call_is_a_span_in_its_callers_trace() -> None:
    meta = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    with collector_serving() as (collector, endpoint):
        # The SDK's client would send the trace of its own span in a process that records spans.
        process = await start_process(
            sys.executable,
            *program("math"),
            environment=environment(endpoint),
            stdin=PIPE,
            stdout=PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(call_lines("calculate", {"expression": "foo"}, meta))
        async with asyncio.timeout(50):
            assert b'"id":1' in await process.stdout.readline()
            assert b'"id":2' in await process.stdout.readline()
            process.stdin.close()
            assert await process.wait() == 0
        span = await asyncio.to_thread(collector.span_named, "tools/call calculate")
    assert span == ("trunkline-mcp-math", TRACE_ID, PARENT_ID)


async def test_spans_go_to_a_collector_over_http_too() -> None:
    with collector_serving_http() as (collector, endpoint):
        variables = {
            **environment(endpoint),
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": "money",
        }
        parameters = StdioServerParameters(
            command=sys.executable, args=program("currency"), env=variables
        )
        async with Client(parameters) as client:
            await client.call_tool("list_currencies", {})
            span = await asyncio.to_thread(collector.span_named, "tools/call list_currencies")
    assert span[0] == "money"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_cleanly_while_its_client_still_listens(
    number: signal.Signals,
) -> None:
    process = await start_process(*(sys.executable, *program("currency")), stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    async with asyncio.timeout(50):
        assert b'"id":1' in await process.stdout.readline()
        process.send_signal(number)
        assert await process.wait() == 0
        assert await process.stdout.read() == b""
