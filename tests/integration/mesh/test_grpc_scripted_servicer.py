"""The clients of the tool adapter and of the span store, against servers that a test scripts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeAlias

import grpc
import pytest

from harness.mcp.scripted_servers import collect_responses
from harness.mesh.identity import mesh_credentials
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    ToolNotFoundError,
    TraceNotFoundError,
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
    tool_service_pb2_grpc,
    trace_service_pb2,
    trace_service_pb2_grpc,
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Tools(tool_service_pb2_grpc.ToolServiceServicer):
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def ListTools(
        self, request: tool_service_pb2.ListToolsRequest, _context: Context
    ) -> tool_service_pb2.ListToolsResponse:
        tools = [tool_service_pb2.Tool(server=name, name="add") for name in request.servers]
        return tool_service_pb2.ListToolsResponse(tools=tools)

    async def CallTool(
        self, request: tool_service_pb2.CallToolRequest, _context: Context
    ) -> AsyncIterator[tool_service_pb2.CallToolResponse]:
        if request.tool == "nothing":
            raise ToolNotFoundError(request.server, request.tool)
        try:
            yield tool_service_pb2.CallToolResponse(
                progress=tool_service_pb2.ToolProgress(progress=1)
            )
            if request.tool == "hang":
                await asyncio.Event().wait()
            yield tool_service_pb2.CallToolResponse(result=tool_service_pb2.ToolResult())
        finally:
            self.ended.set()

    async def CancelToolTask(
        self, _request: tool_service_pb2.CancelToolTaskRequest, _context: Context
    ) -> tool_service_pb2.CancelToolTaskResponse:
        return tool_service_pb2.CancelToolTaskResponse()

    async def StartSignIn(
        self, _request: tool_service_pb2.StartSignInRequest, _context: Context
    ) -> tool_service_pb2.StartSignInResponse:
        return tool_service_pb2.StartSignInResponse()

    async def CompleteSignIn(
        self, _request: tool_service_pb2.CompleteSignInRequest, _context: Context
    ) -> tool_service_pb2.CompleteSignInResponse:
        return tool_service_pb2.CompleteSignInResponse()

    async def WatchTools(
        self, request: tool_service_pb2.WatchToolsRequest, _context: Context
    ) -> AsyncIterator[tool_service_pb2.WatchToolsResponse]:
        for name in request.servers:
            yield tool_service_pb2.WatchToolsResponse(
                servers=[tool_service_pb2.ToolServer(name=name)]
            )


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    async def GetTrace(
        self, request: trace_service_pb2.GetTraceRequest, _context: Context
    ) -> trace_service_pb2.GetTraceResponse:
        if request.task_id:
            raise TraceNotFoundError(request.task_id)
        return trace_service_pb2.GetTraceResponse(
            spans=[trace_service_pb2.Span(trace_id=request.trace_id)]
        )

    async def ListTraces(
        self, request: trace_service_pb2.ListTracesRequest, _context: Context
    ) -> trace_service_pb2.ListTracesResponse:
        token = f"{request.page_size}:{request.page_token}"
        return trace_service_pb2.ListTracesResponse(next_page_token=token)

    async def WatchTraces(
        self, request: trace_service_pb2.WatchTracesRequest, _context: Context
    ) -> AsyncIterator[trace_service_pb2.WatchTracesResponse]:
        yield trace_service_pb2.WatchTracesResponse()

    async def WatchEdges(
        self, request: trace_service_pb2.WatchEdgesRequest, _context: Context
    ) -> AsyncIterator[trace_service_pb2.WatchEdgesResponse]:
        yield trace_service_pb2.WatchEdgesResponse()


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
def tools() -> Tools:
    return Tools()


@pytest.fixture
async def address(tools: Tools) -> AsyncIterator[str]:
    """A server without TrunkService, so that all calls are plain ones."""
    server = grpc.aio.server(interceptors=(CallInterceptor(MeshAuthorizer(mesh_credentials())),))
    tool_service_pb2_grpc.add_ToolServiceServicer_to_server(tools, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    message_service_pb2_grpc.add_MessageServiceServicer_to_server(Mute(), server)
    port = server.add_secure_port("127.0.0.1:0", mesh_credentials().server_credentials())
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def channel(address: str) -> AsyncIterator[MeshChannel]:
    async with ChannelPool(mesh_credentials()) as channels:
        yield channels.get(address)


async def test_tools_are_listed_and_watched_by_server(channel: MeshChannel) -> None:
    client = ToolClient(channel)
    listed = await client.list_tools(("math", "time"))
    assert [tool.server for tool in listed.tools] == ["math", "time"]
    async with aclosing(client.watch_tools(("math", "time"))) as lists:
        assert [each.servers[0].name async for each in lists] == ["math", "time"]


async def test_a_tool_s_responses_are_streamed_and_end_with_the_result(
    channel: MeshChannel,
) -> None:
    request = tool_service_pb2.CallToolRequest(server="math", tool="add")
    responses = await collect_responses(ToolClient(channel), request)
    kinds = [response.WhichOneof("payload") for response in responses]
    assert kinds == ["progress", "result"]


async def test_closing_a_tool_call_cancels_it_in_the_adapter(
    channel: MeshChannel, tools: Tools
) -> None:
    request = tool_service_pb2.CallToolRequest(server="math", tool="hang")
    begun = asyncio.Event()

    async def read() -> None:
        async with aclosing(ToolClient(channel).call_tool(request)) as responses:
            async for _ in responses:
                begun.set()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        call = group.create_task(read())
        await begun.wait()
        assert not tools.ended.is_set()
        call.cancel()
        await tools.ended.wait()
    assert call.cancelled()


async def test_an_unknown_tool_is_named(channel: MeshChannel) -> None:
    request = tool_service_pb2.CallToolRequest(server="math", tool="nothing")
    with pytest.raises(ToolNotFoundError) as excinfo:
        await collect_responses(ToolClient(channel), request)
    assert (excinfo.value.server, excinfo.value.tool) == ("math", "nothing")


async def test_traces_are_read_and_listed(channel: MeshChannel) -> None:
    client = trace_service_pb2_grpc.TraceServiceStub(channel)
    found = await client.GetTrace(trace_service_pb2.GetTraceRequest(trace_id="abc"))
    assert [span.trace_id for span in found.spans] == ["abc"]
    with pytest.raises(TraceNotFoundError):
        await client.GetTrace(trace_service_pb2.GetTraceRequest(task_id="t-1"))
    assert (
        await client.ListTraces(trace_service_pb2.ListTracesRequest(page_size=7, page_token="x"))
    ).next_page_token == "7:x"


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
