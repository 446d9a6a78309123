"""One request is one trace: from the caller's header to the MCP server, with any outcome."""

import asyncio
import os
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import grpc
import httpx2
import pytest
import pytest_asyncio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from harness.mcp.blocked_tool import blocked_tool, mcp_flags
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import MeshProcess, running_mesh
from trunkline.core.json_values import read_text
from trunkline.errors import TraceNotFoundError
from trunkline.mesh.client import ChannelPool
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_S = 300.0
SEND = "trunkline.v1.MessageService/SendMessage"
STREAM = "trunkline.v1.MessageService/StreamMessage"
CALL = "trunkline.v1.ToolService/CallTool"

Step = tuple[str, str]
"""A span as (service, name)."""


class Collector(otlp_grpc.TraceServiceServicer):
    """An independent OTLP collector."""

    def __init__(self) -> None:
        self._steps: queue.Queue[tuple[str, Step]] = queue.Queue()
        self._seen: list[tuple[str, Step]] = []

    def Export(  # noqa: N802
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self._steps.put((span.trace_id.hex(), (named["service.name"], span.name)))
        return otlp.ExportTraceServiceResponse()

    def steps_of(self, trace_id: str, *, awaited: set[Step]) -> set[Step]:
        """Return the steps of a trace once all expected ones, or no more, have arrived."""
        while True:
            steps = {step for trace, step in self._seen if trace == trace_id}
            if awaited <= steps:
                return steps
            try:
                self._seen.append(self._steps.get(timeout=LIMIT_S))
            except queue.Empty:
                return steps


@pytest.fixture(scope="module")
def collector() -> Iterator[tuple[Collector, str]]:
    served = Collector()
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add = otlp_grpc.add_TraceServiceServicer_to_server
        add(served, server)  # type: ignore[no-untyped-call]  # the package has no types for it
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield served, f"http://127.0.0.1:{port}"
        server.stop(None).wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    tmp_path_factory: pytest.TempPathFactory, collector: tuple[Collector, str]
) -> AsyncIterator[MeshProcess]:
    folder = tmp_path_factory.mktemp("mesh")
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector[1],
        # No proxy listens there, so a call through the proxy fails.
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    async with running_mesh(
        folder, *mcp_flags(folder, "math", "currency"), environment=environment
    ) as running:
        yield running


async def call(
    mesh: MeshProcess, method: str, params: dict[str, Any], *, trace_id: str = "", parent: str = ""
) -> Any:
    headers = {"A2A-Version": "1.0"}
    if trace_id:
        headers["traceparent"] = f"00-{trace_id}-{parent}-01"
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S, headers=headers) as client:
        return (await client.post(mesh.http_url, json=request)).json()["result"]


def question(text: str, **configuration: Any) -> dict[str, Any]:
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message, "configuration": configuration}


class Trace:
    """The spans of one trace, by their parents."""

    def __init__(self, spans: Sequence[trace_service_pb2.Span]) -> None:
        self.spans = {span.span_id: span for span in spans}

    @property
    def roots(self) -> list[trace_service_pb2.Span]:
        """Spans without their parent in this trace."""
        return [span for span in self.spans.values() if span.parent_span_id not in self.spans]

    @property
    def open_spans(self) -> list[trace_service_pb2.Span]:
        """Spans that have not ended."""
        return [span for span in self.spans.values() if not span.HasField("end_time")]

    def path(self, leaf: Step) -> list[Step]:
        """Return the path from the root to a span; empty if the span is missing or not unique."""
        matches = [span for span in self.spans.values() if (span.service, span.name) == leaf]
        if len(matches) != 1:
            return []
        steps: list[Step] = []
        span: trace_service_pb2.Span | None = matches[0]
        while span is not None:
            steps.append((span.service, span.name))
            span = self.spans.get(span.parent_span_id)
        return steps[::-1]

    def error_of(self, step: Step) -> str:
        (span,) = [span for span in self.spans.values() if (span.service, span.name) == step]
        return read_text(span.attributes, "error.type")


@asynccontextmanager
async def traces_of(mesh: MeshProcess) -> AsyncIterator[Callable[..., Any]]:
    """Poll for a trace until it is complete: it has one root and a span at the far end."""
    async with ChannelPool(mesh_credentials()) as channels:
        channel = channels.get(mesh.mesh_address)
        stub = trace_service_pb2_grpc.TraceServiceStub(channel)

        async def whole(*, leaf: Step, **key: str) -> Trace:
            watch = stub.WatchTraces(trace_service_pb2.WatchTracesRequest())
            trace = Trace([])
            try:
                async with asyncio.timeout(LIMIT_S):
                    async for _ in watch:
                        try:
                            trace = Trace(
                                (
                                    await stub.GetTrace(trace_service_pb2.GetTraceRequest(**key))
                                ).spans
                            )
                        except TraceNotFoundError:
                            continue
                        # The leaf alone is a root, too, until its parents have arrived.
                        path = trace.path(leaf)
                        is_whole = len(trace.roots) == 1 and not trace.open_spans
                        if is_whole and path and path[0][0] == "bridge":
                            return trace
            except TimeoutError:
                names = sorted((span.service, span.name) for span in trace.spans.values())
                raise AssertionError(f"{len(trace.roots)} roots, no {leaf} in {names}") from None
            finally:
                watch.cancel()
            raise AssertionError("the watch ended")

        yield whole


def way(agent: str, tool: str, *, edge: str = "SendMessage", hop: str = SEND) -> list[Step]:
    """Return every span from the edge to the MCP server, each the parent of the next.

    A call within the process has only a SERVER span.
    """
    return [
        ("bridge", edge),
        ("trunkline", hop),
        ("supervisor", "invoke_agent supervisor"),
        ("supervisor", f"invoke_agent {agent}"),
        ("trunkline", STREAM),
        (agent, f"invoke_agent {agent}"),
        (agent, f"execute_tool {tool}"),
        ("trunkline", CALL),
        ("trunkline", f"tools/call {tool}"),
        (f"mcp-{agent}", f"tools/call {tool}"),
    ]


async def test_a_question_is_one_trace_from_the_bridge_into_the_mcp_server(
    mesh: MeshProcess,
) -> None:
    task = (await call(mesh, "SendMessage", question("what is 1+2")))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    expected = way("math", "calculate")
    async with traces_of(mesh) as whole:
        trace = await whole(task_id=task["id"], leaf=expected[-1])
    assert trace.path(expected[-1]) == expected
    assert not trace.roots[0].parent_span_id
    assert {trace.error_of(step) for step in expected[7:]} == {""}


async def test_the_callers_trace_continues_below_its_span(mesh: MeshProcess) -> None:
    trace_id, parent = os.urandom(16).hex(), os.urandom(8).hex()
    text = question("100 USD in EUR")
    await call(mesh, "SendMessage", text, trace_id=trace_id, parent=parent)
    expected = way("currency", "convert")
    async with traces_of(mesh) as whole:
        trace = await whole(trace_id=trace_id, leaf=expected[-1])
    assert trace.path(expected[-1]) == expected
    assert trace.roots[0].parent_span_id == parent


async def test_two_agents_in_parallel_share_one_trace_without_orphans(mesh: MeshProcess) -> None:
    text = question("what is 15% of 240, and convert 36 USD to EUR")
    task = (await call(mesh, "SendMessage", text))["task"]
    left, right = way("math", "calculate"), way("currency", "convert")
    async with traces_of(mesh) as whole:
        await whole(task_id=task["id"], leaf=left[-1])
        trace = await whole(task_id=task["id"], leaf=right[-1])
    assert trace.path(left[-1]) == left
    assert trace.path(right[-1]) == right


async def test_a_failed_tool_call_that_asks_back_is_one_trace_with_the_failed_span(
    mesh: MeshProcess,
) -> None:
    task = (await call(mesh, "SendMessage", question("100 ZZZ to EUR")))["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    expected = way("currency", "convert")
    async with traces_of(mesh) as whole:
        trace = await whole(task_id=task["id"], leaf=expected[-1])
    assert trace.path(expected[-1]) == expected
    assert trace.error_of(expected[-1]) == "tool_error"
    assert trace.error_of(("currency", "execute_tool convert")) == "tool_error"


async def test_a_call_canceled_at_the_root_ends_in_the_mcp_server_and_is_one_trace(
    mesh: MeshProcess,
) -> None:
    async with asyncio.timeout(LIMIT_S), blocked_tool() as tool:
        text = question(tool.question, returnImmediately=True)
        task = (await call(mesh, "SendMessage", text))["task"]
        ended = await tool.wait_for_call()
        canceled = await call(mesh, "CancelTask", {"id": task["id"]})
        await ended.wait()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    # The request was answered long before; the work that it started still belongs to its trace.
    expected = way("hold", "hold")
    async with traces_of(mesh) as whole:
        trace = await whole(task_id=task["id"], leaf=expected[-1])
    assert trace.path(expected[-1]) == expected


async def test_an_agent_without_tools_canceled_through_the_supervisor_leaves_no_orphans(
    mesh: MeshProcess,
) -> None:
    text = question("wait 600", returnImmediately=True)
    task = (await call(mesh, "SendMessage", text))["task"]
    canceled = await call(mesh, "CancelTask", {"id": task["id"]})
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    async with traces_of(mesh) as whole:
        supervisor = ("supervisor", "invoke_agent supervisor")
        trace = await whole(task_id=task["id"], leaf=supervisor)
    assert trace.path(supervisor) == way("", "")[:3]


async def test_a_collector_named_by_the_standard_variables_gets_the_same_trace(
    mesh: MeshProcess, collector: tuple[Collector, str]
) -> None:
    trace_id = os.urandom(16).hex()
    text = question("derivative of x^3")
    await call(mesh, "SendMessage", text, trace_id=trace_id, parent=os.urandom(8).hex())
    awaited = set(way("math", "differentiate"))
    steps = await asyncio.to_thread(collector[0].steps_of, trace_id, awaited=awaited)
    assert awaited - steps == set()
