"""Clients of a server without trunks, which breaks the contract, or whose channel is closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import grpc
import pytest

from harness.mcp.scripted_servers import collect_responses
from harness.mesh.identity import mesh_credentials
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
)
from trunkline.mesh.client import (
    ChannelPool,
    HostClient,
    MeshChannel,
    RegistryClient,
    ToolClient,
)
from trunkline.mesh.client.resuming_stream import SubmitStream
from trunkline.mesh.server import CallInterceptor
from trunkline.mesh.server.authorization import MeshAuthorizer
from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    part_pb2,
    tool_service_pb2,
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Mute(message_service_pb2_grpc.MessageServiceServicer):
    """A servicer with valid types, and responses that violate the contract."""

    async def SendMessage(
        self, _request: message_service_pb2.SendMessageRequest, _context: Context
    ) -> message_service_pb2.SendMessageResponse:
        return message_service_pb2.SendMessageResponse()

    async def StreamMessage(  # type: ignore[override]
        self, _request: message_service_pb2.StreamMessageRequest, _context: Context
    ) -> BatchStream:
        return BatchStream(message_service_pb2.StreamMessageResponse())

    async def DeliverMessages(  # type: ignore[override]
        self, _request: message_service_pb2.DeliverMessagesRequest, _context: Context
    ) -> BatchStream:
        return BatchStream(message_service_pb2.DeliverMessagesResponse())


class OneHost:
    """The part of a directory that a submission of a named task uses."""

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def client_for_task(self, _task_id: str) -> HostClient:
        return self._client


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A server without TrunkService, so that all calls are plain ones."""
    server = grpc.aio.server(interceptors=(CallInterceptor(MeshAuthorizer(mesh_credentials())),))
    message_service_pb2_grpc.add_MessageServiceServicer_to_server(Mute(), server)
    port = server.add_secure_port("127.0.0.1:0", mesh_credentials().server_credentials())
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def channel(address: str) -> AsyncIterator[MeshChannel]:
    async with ChannelPool(mesh_credentials()) as channels:
        yield channels.get(address)


async def test_an_answer_without_content_breaks_the_protocol(channel: MeshChannel) -> None:
    client = HostClient(channel)
    sent_message = message_pb2.Message()
    submission = message_service_pb2.Submission()
    with pytest.raises(PeerProtocolError):
        await client.send_message(agent="a", message=sent_message, submission=submission)
    directory: Any = OneHost(client)
    submission.task_id = "t-1"
    stream = SubmitStream(directory, "a", sent_message, submission, patience_s=0)
    with pytest.raises(PeerProtocolError):
        await stream.__aenter__()


async def test_a_peer_that_refuses_trunks_while_calls_are_written_gets_them_as_plain_calls(
    address: str,
) -> None:
    async def call(client: HostClient, text: str) -> None:
        message = message_pb2.Message(parts=[part_pb2.Part(text=text)])
        with pytest.raises(PeerProtocolError):
            await client.send_message(
                agent="a", message=message, submission=message_service_pb2.Submission()
            )

    # Each connection is refused during its first write, or before, or after.
    for size in range(0, 200_000, 4_000):
        async with ChannelPool(mesh_credentials()) as channels, asyncio.TaskGroup() as group:
            client = HostClient(channels.get(address))
            calls = [group.create_task(call(client, "x" * size)) for _ in range(4)]
            await asyncio.wait(calls)


async def test_streams_of_a_closed_channel_are_unavailable(channel: MeshChannel) -> None:
    await channel.close()
    async with AsyncExitStack() as stack:
        with pytest.raises(PeerUnavailableError):
            await stack.enter_async_context(HostClient(channel).watch_task("t-1", account=""))
        with pytest.raises(PeerUnavailableError):
            await collect_responses(ToolClient(channel), tool_service_pb2.CallToolRequest())
        for stream in (ToolClient(channel).watch_tools(), RegistryClient(channel).watch_agents()):
            with pytest.raises(PeerUnavailableError):
                await anext(stream)
