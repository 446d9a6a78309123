"""The gRPC edge of the bridge: reflection, slow clients, shutdown, the SDK."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
import pytest_asyncio
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from harness.a2a.grpc_client import (
    ANY_PORT,
    GrpcMesh,
    collect,
    open_grpc_mesh,
    refusal,
    send_request,
    wait_until_open,
)
from harness.hostile.http2_frames import OPENING, call_headers, header, long_call
from harness.mesh.processes import free_address
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.settings import HostPort
from trunkline.errors import ConfigurationError
from trunkline_agents.echo.agent import echo
from trunkline_bridge.a2a.bindings import grpc_server
from trunkline_bridge.a2a.bindings.grpc_server import serve_grpc

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A client that buffers little more than it reads.
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
EVENT_ID = f"{RESUME_EXTENSION}/eventId"
WITH_RESUME = (("a2a-extensions", RESUME_EXTENSION),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    async with open_grpc_mesh(tmp_path_factory.mktemp("mesh")) as opened:
        await opened.bridged.mesh.join(echo)
        yield opened


def reflected(address: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Return the services and the types of their methods, by reflection alone."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = descriptor_pool.DescriptorPool(database)
        methods = {}
        for name in database.get_services():
            service = pool.FindServiceByName(name)
            described = descriptor_pb2.ServiceDescriptorProto()
            service.CopyToProto(described)
            methods[name] = [
                (
                    method.name,
                    method.input_type + " -> " + method.output_type,
                    method.server_streaming,
                )
                for method in described.method
            ]
        card: Any = pool.FindMessageTypeByName("lf.a2a.v1.AgentCard")
        assert card.fields_by_name["security_schemes"].message_type.GetOptions().map_entry
        before = pool.FindMessageTypeByName("a2a.v1.TaskStatus")
        assert before.fields_by_name["update"].json_name == "message"
    return methods


async def test_reflection_lists_both_services_under_their_public_names(mesh: GrpcMesh) -> None:
    services = await asyncio.to_thread(reflected, mesh.address)
    assert set(services) == {
        "lf.a2a.v1.A2AService",
        "a2a.v1.A2AService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    v1 = {name: (types, streams) for name, types, streams in services["lf.a2a.v1.A2AService"]}
    assert v1["SubscribeToTask"] == (
        ".lf.a2a.v1.SubscribeToTaskRequest -> .lf.a2a.v1.StreamResponse",
        True,
    )
    assert len(v1) == 11
    assert "TaskSubscription" in {name for name, _, _ in services["a2a.v1.A2AService"]}


async def test_a_client_that_reads_nothing_does_not_block_others_and_catches_up(
    mesh: GrpcMesh,
) -> None:
    count = 1000
    narrow = grpc.aio.insecure_channel(mesh.address, options=NARROW)
    stub: Any = a2a_pb2_grpc.A2AServiceStub(narrow)  # type: ignore[no-untyped-call]
    stalled = stub.SendStreamingMessage(send_request(f"count {count} 0 400"), metadata=WITH_RESUME)
    task = (await stalled.read()).task
    running = mesh.v1.SubscribeToTask(
        a2a_pb2.SubscribeToTaskRequest(id=task.id),
        metadata=(*WITH_RESUME, ("last-event-id", task.metadata[EVENT_ID])),
    )
    read = await collect(running)
    assert read[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
    # The other call is still open, at its client's pace.
    await wait_until_open(mesh.bridged.bridge.grpc, 1)
    events = await collect(stalled)
    assert events == read
    pieces = [part.text for event in events for part in event.artifact_update.artifact.parts]
    assert [piece.split()[0] for piece in pieces] == [str(n) for n in range(1, count + 1)]
    await narrow.close()


@asynccontextmanager
async def connected(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a raw connection for the length of a block."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


# Of all metadata, 8 KiB are more than grpc always accepts by default.
@pytest.mark.parametrize(("size_kib", "is_refused"), [(60, False), (70, True), (120, True)])
async def test_metadata_is_read_up_to_the_limit_of_http(
    mesh: GrpcMesh, size_kib: int, is_refused: bool
) -> None:
    metadata = [("x-a", "b" * (1024 - 35))] * size_kib
    stub: Any = mesh.v1
    call = stub.ListTasks(a2a_pb2.ListTasksRequest(), metadata=metadata, timeout=PATIENCE_S)
    if not is_refused:
        assert (await call).page_size
        return
    assert "the metadata is larger than 65536 bytes; shorten it" in (await refusal(call)).text


async def test_metadata_beyond_the_limit_is_refused_before_the_settings_are_confirmed(
    mesh: GrpcMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The opening confirms no settings, so on a busy machine the connection would end before the
    # answer.
    monkeypatch.setattr(grpc_server, "_SETTINGS_TIMEOUT_MS", 300_000)
    fields = header("x-a", "b" * 100) * 600
    call = long_call(call_headers("/lf.a2a.v1.A2AService/ListTasks") + fields, has_end=True)
    async with (
        serve_grpc(mesh.bridged.bridge.grpc, {"": ANY_PORT}, grace_s=0) as addresses,
        connected(addresses[""]) as (reader, writer),
    ):
        writer.write(OPENING + call)
        received = await reader.readuntil(b"shorten it")
    assert b"the metadata is larger than 65536 bytes; shorten it" in received


async def test_a_connection_that_does_not_confirm_the_settings_ends(
    mesh: GrpcMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_SETTINGS_TIMEOUT_MS", 100)
    async with (
        serve_grpc(mesh.bridged.bridge.grpc, {"": ANY_PORT}, grace_s=0) as addresses,
        connected(addresses[""]) as (reader, writer),
    ):
        writer.write(OPENING)
        assert b"settings_timeout" in await reader.read()


async def test_calls_of_a_stopping_process_get_an_error_with_advice(mesh: GrpcMesh) -> None:
    bridge = mesh.bridged.bridge
    async with serve_grpc(bridge.grpc, {"": ANY_PORT}, grace_s=0.05) as addresses:
        channel = grpc.aio.insecure_channel(addresses[""])
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.SendStreamingMessage(send_request("wait 3600"))
        task_id = (await stream.read()).task.id
        waiting = stub.SendMessage(send_request("wait 3600"))
        await wait_until_open(bridge.grpc, 2)
    for call in (collect(stream), waiting):
        refused = await refusal(call)
        assert (refused.code, refused.reason, refused.retry_after_s) == (
            "UNAVAILABLE",
            "UNAVAILABLE",
            1,
        )
        assert "last-event-id" in refused.text
    await channel.close()
    task_read = await mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=task_id))
    assert task_read.status.state == a2a_pb2.TASK_STATE_WORKING


async def test_a_port_in_use_frees_the_ports_before_it(mesh: GrpcMesh) -> None:
    first, busy = HostPort.parse(free_address()), HostPort.parse(mesh.address)
    with pytest.raises(ConfigurationError, match=f"{busy}.*choose another"):
        async with serve_grpc(mesh.bridged.bridge.grpc, {"": first, "echo": busy}, grace_s=0):
            pass
    async with serve_grpc(mesh.bridged.bridge.grpc, {"": first}, grace_s=0) as addresses:
        assert addresses[""] == str(first)


IMPORTS = """
import trunkline, trunkline_bridge, trunkline_bridge.a2a.bindings.grpc_server
import trunkline.processes.all_in_one
from google.protobuf import descriptor_pool
pool = descriptor_pool.Default()
for package in ("lf.a2a.v1", "a2a.v1"):
    try:
        pool.FindMessageTypeByName(f"{package}.Task")
    except KeyError:
        continue
    raise SystemExit(f"{package} is in the default pool")
from trunkline_bridge.a2a.bindings.grpc import SERVICES
from trunkline_bridge.a2a.bindings.grpc_server import public_pool
public_pool(SERVICES)
from a2a.types import a2a_pb2
from a2a.compat.v0_3 import a2a_v0_3_pb2
from trunkline.a2a.v1 import a2a_pb2 as ours
assert ours.GetTaskRequest.FromString(a2a_pb2.GetTaskRequest(id="x").SerializeToString()).id == "x"
"""


async def test_a2a_s_sdk_may_be_imported_in_the_same_process() -> None:
    command = [sys.executable, "-c", IMPORTS]
    result = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
