"""Spans of this process and of others reach the store, and never disturb work."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import issue
from harness.mesh.processes import free_address
from harness.mesh.recorded_spans import forget_provider
from harness.polling import wait_for
from trunkline.core.identity import Role
from trunkline.core.json_values import has_member, read_member
from trunkline.errors import OverloadedError, TraceNotFoundError
from trunkline.mesh.client import ChannelPool
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.trace_servicer import MAX_SPANS_PER_EXPORT, OtlpServicer, TraceServicer
from trunkline.observe import telemetry
from trunkline.observe.traces import MeshTarget, SpanStore, configure_tracing
from trunkline.observe.traces.exporters import MeshExporter
from trunkline.observe.traces.spans import read_records
from trunkline.tools.span_intake_servicer import SpanIntake
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

LIMIT_S = 300.0


@pytest.fixture(autouse=True)
def fresh_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_provider(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpanStore]:
    with SpanStore(tmp_path / "traces.db") as opened:
        yield opened


@dataclass(frozen=True)
class Served:
    address: str
    client: "trace_service_pb2_grpc.TraceServiceAsyncStub"
    channel: grpc.aio.Channel


@asynccontextmanager
async def serving(store: SpanStore, at: str = "127.0.0.1:0") -> AsyncIterator[Served]:
    server = MeshServer(mesh_credentials())
    server.add_service(
        "trunkline.v1.TraceService",
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        TraceServicer(store),
    )
    server.add_service(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        otlp_grpc.add_TraceServiceServicer_to_server,
        OtlpServicer(store),
    )
    (address,) = await server.start(at)
    try:
        async with ChannelPool(mesh_credentials()) as channels:
            channel = channels.get(address)
            yield Served(address, trace_service_pb2_grpc.TraceServiceStub(channel), channel)
    finally:
        await server.stop(1)


def work(service: str = "math") -> str:
    """Make a trace of three spans, one of them failed; return its id."""
    with telemetry.span("root", service=service, attributes={telemetry.TASK_ID: "t-1"}):
        with telemetry.span("child"):
            pass
        with pytest.raises(ValueError, match="secret"), telemetry.span("failing"):
            raise ValueError("secret")
        return telemetry.current_trace_id()


async def test_spans_of_this_process_go_straight_into_the_store(store: SpanStore) -> None:
    handle = configure_tracing("trunkline", store=store)
    trace_id = work()
    handle.shutdown()
    async with serving(store) as served:
        by_id = (
            await served.client.GetTrace(trace_service_pb2.GetTraceRequest(trace_id=trace_id))
        ).spans
        by_task = (
            await served.client.GetTrace(trace_service_pb2.GetTraceRequest(task_id="t-1"))
        ).spans
        page = await served.client.ListTraces(trace_service_pb2.ListTracesRequest(page_size=1))
    assert [span.name for span in by_id] == ["root", "child", "failing"]
    assert by_task == by_id
    assert {span.service for span in by_id} == {"math"}
    assert [span.is_error for span in by_id] == [False, False, True]
    assert by_id[1].parent_span_id == by_id[2].parent_span_id == by_id[0].span_id
    assert all("secret" not in str(span) for span in by_id)
    assert [summary.trace_id for summary in page.traces] == [trace_id]
    assert (page.traces[0].span_count, page.traces[0].error_count) == (3, 1)


def collect_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a mesh the collector of this process, by OpenTelemetry's own variables."""
    credentials = mesh_credentials()
    for name, value in (
        ("ENDPOINT", f"https://{address}"),
        ("CERTIFICATE", str(credentials.roots_file)),
        ("CLIENT_CERTIFICATE", str(credentials.certificate_file)),
        ("CLIENT_KEY", str(credentials.certificate_file)),
    ):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)


async def test_a_collector_may_speak_otlp_over_http(
    store: SpanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str | None, otlp.ExportTraceServiceRequest]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            export = otlp.ExportTraceServiceRequest.FromString(body)
            requests.append((self.path, self.headers["x-key"], export))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
            handle = configure_tracing("trunkline", store=store)
            trace_id = work()
            await asyncio.to_thread(handle.shutdown)
        finally:
            server.shutdown()
            thread.join()
    ((path, key, export),) = requests
    assert (path, key) == ("/v1/traces", "secret")
    with SpanStore(tmp_path / "collector.db") as collector_store:
        collector_store.add(read_records(export.resource_spans))
        assert collector_store.get_trace(trace_id=trace_id) == store.get_trace(trace_id=trace_id)


@pytest.mark.parametrize("collects_itself", [False, True])
async def test_a_mesh_forwards_spans_to_its_collector_unless_it_already_has_them(
    store: SpanStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    collects_itself: bool,
) -> None:
    with SpanStore(tmp_path / "collector.db") as collector_store:
        async with serving(collector_store) as collector, serving(store) as mesh:
            collect_at(collector.address, monkeypatch)
            handle = configure_tracing("trunkline", store=store)
            exporter = MeshExporter(
                MeshTarget([mesh.address], mesh_credentials()), is_collected=collects_itself
            )
            provider = TracerProvider(resource=Resource({telemetry.SERVICE_NAME: "mcp-math"}))
            provider.add_span_processor(BatchSpanProcessor(exporter))
            with provider.get_tracer("theirs").start_as_current_span("tools/call") as span:
                trace_id = trace.format_trace_id(span.get_span_context().trace_id)
            await asyncio.to_thread(provider.shutdown)
            await asyncio.to_thread(handle.shutdown)
        assert len(store.get_trace(trace_id=trace_id)) == 1
        if collects_itself:
            assert not collector_store.list_traces().traces
        else:
            assert collector_store.get_trace(trace_id=trace_id) == store.get_trace(
                trace_id=trace_id
            )


class Marked(otlp_grpc.TraceServiceServicer):
    """Records which exports are marked as already sent to a collector."""

    def __init__(self) -> None:
        self.exports: list[bool] = []

    async def Export(  # noqa: N802
        self,
        request: otlp.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> otlp.ExportTraceServiceResponse:
        keys = {key for key, _ in context.invocation_metadata() or ()}
        self.exports.append(telemetry.COLLECTED_KEY in keys)
        return otlp.ExportTraceServiceResponse()


@pytest.mark.parametrize("has_collector", [False, True])
async def test_an_agent_marks_its_exports_if_it_has_a_collector(
    monkeypatch: pytest.MonkeyPatch, has_collector: bool
) -> None:
    mesh, server = Marked(), grpc.aio.server()
    otlp_grpc.add_TraceServiceServicer_to_server(mesh, server)  # type: ignore[no-untyped-call]
    port = server.add_secure_port("127.0.0.1:0", mesh_credentials().server_credentials())
    await server.start()
    if has_collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    handle = configure_tracing(
        "decider", mesh=MeshTarget([f"127.0.0.1:{port}"], mesh_credentials())
    )
    with telemetry.span("decide"):
        pass
    await asyncio.to_thread(handle.shutdown)
    await server.stop(None)
    assert mesh.exports == [has_collector]


async def test_a_mesh_that_is_its_own_collector_passes_a_span_on_once(
    store: SpanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = otlp.ExportTraceServiceRequest()
    old.resource_spans.add().scope_spans.add().spans.add(trace_id=b"o" * 16, span_id=b"s" * 8)
    async with serving(store) as mesh:
        collect_at(mesh.address, monkeypatch)
        handle = configure_tracing("trunkline", store=store)
        stub = otlp_grpc.TraceServiceStub(mesh.channel)  # type: ignore[no-untyped-call]
        recent = export(1)
        (span,) = recent.resource_spans[0].scope_spans[0].spans
        span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
        await stub.Export(recent, timeout=LIMIT_S)
        # The span is so old that the store drops it, and can't recognize it later.
        await stub.Export(old, timeout=LIMIT_S)
        for _ in range(3):
            await asyncio.to_thread(handle.flush)
        # Two spans arrived, and the first one a second time, which was not forwarded.
        assert store.latest_change == 3
        await asyncio.to_thread(handle.shutdown)
    (summary,) = store.list_traces().traces
    assert summary.span_count == 1


async def test_an_unreachable_collector_causes_one_log_line_and_no_failure(
    store: SpanStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Addresses of this test alone: an exporter of another may still end its last attempt.
    targets = ["127.0.0.2:1", "http://127.0.0.2:1"]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", targets[1])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    handle = configure_tracing(
        "trunkline", store=store, mesh=MeshTarget([targets[0]], mesh_credentials())
    )
    with caplog.at_level(logging.INFO):
        ids = []
        for _ in range(3):
            ids.append(work())
            await asyncio.to_thread(handle.flush)
        await asyncio.to_thread(handle.shutdown)
    assert [len(store.get_trace(trace_id=trace_id)) for trace_id in ids] == [3, 3, 3]
    failures = [
        vars(record)["target"]
        for record in caplog.records
        if record.getMessage() == "traces.export_failed"
    ]
    assert sorted(target for target in failures if target in targets) == targets
    assert all(record.exc_info is None for record in caplog.records)


async def test_spans_wait_for_a_mesh_that_restarts(
    store: SpanStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(store, at=free_address()) as served:
        handle = configure_tracing("agent", mesh=MeshTarget([served.address], mesh_credentials()))
    with caplog.at_level(logging.WARNING):
        trace_id = work()
        await wait_for(
            lambda: "traces.export_failed" in [record.getMessage() for record in caplog.records]
        )
    async with serving(store, at=served.address):
        await wait_for(lambda: store.latest_change > 0)
        await asyncio.to_thread(handle.shutdown)
    assert len(store.get_trace(trace_id=trace_id)) == 3


async def test_an_unsupported_protocol_is_logged(
    store: SpanStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    configure_tracing("trunkline", store=store).shutdown()
    assert "traces.protocol_not_supported" in [record.getMessage() for record in caplog.records]


async def test_a_process_may_configure_again_and_a_closed_exporter_gets_no_more_spans(
    store: SpanStore, tmp_path: Path
) -> None:
    first = configure_tracing("trunkline", store=store)
    with SpanStore(tmp_path / "second.db") as other:
        second = configure_tracing("trunkline", store=other)
        both = work()
        first.shutdown()
        trace_id_after = work()
        second.shutdown()
        assert len(store.get_trace(trace_id=both)) == len(other.get_trace(trace_id=both)) == 3
        assert len(other.get_trace(trace_id=trace_id_after)) == 3
    with pytest.raises(TraceNotFoundError):
        store.get_trace(trace_id=trace_id_after)


async def test_an_existing_provider_of_the_program_is_used(store: SpanStore) -> None:
    memory = InMemorySpanExporter()
    existing = TracerProvider()
    existing.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(existing)
    handle = configure_tracing("trunkline", store=store)
    trace_id = work()
    handle.shutdown()
    assert trace.get_tracer_provider() is existing
    assert len(store.get_trace(trace_id=trace_id)) == len(memory.get_finished_spans()) == 3
    existing.shutdown()


async def test_a_watcher_sees_traces_as_their_spans_arrive(store: SpanStore) -> None:
    async with serving(store) as served:
        stub = trace_service_pb2_grpc.TraceServiceStub(served.channel)
        call = stub.WatchTraces(trace_service_pb2.WatchTracesRequest())
        async with asyncio.timeout(LIMIT_S):
            responses = aiter(call)
            assert not (await anext(responses)).traces
            for count in (1, 2):
                resource = trace_pb2.ResourceSpans()
                resource.scope_spans.add().spans.add(
                    trace_id=b"t" * 16,
                    span_id=count.to_bytes(8, "big"),
                    start_time_unix_nano=4_000_000_000 * 10**9,
                )
                await asyncio.to_thread(store.add, list(read_records([resource])))
                (summary,) = (await anext(responses)).traces
                assert (summary.trace_id, summary.span_count) == (b"t".hex() * 16, count)
        call.cancel()


def export(count: int) -> otlp.ExportTraceServiceRequest:
    request = otlp.ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(count):
        spans.add(
            trace_id=b"t" * 16,
            span_id=(number + 1).to_bytes(8, "big"),
            start_time_unix_nano=4_000_000_000 * 10**9,
        )
    return request


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [(bytes(16), b"s" * 8), (b"t" * 16, bytes(8)), (b"", b"s" * 8), (b"t" * 16, b"s" * 7)],
    ids=["trace of zeros", "span of zeros", "no trace", "short span"],
)
async def test_a_span_with_an_invalid_id_is_refused(
    store: SpanStore, trace_id: bytes, span_id: bytes
) -> None:
    request = export(1)
    request.resource_spans[0].scope_spans[0].spans.add(trace_id=trace_id, span_id=span_id)
    async with serving(store) as served:
        stub = otlp_grpc.TraceServiceStub(served.channel)  # type: ignore[no-untyped-call]
        response = await stub.Export(request, timeout=LIMIT_S)
        assert response.partial_success.rejected_spans == 1
        assert "not zeros" in response.partial_success.error_message
        assert (
            len(
                (
                    await served.client.GetTrace(
                        trace_service_pb2.GetTraceRequest(trace_id=(b"t" * 16).hex())
                    )
                ).spans
            )
            == 1
        )


async def test_a_span_whose_parent_is_zeros_is_a_root(store: SpanStore) -> None:
    request = export(1)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    span.parent_span_id = bytes(8)
    async with serving(store) as served:
        stub = otlp_grpc.TraceServiceStub(served.channel)  # type: ignore[no-untyped-call]
        await stub.Export(request, timeout=LIMIT_S)
        (stored,) = (
            await served.client.GetTrace(
                trace_service_pb2.GetTraceRequest(trace_id=(b"t" * 16).hex())
            )
        ).spans
        assert stored.parent_span_id == ""


async def test_an_export_that_is_too_large_is_accepted_in_part(store: SpanStore) -> None:
    async with serving(store) as served:
        stub = otlp_grpc.TraceServiceStub(served.channel)  # type: ignore[no-untyped-call]
        response = await stub.Export(export(MAX_SPANS_PER_EXPORT + 7), timeout=LIMIT_S)
        assert response.partial_success.rejected_spans == 7
        response = await stub.Export(export(1), timeout=LIMIT_S)
        assert not response.HasField("partial_success")


def export_of(resource_service: str, *span_services: str) -> otlp.ExportTraceServiceRequest:
    """Return an export of one span, whose resource and span name services and an exporter."""
    request = export(1)
    (resource,) = request.resource_spans
    (span,) = resource.scope_spans[0].spans
    span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
    if resource_service:
        resource.resource.attributes.add(
            key=telemetry.SERVICE_NAME
        ).value.string_value = resource_service
    for service in span_services:
        span.attributes.add(key=telemetry.SERVICE).value.string_value = service
    for attributes in (resource.resource.attributes, span.attributes):
        attributes.add(key=telemetry.EXPORTER).value.string_value = "spiffe://forged"
    return request


@pytest.mark.parametrize(
    ("role", "accepted", "refused"),
    [
        (
            Role.AGENTS,
            [("math",), ("math", "currency")],
            [("supervisor",), ("",), ("math", "supervisor"), ("math", "math", "tools"), ("tools",)],
        ),
        (Role.TOOLS, [("tools",), ("mcp-search",)], [("math",), ("bridge",), ("tools", "math")]),
        (Role.BRIDGE, [("bridge",)], [("math",), ("mcp-search",)]),
        (Role.MEMBER, [("math",), ("",), ("anything", "at-all")], []),
    ],
)
async def test_a_process_that_joined_exports_spans_of_its_own_services_and_they_name_it(
    store: SpanStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    role: Role,
    accepted: list[tuple[str, ...]],
    refused: list[tuple[str, ...]],
) -> None:
    agents = ["currency", "math"] if role is Role.AGENTS else []
    credentials = await asyncio.to_thread(issue, tmp_path, role=role, agents=agents)
    async with serving(store) as served, ChannelPool(credentials) as channels:
        stub = otlp_grpc.TraceServiceStub(channels.get(served.address))  # type: ignore[no-untyped-call]
        for services in refused:
            response = await stub.Export(export_of(*services), timeout=LIMIT_S)
            assert response.partial_success.rejected_spans == 1, services
            assert f"{credentials.identity} may export" in response.partial_success.error_message
        assert not store.list_traces().traces
        for number, services in enumerate(accepted):
            request = export_of(*services)
            (span,) = request.resource_spans[0].scope_spans[0].spans
            span.trace_id = bytes([number + 1]) * 16
            response = await stub.Export(request, timeout=LIMIT_S)
            assert not response.HasField("partial_success"), services
            (stored,) = store.get_trace(trace_id=span.trace_id.hex())
            exporter = read_member(stored.attributes, telemetry.EXPORTER)
            assert exporter == (None if role is Role.MEMBER else str(credentials.identity))
    logged = [record for record in caplog.records if record.message == "traces.spans_refused"]
    assert len(logged) == bool(refused)


async def test_spans_of_a_process_that_joined_arrive_under_its_name(
    store: SpanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "another")
    credentials = await asyncio.to_thread(issue, tmp_path, agents=["decider"])
    async with serving(store) as served:
        handle = configure_tracing("decider", mesh=MeshTarget([served.address], credentials))
        with telemetry.span("anonymous"):
            trace_id = telemetry.current_trace_id()
        await asyncio.to_thread(handle.shutdown)
        (span,) = (
            await served.client.GetTrace(trace_service_pb2.GetTraceRequest(trace_id=trace_id))
        ).spans
    assert span.service == "decider"
    assert read_member(span.attributes, telemetry.EXPORTER) == str(credentials.identity)


async def test_an_mcp_server_adds_spans_only_to_traces_it_was_called_in_and_only_as_itself(
    store: SpanStore,
) -> None:
    roots = await asyncio.to_thread(mesh_credentials().roots_file.read_bytes)
    async with (
        serving(store) as served,
        SpanIntake(mesh_credentials(), lambda: served.channel) as intake,
    ):
        variables = intake.environment("search")
        handle = configure_tracing("tools", store=store)
        with telemetry.span("call"):
            intake.admit_current_trace("search")
            trace_id = telemetry.current_trace_id()
        handle.shutdown()
        metadata = [tuple(variables["OTEL_EXPORTER_OTLP_HEADERS"].split("=", 1))]
        target = variables["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("https://")
        async with grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(roots)) as channel:
            stub = otlp_grpc.TraceServiceStub(channel)  # type: ignore[no-untyped-call]
            called = bytes.fromhex(trace_id)
            for request, span_trace, is_accepted in (
                (export_of("math"), called, True),
                (export_of("math", "math"), called, False),
                (export_of("math"), b"o" * 16, False),
            ):
                request.resource_spans[0].scope_spans[0].spans[0].trace_id = span_trace
                response = await stub.Export(request, timeout=LIMIT_S, metadata=metadata)
                assert response.partial_success.rejected_spans == (not is_accepted)
    spans = store.get_trace(trace_id=trace_id)
    assert {span.service for span in spans} == {"tools", "mcp-search"}
    assert not any(has_member(span.attributes, telemetry.EXPORTER) for span in spans)


async def test_an_overloaded_store_refuses_spans(store: SpanStore) -> None:
    gate = threading.Event()
    # Blocks the store's only thread, as a slow disk does.
    async with asyncio.timeout(LIMIT_S), serving(store) as served, asyncio.TaskGroup() as group:
        blocked = group.create_task(store.run_in_thread(gate.wait))
        stub = otlp_grpc.TraceServiceStub(served.channel)  # type: ignore[no-untyped-call]
        exports = [group.create_task(_is_taken(stub)) for _ in range(40)]
        for answer in islice(asyncio.as_completed(exports), 40 - 16):
            assert not await answer
        gate.set()
        assert await blocked
    assert sum(task.result() for task in exports) == 16


async def _is_taken(stub: otlp_grpc.TraceServiceStub) -> bool:
    try:
        await stub.Export(export(1), timeout=LIMIT_S)
    except (OverloadedError, grpc.RpcError):
        return False
    return True
