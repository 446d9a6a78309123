"""Calls over a real connection: their errors, each way to end, and their two spans."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from harness.mesh.identity import mesh_credentials
from harness.mesh.recorded_spans import spans_in
from trunkline.errors import (
    InternalError,
    PeerTimeoutError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.mesh.client import MeshChannel, RegistryClient
from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.observe import telemetry
from trunkline.observe.telemetry import RPC_DEADLINE_S
from trunkline.v1 import registry_service_pb2_grpc

SERVICE = "test.v1.Service"
PATIENCE_S = 300.0

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Spans(InMemorySpanExporter):
    """The spans as they end, with methods that wait for the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._news.set()
        return result

    async def only(
        self, kind: SpanKind, *, parent_span: ReadableSpan | None = None
    ) -> ReadableSpan:
        """Return the only span of a kind, once it has ended: the other side may be later.

        `below` is its parent; without it the kind has only one span.
        """
        while True:
            matches = [
                span
                for span in await self.at_least(1)
                if span.kind is kind and (parent_span is None or is_below(span, parent_span))
            ]
            if matches:
                (span,) = matches
                return span
            await self._more()

    async def at_least(self, count: int) -> tuple[ReadableSpan, ...]:
        """Return all ended spans, once there are so many."""
        while True:
            self._news.clear()
            matches = self.get_finished_spans()
            if len(matches) >= count:
                return matches
            await self._more()

    async def _more(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._news.wait()
        except TimeoutError:
            ended = [(span.name, span.kind) for span in self.get_finished_spans()]
            raise AssertionError(f"only these spans have ended: {ended}") from None


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    known = (parent.context.trace_id, parent.context.span_id)
    return span.parent is not None and (span.parent.trace_id, span.parent.span_id) == known


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with spans_in(Spans(), monkeypatch) as memory:
        yield memory


class Service:
    """A service with all arities, of bytes. Events show its progress to the test."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.failure: Exception = TaskNotFoundError("t-1")
        self.seen: list[bytes] = []

    async def answer_one(self, request: bytes, context: Context) -> bytes:
        if request == b"fail":
            raise self.failure
        if request == b"hang":
            await self.hang()
        if request == b"abort":
            await context.abort(grpc.StatusCode.DATA_LOSS, "by hand")
        return request + b"!"

    async def many(self, request: bytes, _context: Context) -> AsyncIterator[bytes]:
        yield b"first"
        if request == b"fail":
            raise self.failure
        if request == b"hang":
            await self.hang()
        yield b"last"

    async def written(self, request: bytes, context: Context) -> None:
        await context.write(b"first")
        if request == b"fail":
            raise self.failure
        await context.write(b"last")

    async def gather(self, requests: AsyncIterator[bytes], _context: Context) -> bytes:
        async for request in requests:
            self.seen.append(request)
        return b"".join(self.seen)

    async def each(self, requests: AsyncIterator[bytes], _context: Context) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request + b"!"

    async def hang(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def add_service(service: Service, server: grpc.aio.Server) -> None:
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "One": grpc.unary_unary_rpc_method_handler(service.answer_one),
        "Many": grpc.unary_stream_rpc_method_handler(service.many),
        "Written": grpc.unary_stream_rpc_method_handler(service.written),
        "Gather": grpc.stream_unary_rpc_method_handler(service.gather),
        "Each": grpc.stream_stream_rpc_method_handler(service.each),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


@pytest.fixture
async def service(exporter: Spans) -> Service:
    # The exporter is first: a tracer belongs to the provider that is set when it is created.
    assert exporter.get_finished_spans() == ()
    return Service()


@pytest.fixture
async def channel(service: Service) -> AsyncIterator[MeshChannel]:
    server = MeshServer(mesh_credentials())
    server.add_service(SERVICE, add_service, service)
    (address,) = await server.start("127.0.0.1:0")
    async with MeshChannel(address, target=address, credentials=mesh_credentials()) as channel:
        yield channel
    await server.stop(0)


async def joined(exporter: Spans) -> tuple[ReadableSpan, ReadableSpan]:
    """Return the client's and the server's span; one is the other's parent."""
    client = await exporter.only(SpanKind.CLIENT)
    server = await exporter.only(SpanKind.SERVER)
    assert is_below(server, client)
    assert client.name == server.name
    return client, server


def codes(*spans: ReadableSpan) -> set[object]:
    return {(span.attributes or {})[telemetry.RPC_STATUS_CODE] for span in spans}


def same(content: bytes) -> bytes:
    return content


def call_unary(
    channel: MeshChannel, path: str = f"/{SERVICE}/One"
) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path, same, same)
    return method


def many(
    channel: MeshChannel, path: str = f"/{SERVICE}/Many"
) -> grpc.aio.UnaryStreamMultiCallable[bytes, bytes]:
    method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path, same, same)
    return method


async def requests() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


async def call_one(channel: MeshChannel) -> object:
    return await call_unary(channel)(b"a")


async def call_many(channel: MeshChannel) -> object:
    return [each async for each in many(channel)(b"a")]


async def call_written(channel: MeshChannel) -> object:
    return [each async for each in many(channel, f"/{SERVICE}/Written")(b"a")]


async def call_gather(channel: MeshChannel) -> object:
    return await channel.stream_unary(f"/{SERVICE}/Gather", same, same)(requests())


async def call_each(channel: MeshChannel) -> object:
    return [
        each async for each in channel.stream_stream(f"/{SERVICE}/Each", same, same)(requests())
    ]


async def call_by_hand(channel: MeshChannel) -> object:
    call: Any = channel.stream_stream(f"/{SERVICE}/Each", same, same)()
    answers = []
    for request in (b"a", b"b"):
        await call.write(request)
        answers.append(await call.read())
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return answers


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (call_one, b"a!"),
        (call_many, [b"first", b"last"]),
        (call_written, [b"first", b"last"]),
        (call_gather, b"ab"),
        (call_each, [b"a!", b"b!"]),
        (call_by_hand, [b"a!", b"b!"]),
    ],
)
async def test_a_call_of_any_arity_is_one_span_at_each_end(
    channel: MeshChannel,
    exporter: Spans,
    call: Callable[[MeshChannel], Any],
    answer: object,
) -> None:
    assert await call(channel) == answer
    client, server = await joined(exporter)
    assert codes(client, server) == {"OK"}
    assert {client.status.status_code, server.status.status_code} == {StatusCode.UNSET}
    assert client.attributes is not None
    assert client.attributes[telemetry.SERVER_ADDRESS] == "127.0.0.1"
    assert client.attributes[telemetry.SERVER_PORT] == int(channel.address.rpartition(":")[2])


async def test_the_mesh_s_own_maintenance_makes_no_spans(exporter: Spans) -> None:
    server = MeshServer(mesh_credentials())
    server.add_registry(RegistryServicer())
    (address,) = await server.start("127.0.0.1:0")
    async with MeshChannel(address, target=address, credentials=mesh_credentials()) as channel:
        assert await RegistryClient(channel).list_agents() == []
    await server.stop(0)
    assert exporter.get_finished_spans() == ()


async def fail_one(channel: MeshChannel) -> None:
    await call_unary(channel)(b"fail")


async def fail_many(channel: MeshChannel) -> None:
    assert [each async for each in many(channel)(b"fail")] == []


async def fail_written(channel: MeshChannel) -> None:
    assert [each async for each in many(channel, f"/{SERVICE}/Written")(b"fail")] == []


@pytest.mark.parametrize("call", [fail_one, fail_many, fail_written])
async def test_our_errors_arrive_with_their_class(
    channel: MeshChannel,
    exporter: Spans,
    call: Callable[[MeshChannel], Awaitable[None]],
) -> None:
    with pytest.raises(TaskNotFoundError) as excinfo, translate_errors(channel.address):
        await call(channel)
    assert excinfo.value.task_id == "t-1"
    client, server = await joined(exporter)
    assert codes(client, server) == {"NOT_FOUND"}
    assert client.status.status_code is StatusCode.ERROR
    # OpenTelemetry's conventions: a caller's error is none of the server.
    assert server.status.status_code is StatusCode.UNSET
    assert telemetry.ERROR_TYPE not in (server.attributes or {})


async def test_an_error_wrapped_by_a_task_group_arrives_with_its_class(
    channel: MeshChannel, service: Service
) -> None:
    service.failure = ExceptionGroup("wrapped", [ExceptionGroup("again", [service.failure])])
    with pytest.raises(TaskNotFoundError), translate_errors(channel.address):
        await call_unary(channel)(b"fail")


async def test_the_error_of_a_defect_has_only_its_trace_id(
    channel: MeshChannel,
    service: Service,
    exporter: Spans,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.failure = KeyError("the secret")
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(InternalError) as excinfo,
        translate_errors(channel.address),
    ):
        await call_unary(channel)(b"fail")
    _, server = await joined(exporter)
    assert server.context is not None
    assert excinfo.value.trace_id == trace.format_trace_id(server.context.trace_id)
    assert "secret" not in str(excinfo.value)
    assert "secret" not in server.to_json()
    (record,) = [record for record in caplog.records if record.message == "rpc.failed"]
    assert record.exc_info is not None
    assert codes(server) == {"INTERNAL"}
    assert server.status.status_code is StatusCode.ERROR


async def test_an_abort_by_the_handler_is_not_changed(
    channel: MeshChannel, exporter: Spans
) -> None:
    with pytest.raises(TrunklineError, match="by hand"), translate_errors(channel.address):
        await call_unary(channel)(b"abort")
    client, server = await joined(exporter)
    assert codes(client, server) == {"DATA_LOSS"}


@pytest.mark.parametrize("path", [f"/{SERVICE}/Nothing", "/nobody.v1.Nobody/Nothing"])
async def test_an_unknown_method_is_refused_with_our_error(channel: MeshChannel, path: str) -> None:
    with pytest.raises(UnsupportedOperationError) as excinfo, translate_errors(channel.address):
        await call_unary(channel, path)(b"a")
    assert excinfo.value.operation == path.removeprefix("/")
    with pytest.raises(UnsupportedOperationError), translate_errors(channel.address):
        await many(channel, path)(b"a").read()


async def test_an_unimplemented_method_is_refused_with_our_error() -> None:
    server = MeshServer(mesh_credentials())
    # The generated class, whose methods answer UNIMPLEMENTED.
    left_out: Any = registry_service_pb2_grpc.RegistryServiceServicer
    server.add_registry(left_out())
    (address,) = await server.start("127.0.0.1:0")
    async with MeshChannel(address, target=address, credentials=mesh_credentials()) as channel:
        with pytest.raises(UnsupportedOperationError):
            await RegistryClient(channel).list_agents()
    await server.stop(0)


async def test_each_call_is_one_line_in_the_log_without_content(
    channel: MeshChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="trunkline.mesh.server.calls"):
        await call_unary(channel)(b"the secret")
        with pytest.raises(TaskNotFoundError):
            await call_unary(channel)(b"fail")
    lines = [vars(record) for record in caplog.records if record.message == "rpc.answered"]
    assert [(line["method"], line["code"]) for line in lines] == [
        (f"{SERVICE}/One", "OK"),
        (f"{SERVICE}/One", "NOT_FOUND"),
    ]
    assert "secret" not in str(lines)


async def test_a_caller_that_is_cancelled_stops_the_handler_and_ends_both_spans(
    channel: MeshChannel, service: Service, exporter: Spans
) -> None:
    async with asyncio.TaskGroup() as group:

        async def ask() -> None:
            await call_unary(channel)(b"hang")

        task = group.create_task(ask())
        await service.began.wait()
        task.cancel()
    await service.ended.wait()
    client, server = await joined(exporter)
    assert codes(client, server) == {"CANCELLED"}
    assert client.status.status_code is StatusCode.ERROR
    assert server.status.status_code is StatusCode.UNSET


async def test_a_reader_that_disconnects_stops_the_handler_and_ends_both_spans_without_error(
    channel: MeshChannel, service: Service, exporter: Spans
) -> None:
    call = many(channel)(b"hang")
    async for each in call:
        assert each == b"first"
        await service.began.wait()
        break
    call.cancel()
    await service.ended.wait()
    client, server = await joined(exporter)
    assert codes(client, server) == {"CANCELLED"}
    assert {client.status.status_code, server.status.status_code} == {StatusCode.UNSET}


async def test_a_deadline_is_seen_by_the_handler_and_ends_the_call(
    channel: MeshChannel, service: Service, exporter: Spans
) -> None:
    # On a busy machine the time may be over before the handler begins.
    for timeout_s in (0.3, 3.0, 30.0):
        exporter.clear()
        with pytest.raises(PeerTimeoutError) as excinfo, translate_errors(channel.address):
            await call_unary(channel)(b"hang", timeout=timeout_s)
        assert excinfo.value.peer == channel.address
        if service.began.is_set():
            break
    await service.ended.wait()
    client = await exporter.only(SpanKind.CLIENT)
    server = await exporter.only(SpanKind.SERVER, parent_span=client)
    assert codes(client) == {"DEADLINE_EXCEEDED"}
    # If the client's clock is ahead, the server sees a disconnect instead.
    assert codes(server) <= {"DEADLINE_EXCEEDED", "CANCELLED"}
    # gRPC rounds the remaining time, up too.
    assert 0 < float(str((server.attributes or {})[RPC_DEADLINE_S])) < timeout_s + 0.1
