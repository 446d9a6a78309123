"""Malformed requests to every method of the mesh get a clear error, and never INTERNAL.

The methods are those of the service descriptors, so a new one is tested without a change here.
"""

import asyncio
import itertools
import logging
import pkgutil
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import pytest
import pytest_asyncio
from google.protobuf import duration_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.rpc import code_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

import trunkline.v1
from harness.agents.inline_agents import define
from harness.mcp.scripted_servers import awkward
from harness.mesh.identity import mesh_credentials
from trunkline.core.identity import JoinRecords
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.identity_servicer import IdentityServicer
from trunkline.mesh.server.trace_servicer import OtlpServicer, TraceServicer
from trunkline.observe.traces import SpanStore
from trunkline.processes.hosting import add_host_services, open_host
from trunkline.processes.journals import HostJournals
from trunkline.processes.messaging import add_messages
from trunkline.tasks.context import TaskContext
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import McpConfig
from trunkline.tools.tool_servicer import ToolServicer
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import (
    identity_service_pb2_grpc,
    json_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    tool_service_pb2_grpc,
    trace_service_pb2_grpc,
    trunk_service_pb2,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A call with a changed field may wait for something. Its deadline is then no defect.
WAIT_S: Final = 1.0
PATIENCE_S: Final = 60.0
CONCURRENT_CALLS: Final = 32
# A defect, or an answer that says nothing about the request.
DEFECTS: Final = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "CANCELLED"}

UNREADABLE: Final = {
    "random bytes": b"\xff\xfe\xfd" * 20,
    "a wrong length": b"\x0a\x7f\x01",
    "an endless number": b"\x08" + b"\xff" * 12,
    "no UTF-8": b"\x0a\x02\xff\xfe",
    "an end of no group": b"\x0c",
}

# The depth of messages within messages whose fields are changed.
MAX_DEPTH: Final = 3
# Messages whose ids name nothing that exists.
UNNAMED: Final = {"Submission", "ParentTask"}
_FAR: Final = 2**63 - 1
_NESTED: Final = 20


def nested_struct() -> json_pb2.Struct:
    struct = inner = json_pb2.Struct()
    for _ in range(_NESTED):
        inner = inner.members.add(key="a").value.struct_value
    return struct


def infinite_struct() -> json_pb2.Struct:
    return json_pb2.Struct(
        members=[json_pb2.Member(key="a", value=json_pb2.Value(number_value=float("inf")))]
    )


# Descriptors have two types.
Field: TypeAlias = Any

# Messages of the types of times and JSON that are syntactically fine.
HOSTILE_MESSAGES: Final[dict[str, list[Message]]] = {
    "google.protobuf.Timestamp": [
        timestamp_pb2.Timestamp(seconds=_FAR),
        timestamp_pb2.Timestamp(seconds=-_FAR, nanos=-1),
        timestamp_pb2.Timestamp(nanos=2**31 - 1),
    ],
    "google.protobuf.Duration": [
        duration_pb2.Duration(seconds=-5),
        duration_pb2.Duration(seconds=_FAR),
        duration_pb2.Duration(seconds=-_FAR, nanos=2**31 - 1),
    ],
    "trunkline.v1.Struct": [
        json_pb2.Struct(members=[json_pb2.Member(key="a")]),
        infinite_struct(),
        nested_struct(),
    ],
    "trunkline.v1.Value": [
        json_pb2.Value(),
        json_pb2.Value(number_value=float("nan")),
        json_pb2.Value(exact_number="9" * 5000),
        json_pb2.Value(exact_number="1.5"),
        json_pb2.Value(struct_value=nested_struct()),
    ],
}
TEXTS: Final = ["\0\n\x1b[2J\u202e", "../../etc/passwd", "9" * 5000, "\U0010ffff" * 3000]
HOSTILE_VALUES: Final[dict[int, list[Any]]] = {
    FieldDescriptor.CPPTYPE_STRING: TEXTS,
    FieldDescriptor.CPPTYPE_INT32: [-1, 2**31 - 1, -(2**31)],
    FieldDescriptor.CPPTYPE_INT64: [-1, _FAR, -_FAR - 1],
    FieldDescriptor.CPPTYPE_UINT32: [2**32 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [_FAR, 2**64 - 1],
    FieldDescriptor.CPPTYPE_DOUBLE: [float("nan"), float("inf"), -1e308],
    FieldDescriptor.CPPTYPE_FLOAT: [float("nan"), float("-inf")],
    FieldDescriptor.CPPTYPE_BOOL: [True],
    FieldDescriptor.CPPTYPE_ENUM: [-1, 99],
}
BYTES: Final = [b"\xff" * 70_000]


@dataclass(frozen=True)
class Reply:
    """The status of a call, and the first response of it."""

    code: str
    details: str
    response: bytes = b""


class ServedMesh:
    """A server of all services, and calls with any bytes to it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS)

    async def call(
        self, method: MethodDescriptor, request: bytes, *, timeout_s: float = PATIENCE_S
    ) -> Reply:
        """Send a request; return the first response or the error."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        async with self._slots:
            # On the wire, all arities are one.
            stream: Any = self._channel.stream_stream(path)
            call = stream(iter([request]), timeout=timeout_s)
            try:
                response = await call.read()
                code = grpc.StatusCode.OK if response != grpc.aio.EOF else await call.code()
                details = "" if code is grpc.StatusCode.OK else await call.details()
                return Reply(code.name, details, b"" if response == grpc.aio.EOF else response)
            except grpc.aio.AioRpcError as error:
                return Reply(error.code().name, error.details() or "")
            finally:
                call.cancel()

    async def call_on_trunk(
        self, calls: list[trunk_service_pb2.TrunkCall]
    ) -> list[trunk_service_pb2.TrunkFrame]:
        """Make calls on one trunk; return their last frames."""
        request = trunk_service_pb2.ConnectRequest(calls=calls)
        method = trunk_service_pb2.DESCRIPTOR.services_by_name["TrunkService"].methods[0]
        path = f"/{method.containing_service.full_name}/{method.name}"
        call: Any = self._channel.stream_stream(path)()
        await call.write(request.SerializeToString())
        frames: list[trunk_service_pb2.TrunkFrame] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(frames) < len(calls):
                response = trunk_service_pb2.ConnectResponse.FromString(await call.read())
                frames += [frame for frame in response.frames if frame.HasField("end")]
        call.cancel()
        return frames

    async def begin_task(self) -> dict[str, str]:
        """Begin a task with an artifact, which waits for an approval; return its names."""
        request = message_service_pb2.SendMessageRequest(
            agent="tested",
            message=message_pb2.Message(
                message_id=f"m-{next(self._numbers)}",
                role=message_pb2.ROLE_USER,
                parts=[part_pb2.Part(text="sell")],
            ),
        )
        contract = message_service_pb2.DESCRIPTOR.services_by_name["MessageService"]
        method = contract.methods_by_name["SendMessage"]
        reply = await self.call(method, request.SerializeToString())
        assert reply.code == "OK", reply
        snapshot = message_service_pb2.SendMessageResponse.FromString(reply.response).snapshot
        return {
            "task_id": snapshot.task.id,
            "artifact_id": snapshot.task.artifacts[0].artifact_id,
            "approval_id": snapshot.approvals[0].requested.approval_id,
            "agent": "tested",
            "server": "awkward",
            "tool": "repeat",
            "message_id": f"m-{next(self._numbers)}",
            "host_id": "h",
            "address": "127.0.0.1:9",
            "alias": "a",
            "text": "sell",
            "url": "https://example.com/hook",
            "method": "trunkline.v1.TaskService/GetTask",
        }


def methods() -> Iterator[MethodDescriptor]:
    """Yield all methods of the contract, and of OTLP."""
    names = [module.name for module in pkgutil.iter_modules(trunkline.v1.__path__)]
    modules = [import_module(f"trunkline.v1.{name}") for name in names if name.endswith("_pb2")]
    for module in (*modules, otlp):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


METHODS: Final = sorted(methods(), key=lambda method: method.full_name)


async def clerk(task: TaskContext) -> None:
    """Write an artifact, then ask for an approval."""
    await task.artifact("offer").append("ten", last=True)
    await task.request_approval("sell", {"price": 10})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedMesh]:
    folder = tmp_path_factory.mktemp("mesh")
    async with AsyncExitStack() as stack:
        channels = await stack.enter_async_context(ChannelPool(mesh_credentials()))
        server = MeshServer(mesh_credentials())
        (address,) = server.bind("127.0.0.1:0")
        directory = Directory(channels, address)
        settings = Settings(data_dir=folder)
        host = await stack.enter_async_context(
            open_host(
                [define(clerk)],
                directory=directory,
                settings=settings,
                journals=HostJournals(settings, None),
            )
        )
        add_host_services(server, host)
        server.add_registry(await stack.enter_async_context(RegistryServicer()))
        store = stack.enter_context(SpanStore(folder / "traces.db"))
        config = McpConfig({"awkward": awkward()})
        adapter = await stack.enter_async_context(ToolAdapter(config))
        for name, register, servicer in services(adapter, store, folder):
            server.add_service(name, register, servicer)
        await stack.enter_async_context(add_messages(server, settings, directory))
        await server.start()
        stack.push_async_callback(server.stop, 0)
        await stack.enter_async_context(directory)
        yield ServedMesh(channels.get(address))


def services(
    adapter: ToolAdapter, store: SpanStore, data_dir: Path
) -> list[tuple[str, Callable[..., None], Any]]:
    return [
        (
            "trunkline.v1.IdentityService",
            identity_service_pb2_grpc.add_IdentityServiceServicer_to_server,
            IdentityServicer(
                IdentityFolder(mesh_credentials().roots_file.parent),
                JoinRecords(FolderFiles(data_dir)),
            ),
        ),
        (
            "trunkline.v1.ToolService",
            tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
            ToolServicer(adapter, ApprovalGate(None, SqliteUsedApprovals(data_dir))),
        ),
        (
            "trunkline.v1.TraceService",
            trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
            TraceServicer(store),
        ),
        (
            "opentelemetry.proto.collector.trace.v1.TraceService",
            otlp_grpc.add_TraceServiceServicer_to_server,
            OtlpServicer(store),
        ),
    ]


def build(method: MethodDescriptor, names: Mapping[str, str]) -> Message:
    """Return a valid request that names things that exist and has all messages of ours."""
    request: Message = message_factory.GetMessageClass(method.input_type)()
    fill(request, names)
    return request


def fill(message: Message, names: Mapping[str, str], depth: int = 0) -> None:
    for field in message.DESCRIPTOR.fields:
        if is_message(field):
            value = getattr(message, field.name)
            if depth < MAX_DEPTH:
                fill(value.add() if field.is_repeated else value, names, depth + 1)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            assign(message, field, 1)
        elif message.DESCRIPTOR.name not in UNNAMED and field.name in names:
            assign(message, field, names[field.name])


def is_message(field: Field) -> bool:
    """Return whether a field holds messages of ours, with fields to change."""
    kind = field.message_type
    return kind is not None and not (
        kind.GetOptions().map_entry or kind.full_name.startswith("google.protobuf")
    )


def assign(message: Message, field: Field, value: Any) -> None:
    if field.message_type is not None:
        target = getattr(message, field.name)
        (target.add() if field.is_repeated else target).CopyFrom(value)
    elif field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def hostile_values(field: Field) -> list[Any]:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return []
        empty = message_factory.GetMessageClass(field.message_type)()
        return [empty, *HOSTILE_MESSAGES.get(field.message_type.full_name, [])]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BYTES
    return HOSTILE_VALUES[field.cpp_type]


def variants(request: Message) -> Iterator[bytes]:
    """Yield the request with each of its fields missing, and with each hostile value."""
    yield b""
    yield request.SerializeToString()
    # A field that no message has.
    yield b"\xfa\xff\xff\xff\x0f\x03abc" + request.SerializeToString()
    for number, part in enumerate(parts_of(request)):
        for field in part.DESCRIPTOR.fields:
            for value in (None, *hostile_values(field)):
                changed = type(request)()
                changed.CopyFrom(request)
                target = next(itertools.islice(parts_of(changed), number, None))
                target.ClearField(field.name)
                if value is not None:
                    assign(target, field, value)
                yield changed.SerializeToString()


def parts_of(message: Message) -> Iterator[Message]:
    """Yield a message and all messages in it, always in the same order."""
    yield message
    for field, value in message.ListFields():
        if is_message(field):
            for inner in value if field.is_repeated else [value]:
                yield from parts_of(inner)


def check(reply: Reply) -> None:
    assert reply.code not in DEFECTS, reply
    if reply.code == "OK":
        return
    assert reply.details
    assert "doesn't serve it" not in reply.details
    assert "Method not found" not in reply.details
    assert "Traceback" not in reply.details
    assert "Error(" not in reply.details


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
async def test_a_malformed_request_gets_a_clear_error(
    mesh: ServedMesh, method: MethodDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    request = build(method, await mesh.begin_task())
    calls = dict.fromkeys(variants(request))
    async with asyncio.TaskGroup() as group:
        tasks = {
            call: group.create_task(mesh.call(method, call, timeout_s=WAIT_S)) for call in calls
        }
    for call, task in tasks.items():
        assert task.result().code not in DEFECTS, (task.result(), type(request).FromString(call))
        check(task.result())
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == []
    await mesh.begin_task()


async def test_an_unreadable_request_is_an_invalid_argument(
    mesh: ServedMesh, caplog: pytest.LogCaptureFixture
) -> None:
    for method, content in itertools.product(METHODS, UNREADABLE.values()):
        if is_readable(method, content):
            check(await mesh.call(method, content, timeout_s=WAIT_S))
        else:
            reply = await mesh.call(method, content)
            expected = ("INVALID_ARGUMENT", f"request: {NOT_READABLE}")
            assert (reply.code, reply.details) == expected, method.full_name
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


NOT_READABLE: Final = "can't be read as the method's"


def is_readable(method: MethodDescriptor, content: bytes) -> bool:
    try:
        message_factory.GetMessageClass(method.input_type).FromString(content)
    except Exception:  # noqa: BLE001  the kind depends on the implementation of protobuf
        return False
    return True


async def test_a_malformed_call_on_a_trunk_ends_alone(mesh: ServedMesh) -> None:
    cases = list(itertools.product(METHODS, UNREADABLE.values()))
    calls = [
        trunk_service_pb2.TrunkCall(
            call_id=number,
            method=f"{method.containing_service.full_name}/{method.name}",
            request=content,
            timeout=duration_pb2.Duration(seconds=_FAR),
        )
        for number, (method, content) in enumerate(cases)
    ]
    for number, call in enumerate(calls):
        if number % 2:
            call.timeout.seconds = 60
    frames = await mesh.call_on_trunk(calls)
    codes = {frame.call_id: code_pb2.Code.Name(frame.end.code) for frame in frames}
    assert len(codes) == len(cases)
    for number, (method, content) in enumerate(cases):
        # Only some services are served over trunks.
        assert codes[number] in {"INVALID_ARGUMENT", "UNIMPLEMENTED", "NOT_FOUND", "OK"}
        assert codes[number] != "OK" or (number % 2 and is_readable(method, content))
    assert set(codes.values()) >= {"INVALID_ARGUMENT", "UNIMPLEMENTED"}


async def test_errors_show_no_control_characters(mesh: ServedMesh) -> None:
    method = next(method for method in METHODS if method.name == "GetTask")
    request = build(method, {"task_id": "\x1b[2J\n\u202e"})
    reply = await mesh.call(method, request.SerializeToString())
    assert reply.code == "NOT_FOUND"
    assert not any(unicodedata.category(char) in {"Cc", "Cf"} for char in reply.details)
