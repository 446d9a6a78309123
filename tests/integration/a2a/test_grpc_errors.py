"""Errors of A2A over gRPC have the right status and details, in v0.3 also the right text."""

import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2

from harness.a2a.grpc_client import (
    GrpcMesh,
    collect,
    open_grpc_mesh,
    refusal,
    send_request,
    v0_3_send_request,
    wait_until_open,
)
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    async with open_grpc_mesh(tmp_path_factory.mktemp("mesh")) as opened:
        await opened.bridged.mesh.join(echo)
        yield opened


async def test_a_message_of_v0_3_is_validated_too(mesh: GrpcMesh) -> None:
    refused = await refusal(mesh.v0_3.SendMessage(old.SendMessageRequest()))
    assert refused.code == "INVALID_ARGUMENT"
    assert refused.text.startswith("InvalidParamsError: ")
    wrong_role = v0_3_send_request("hello", role="ROLE_AGENT")
    assert set((await refusal(mesh.v0_3.SendMessage(wrong_role))).violations) == {"message.role"}


def make_request(value: bytes) -> bytes:
    """Return a SendMessageRequest whose message metadata has these bytes as its Value."""
    request = send_request("hello")
    request.message.metadata["x"] = 12345.5
    whole = request.SerializeToString()
    placeholder = a2a_pb2.SendMessageRequest()
    placeholder.message.metadata["x"] = 12345.5
    number = placeholder.message.metadata.fields["x"].SerializeToString()
    assert len(number) == len(value)
    return whole.replace(number, value)


async def test_numbers_and_times_that_json_does_not_have_are_refused(mesh: GrpcMesh) -> None:
    for number in (float("nan"), float("inf"), float("-inf")):
        body = make_request(b"\x11" + struct.pack("<d", number))
        refused = await refusal(mesh.raw("/lf.a2a.v1.A2AService/SendMessage", body))
        assert (refused.code, set(refused.violations)) == ("INVALID_ARGUMENT", {"request"})
    listing = a2a_pb2.ListTasksRequest()
    listing.status_timestamp_after.seconds = 2**60
    assert (await refusal(mesh.v1.ListTasks(listing))).code == "INVALID_ARGUMENT"


async def test_fields_that_a2a_does_not_have_are_dropped(mesh: GrpcMesh) -> None:
    # Field 1000 of the request and of its message, which no version defines.
    unknown = b"\xc2\x3e\x06secret"
    request = send_request("hello")
    request.message.MergeFromString(unknown)
    body = request.SerializeToString() + unknown
    answer = await mesh.raw("/lf.a2a.v1.A2AService/SendMessage", body)
    assert a2a_pb2.SendMessageResponse.FromString(answer).HasField("task")
    assert b"secret" not in answer


async def test_deep_nesting_is_refused(mesh: GrpcMesh) -> None:
    for levels in (20, 46, 48, 60, 5000):
        value = b"\x1a\x01x"
        for _ in range(levels):
            # A Value with a list of one Value.
            value = b"\x0a" + varint(len(value)) + value
            value = b"\x32" + varint(len(value)) + value
        part = b"\x22" + varint(len(value)) + value
        request = (
            send_request("hello").message.SerializeToString() + b"\x2a" + varint(len(part)) + part
        )
        body = b"\x12" + varint(len(request)) + request
        call = mesh.raw("/lf.a2a.v1.A2AService/SendMessage", body)
        if levels <= 46:
            answer = a2a_pb2.SendMessageResponse.FromString(await call)
            read_request = await mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=answer.task.id))
            assert read_request.history[0].parts[1].HasField("data")
        else:
            assert (await refusal(call)).code == "INVALID_ARGUMENT"


async def test_very_many_values_are_refused_quickly(mesh: GrpcMesh) -> None:
    parts = b"\x2a\x00" * 1_000_000
    request = send_request("hello").message.SerializeToString() + parts
    body = b"\x12" + varint(len(request)) + request
    refused = await refusal(mesh.raw("/lf.a2a.v1.A2AService/SendMessage", body))
    assert refused.code == "INVALID_ARGUMENT"
    assert "more than" in refused.violations["request"]


async def test_a_message_that_is_too_large_is_refused(mesh: GrpcMesh) -> None:
    large = "x" * (4 * 1024 * 1024)
    for call in (
        mesh.v1.SendMessage(send_request(large)),
        mesh.v0_3.SendMessage(v0_3_send_request(large)),
        collect(mesh.v1.SendStreamingMessage(send_request(large))),
    ):
        refused = await refusal(call)
        assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "INVALID_REQUEST")
        assert "is larger than 4194304 bytes; send large content by url" in refused.text
    assert (
        await refusal(mesh.v1.SendMessage(send_request(2 * large)))
    ).code == "RESOURCE_EXHAUSTED"


async def test_a_call_without_a_message_is_refused(mesh: GrpcMesh) -> None:
    for method in ("SendMessage", "SendStreamingMessage"):
        call: Any = mesh.channel.stream_stream(f"/lf.a2a.v1.A2AService/{method}")
        refused = await refusal(collect(call(iter([]))))
        assert (refused.code, refused.reason) == ("INVALID_ARGUMENT", "INVALID_REQUEST")


async def test_a_call_whose_message_does_not_arrive_times_out(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Long enough for a message that does arrive, on a busy machine.
    settings = Settings(default_agent="echo", request_timeout_s=1.0)
    async with open_grpc_mesh(tmp_path_factory.mktemp("impatient"), settings) as mesh:
        await mesh.bridged.mesh.join(echo)
        methods = ("SendMessage", "SendStreamingMessage")
        calls: list[Any] = [
            mesh.channel.stream_stream(f"/lf.a2a.v1.A2AService/{method}")() for method in methods
        ]
        for call in calls:
            refused = await refusal(call.read())
            assert (refused.code, refused.reason) == ("DEADLINE_EXCEEDED", "INVALID_REQUEST")
            assert "did not arrive within 1 s" in refused.text
        assert (await mesh.v1.SendMessage(send_request("echo hi"))).HasField("task")
        await wait_until_open(mesh.bridged.bridge.grpc, 0)


async def test_errors_fit_into_headers_for_any_input(mesh: GrpcMesh) -> None:
    for name in ("x" * 100_000, "\N{SNOWMAN}" * 50_000):
        refused = await refusal(mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=name)))
        assert (refused.code, refused.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
        assert refused.metadata["taskId"].endswith("…")
    request = send_request("hello")
    for _ in range(1000):
        request.message.parts.add()
    refused = await refusal(mesh.v1.SendMessage(request))
    assert refused.code == "INVALID_ARGUMENT"
    assert refused.violations["message.parts[1]"]


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
