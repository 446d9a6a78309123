"""A gRPC server: its addresses, its reflection and health, and the calls that it refuses."""

import asyncio
import gc
import re
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from harness.mesh.identity import mesh_credentials
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.mesh.client import ChannelPool, RegistryClient
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.v1 import agent_card_pb2, registry_service_pb2

REGISTRY = "trunkline.v1.RegistryService"


@pytest.fixture
async def registry() -> AsyncIterator[RegistryServicer]:
    async with RegistryServicer() as registry:
        yield registry


@pytest.fixture
async def server(registry: RegistryServicer) -> AsyncIterator[MeshServer]:
    server = MeshServer(mesh_credentials())
    server.add_registry(registry)
    yield server
    await server.stop(0)


async def list_agents_at(address: str) -> int:
    async with ChannelPool(mesh_credentials()) as channels:
        return len(await RegistryClient(channels.get(address)).list_agents())


async def test_a_server_listens_at_several_addresses_and_reports_them(
    server: MeshServer, tmp_path: Path
) -> None:
    path = f"unix:{tmp_path}/mesh.sock"
    tcp, ipv6, unix = await server.start("127.0.0.1:0", "[::1]:0", path)
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", tcp)
    assert re.fullmatch(r"\[::1\]:[1-9]\d*", ipv6)
    assert unix == path
    for address in (tcp, ipv6, unix):
        assert await list_agents_at(address) == 0


async def test_a_server_that_was_never_started_is_freed() -> None:
    """Otherwise grpc polls for it to the end of the interpreter, and prints an error there."""
    credentials = mesh_credentials()
    told = set(credentials.on_revoked)
    server = weakref.ref(MeshServer(credentials))
    gc.collect()
    assert server() is None
    assert credentials.on_revoked == told


async def test_a_server_is_told_of_revocations_from_its_start_on_unless_the_start_fails() -> None:
    credentials = mesh_credentials()
    told = set(credentials.on_revoked)
    server = MeshServer(credentials)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(server.start("127.0.0.1:0"))
        await asyncio.sleep(0)
        assert len(credentials.on_revoked) == len(told) + 1
        starting.cancel()
    assert credentials.on_revoked == told


async def test_a_socket_in_use_is_not_replaced_and_a_stale_one_is(
    server: MeshServer, registry: RegistryServicer, tmp_path: Path
) -> None:
    path = tmp_path / "mesh.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ConfigurationError, match="another process listens"):
            await server.start(f"unix:{path}")
    assert path.is_socket()
    second = MeshServer(mesh_credentials())
    second.add_registry(registry)
    await second.start(f"unix:{path}")
    assert await list_agents_at(f"unix:{path}") == 0
    await second.stop(0)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("localhost", "is not HOST:PORT"),
        ("localhost:http", "is not HOST:PORT"),
        ("127.0.0.1:70000", "is not HOST:PORT"),
        ("192.0.2.1:0", "choose another"),
        ("unix:/nowhere/at/all/mesh.sock", "there is no folder"),
        (f"unix:/{'/tmp' * 50}.sock", "there is no folder"),
    ],
)
async def test_an_invalid_address_is_refused_with_the_reason(
    server: MeshServer, address: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as excinfo:
        await server.start(address)
    assert excinfo.value.where == address


async def test_a_socket_path_that_is_too_long_is_refused(
    server: MeshServer, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        await server.start(f"unix:{tmp_path / ('x' * 120)}")


async def test_health_is_reported_for_the_server_and_for_each_service(server: MeshServer) -> None:
    (address,) = await server.start("127.0.0.1:0")
    async with ChannelPool(mesh_credentials()) as channels:
        stub: Any = health_pb2_grpc.HealthStub(channels.get(address))
        for service in ("", REGISTRY):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(InvalidArgumentError):
            await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))


async def reflected(
    address: str, request: reflection_pb2.ServerReflectionRequest
) -> reflection_pb2.ServerReflectionResponse:
    async with ChannelPool(mesh_credentials()) as channels:
        channel: Any = channels.get(address)
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(request)
        answer = await call.read()
        assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
        call.cancel()
        return answer


async def test_reflection_describes_what_is_served(server: MeshServer) -> None:
    (address,) = await server.start("127.0.0.1:0")
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    listed = await reflected(address, request)
    assert {each.name for each in listed.list_services_response.service} == {
        REGISTRY,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=REGISTRY)
    names = await reflected(address, request)
    file = descriptor_pb2.FileDescriptorProto.FromString(
        names.file_descriptor_response.file_descriptor_proto[0]
    )
    assert [service.name for service in file.service] == ["RegistryService"]


async def test_reflection_hides_what_else_the_process_has_imported(server: MeshServer) -> None:
    (address,) = await server.start("127.0.0.1:0")
    request = reflection_pb2.ServerReflectionRequest(
        file_containing_symbol="trunkline.v1.ToolService"
    )
    answer = await reflected(address, request)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_proxy_in_the_environment_does_not_see_local_traffic(
    server: MeshServer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        # No server listens on port 1.
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (address,) = await server.start(f"{host}:0")
    assert await list_agents_at(address) == 0


async def test_messages_of_four_megabytes_are_accepted(server: MeshServer) -> None:
    (address,) = await server.start("127.0.0.1:0")
    card = agent_card_pb2.AgentCard(name="big", description="x" * 4 * 1024 * 1024)
    host = registry_service_pb2.Host(host_id="h-1", address=address)
    host.agents.add(card=card)
    async with ChannelPool(mesh_credentials()) as channels:
        client = RegistryClient(channels.get(address))
        await client.register(host)
        (listed,) = await client.list_agents()
    assert listed.agents[0].card == card


async def test_channels_are_shared_per_address_and_use_their_alias(
    server: MeshServer, tmp_path: Path
) -> None:
    path = f"unix:{tmp_path}/mesh.sock"
    await server.start(path)
    async with ChannelPool(mesh_credentials(), aliases={"mesh.example:50051": path}) as channels:
        channel = channels.get("mesh.example:50051")
        assert channel is channels.get("mesh.example:50051")
        assert channel.address == "mesh.example:50051"
        assert await RegistryClient(channel).list_agents() == []
        channels.add_alias("other.example:50051", path)
        other = RegistryClient(channels.get("other.example:50051"))
        assert await other.list_agents() == []
