"""The floor of the libraries for a unary call: the chain of processes, made of libraries alone.

`python -m bench.floor.libraries collector | agent COLLECTOR | front AGENT COLLECTOR`. The front is
Starlette on uvicorn. It sends each call by one open stream of grpcio to the agent, which commits it
twice to SQLite: as a new task, and with its answer. A call has four spans of OpenTelemetry's SDK,
with as many attributes as ours, which a collector stores in SQLite. Nothing is checked, limited,
encrypted, resumed, counted or canceled.

BENCH_PARTS names the parts that are there, all by default: `http`, `grpc`, `sqlite` and `spans`.
"""

import asyncio
import itertools
import os
import socket
import sqlite3
import struct
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import grpc
import uvicorn
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.floor.server import loop_factory

_PARTS: Final = frozenset(os.environ.get("BENCH_PARTS", "http grpc sqlite spans").split())
_METHOD: Final = "/bench.Libraries/Connect"
# The number of a call and the length of its trace context stand before its text.
_HEAD: Final = struct.Struct(">IH")
_HOST: Final = "127.0.0.1"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("bench")

Attributes = dict[str, str | int]


def _span(
    name: str, kind: SpanKind, attributes: Attributes, carrier: dict[str, str] | None = None
) -> AbstractContextManager[Any]:
    if "spans" not in _PARTS:
        return nullcontext()
    context = None if carrier is None else _PROPAGATOR.extract(carrier)
    return _tracer.start_as_current_span(name, context=context, kind=kind, attributes=attributes)


def _export_spans(service: str, collector: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=collector, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)


class _Commits:
    """Writes rows in groups: one transaction for all calls that wait."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(
            "CREATE TABLE tasks (number INTEGER PRIMARY KEY, id TEXT UNIQUE, state INTEGER)"
        )
        self._connection.execute(
            "CREATE TABLE events (task INTEGER, sequence INTEGER, body BLOB, "
            "PRIMARY KEY (task, sequence)) WITHOUT ROWID"
        )
        self._waiting: list[tuple[int, int, bytes, asyncio.Future[None]]] = []

    async def write(self, task: int, sequence: int, body: bytes) -> None:
        """Write an event. The first creates the task, the second ends it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._commit)
        self._waiting.append((task, sequence, body, done))
        await done

    def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        new = [(task, f"task-{task}") for task, sequence, _, _ in waiting if sequence == 1]
        ended = [(task,) for task, sequence, _, _ in waiting if sequence > 1]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?)", [each[:3] for each in waiting]
        )
        self._connection.executemany("INSERT INTO tasks VALUES (?, ?, 1)", new)
        self._connection.executemany("UPDATE tasks SET state = 3 WHERE number = ?", ended)
        self._connection.execute("COMMIT")
        for *_, done in waiting:
            done.set_result(None)


_RPC: Final[Attributes] = {"rpc.system.name": "grpc", "rpc.method": _METHOD, "service": "bench"}
_ANSWER_BYTES: Final = 300


class _Agent:
    """Answers each call of a stream in a task of its own."""

    def __init__(self, folder: Path) -> None:
        self._commits = _Commits(folder / "tasks.db")
        self._numbers = itertools.count(1)

    async def connect(self, requests: AsyncIterator[bytes], context: Any) -> None:
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(_send(answers, context.write))
            async for message in requests:
                for request in _split(message):
                    group.create_task(self._serve(request, answers))
            sender.cancel()

    async def _serve(self, request: bytes, answers: asyncio.Queue[bytes]) -> None:
        call_id, length = _HEAD.unpack_from(request)
        text_begin = _HEAD.size + length
        carrier = {"traceparent": request[_HEAD.size : text_begin].decode()}
        with _span(_METHOD, SpanKind.SERVER, _RPC, carrier):
            attributes: Attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "echo",
                "gen_ai.agent.description": "Repeats the text.",
                "gen_ai.conversation.id": str(uuid.uuid4()),
                "task.id": uuid.uuid4().hex,
                "turn": 1,
                "service": "echo",
            }
            with _span("invoke_agent echo", SpanKind.INTERNAL, attributes):
                answer = request[text_begin:]
                if "sqlite" in _PARTS:
                    number = next(self._numbers)
                    await self._commits.write(number, 1, answer.ljust(_ANSWER_BYTES))
                    await self._commits.write(number, 3, answer.ljust(_ANSWER_BYTES))
        answers.put_nowait(_HEAD.pack(call_id, 0) + answer)


async def _send(frames: asyncio.Queue[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
    """Send frames, those that are there in one message."""
    while True:
        waiting = [await frames.get()]
        while not frames.empty():
            waiting.append(frames.get_nowait())
        await write(_join(waiting))


def _join(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def _split(message: bytes) -> list[bytes]:
    frames, begin = [], 0
    while begin < len(message):
        end = begin + 4 + int.from_bytes(message[begin : begin + 4], "big")
        frames.append(message[begin + 4 : end])
        begin = end
    return frames


class _Trunk:
    """Calls the agent by one stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: Any = channel.stream_stream(_METHOD)()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(self._requests, self._stream.write))
            async for message in self._stream:
                for answer in _split(message):
                    call_id, _ = _HEAD.unpack_from(answer)
                    self._answers.pop(call_id).set_result(answer[_HEAD.size :])

    async def call(self, text: bytes) -> bytes:
        call_id = next(self._ids)
        answer = self._answers[call_id] = asyncio.get_running_loop().create_future()
        with _span(_METHOD, SpanKind.CLIENT, {**_RPC, "server.address": _HOST, "server.port": 1}):
            carrier: dict[str, str] = {}
            if "spans" in _PARTS:
                _PROPAGATOR.inject(carrier)
            context = carrier.get("traceparent", "").encode()
            self._requests.put_nowait(_HEAD.pack(call_id, len(context)) + context + text)
            response: bytes = await answer
            return response


async def _serve_agent(collector: str) -> None:
    _export_spans("agent", collector)
    with tempfile.TemporaryDirectory() as folder:
        server = grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(_Agent(Path(folder)).connect)
        service, _, method = _METHOD[1:].partition("/")
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        server.add_generic_rpc_handlers((generic,))
        await _run_grpc(server)


async def _serve_collector() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = grpc.aio.server()
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Collector(Path(folder)), server
        )
        await _run_grpc(server)


async def _run_grpc(server: grpc.aio.Server) -> None:
    port = server.add_insecure_port(f"{_HOST}:0")
    await server.start()
    print(f"ready url={_HOST}:{port}", flush=True)
    await server.wait_for_termination()


class _Collector:
    """Stores each span as a row."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "spans.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("CREATE TABLE spans (trace BLOB, body BLOB)")
        self._connection.execute("CREATE INDEX by_trace ON spans (trace)")

    async def Export(  # noqa: N802  OTLP's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        rows = [
            (span.trace_id, span.SerializeToString())
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO spans VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")
        return trace_service_pb2.ExportTraceServiceResponse()


async def _serve_front(agent: str, collector: str) -> None:
    _export_spans("front", collector)
    call: Callable[[bytes], Awaitable[bytes]] = _echo
    async with grpc.aio.insecure_channel(agent) as channel, asyncio.TaskGroup() as group:
        if "grpc" in _PARTS:
            trunk = _Trunk(channel)
            group.create_task(trunk.run())
            call = trunk.call
        app = Starlette(routes=[Route("/agents/{agent}", _make_endpoint(call), methods=["POST"])])
        listener = socket.create_server((_HOST, 0), backlog=2048)
        print(f"ready url=http://{_HOST}:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_config=None, access_log=False)
        await uvicorn.Server(config).serve(sockets=[listener])


async def _echo(text: bytes) -> bytes:
    return text


def _make_endpoint(
    call: Callable[[bytes], Awaitable[bytes]],
) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def endpoint(request: Request) -> JSONResponse:
        attributes: Attributes = {
            "http.request.method": "POST",
            "a2a.method.name": "SendMessage",
            "gen_ai.agent.name": "echo",
            "a2a.task.id": uuid.uuid4().hex,
            "gen_ai.conversation.id": str(uuid.uuid4()),
            "task.state": "completed",
            "http.response.status_code": 200,
            "service": "bridge",
        }
        with _span("SendMessage", SpanKind.SERVER, attributes):
            body = await request.json()
            message = body["params"]["message"]
            answer = await call(message["parts"][0]["text"].encode())
            text = answer.decode().removeprefix("echo ")
            return JSONResponse(
                {"jsonrpc": "2.0", "id": body["id"], "result": _task(message, text)}
            )

    return endpoint


def _task(message: dict[str, Any], text: str) -> dict[str, Any]:
    task_id, context_id = uuid.uuid4().hex, str(uuid.uuid4())
    artifact = {"artifactId": "artifact-1", "name": "echo", "parts": [{"text": text}]}
    history = [{**message, "taskId": task_id, "contextId": context_id}]
    return {
        "task": {
            "id": task_id,
            "contextId": context_id,
            "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-28T00:00:00.000Z"},
            "artifacts": [artifact],
            "history": history,
        }
    }


_ROLES: Final[dict[str, Callable[..., Coroutine[object, object, None]]]] = {
    "collector": _serve_collector,
    "agent": _serve_agent,
    "front": _serve_front,
}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_ROLES[sys.argv[1]](*sys.argv[2:]))
