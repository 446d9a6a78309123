"""A2A over gRPC: every method of v1.0 and v0.3, called with the reference SDK's stubs."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as old_grpc
from a2a.types import a2a_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.a2a.grpc_client import (
    GrpcMesh,
    collect,
    open_grpc_mesh,
    refusal,
    send_request,
    v0_3_send_request,
    wait_until_open,
)
from trunkline.a2a_wire.protocol import EVENT_ID_KEY, RESUME_EXTENSION
from trunkline.agents import agent
from trunkline.core.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@agent(name="other", description="Answers for another agent.")
async def other(task: TaskContext) -> str:
    return f"other: {task.text}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    folder = tmp_path_factory.mktemp("mesh")
    async with open_grpc_mesh(folder, settings, own=("other",)) as opened:
        await opened.bridged.mesh.join(echo, other)
        yield opened


def text_of(artifacts: Any) -> str:
    return "".join(part.text for artifact in artifacts for part in artifact.parts)


def streamed_text(events: list[Any]) -> str:
    return text_of(event.artifact_update.artifact for event in events)


async def test_a_tenant_names_the_agent(mesh: GrpcMesh) -> None:
    answer = await mesh.v1.SendMessage(send_request("hello", tenant="other"))
    assert text_of(answer.task.artifacts) == "other: hello"
    task_id = answer.task.id
    task_read = await mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=task_id, tenant="other"))
    assert task_read.id == task_id
    # At the default agent's address the task does not exist.
    refused = await refusal(mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=task_id)))
    assert (refused.code, refused.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
    unknown_tenant = await refusal(mesh.v1.SendMessage(send_request("hello", tenant="nobody")))
    assert (unknown_tenant.code, unknown_tenant.reason) == ("NOT_FOUND", "AGENT_NOT_FOUND")


async def test_v0_3_reaches_every_agent_by_metadata(mesh: GrpcMesh) -> None:
    to_other = (("trunkline-agent", "other"),)
    answer = await mesh.v0_3.SendMessage(v0_3_send_request("hello"), metadata=to_other)
    assert text_of(answer.task.artifacts) == "other: hello"
    events = await collect(
        mesh.v0_3.SendStreamingMessage(v0_3_send_request("hello"), metadata=to_other)
    )
    assert streamed_text(events) == "other: hello"
    request = old.GetTaskRequest(name=f"tasks/{answer.task.id}")
    assert (await mesh.v0_3.GetTask(request, metadata=to_other)).id == answer.task.id
    elsewhere = await refusal(mesh.v0_3.GetTask(request))
    assert (elsewhere.code, elsewhere.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")
    unknown = (("trunkline-agent", "nobody"),)
    refused = await refusal(mesh.v0_3.SendMessage(v0_3_send_request("hello"), metadata=unknown))
    assert (refused.code, refused.reason) == ("NOT_FOUND", "AGENT_NOT_FOUND")


async def test_the_metadata_names_the_agent_in_v1_0_too(mesh: GrpcMesh) -> None:
    to_other = (("trunkline-agent", "other"),)
    answer = await mesh.v1.SendMessage(send_request("hello"), metadata=to_other)
    assert text_of(answer.task.artifacts) == "other: hello"
    both = await refusal(
        mesh.v1.SendMessage(send_request("hello", tenant="echo"), metadata=to_other)
    )
    assert (both.code, list(both.violations)) == ("INVALID_ARGUMENT", ["tenant"])
    for value in ("no name", "", "echo,other"):
        answers = mesh.v1.SendMessage(
            send_request("hello", tenant="other"), metadata=(("trunkline-agent", value),)
        )
        if value:
            refused = await refusal(answers)
            assert (refused.code, list(refused.violations)) == (
                "INVALID_ARGUMENT",
                ["trunkline-agent"],
            )
        else:
            assert text_of((await answers).task.artifacts) == "other: hello"


async def test_an_agents_own_address_needs_no_name(mesh: GrpcMesh) -> None:
    address = mesh.bridged.bridge.addresses.agent_grpc["other"]
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = old_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        answer = await stub.SendMessage(v0_3_send_request("hello"))
        assert text_of(answer.task.artifacts) == "other: hello"
        elsewhere = (("trunkline-agent", "echo"),)
        refused = await refusal(stub.SendMessage(v0_3_send_request("hello"), metadata=elsewhere))
        assert (refused.code, list(refused.violations)) == ("INVALID_ARGUMENT", ["trunkline-agent"])


async def test_event_ids_are_sent_on_request(mesh: GrpcMesh) -> None:
    plain = mesh.v1.SendStreamingMessage(send_request("count 2"))
    assert not any(
        EVENT_ID_KEY in getattr(event, event.WhichOneof("payload")).metadata
        for event in await collect(plain)
    )
    assert "a2a-extensions" not in dict(await plain.initial_metadata())
    for key in ("a2a-extensions", "x-a2a-extensions"):
        extension_header = ((key, f"https://unknown.example/x, {RESUME_EXTENSION}"),)
        call = mesh.v1.SendStreamingMessage(send_request("count 2"), metadata=extension_header)
        assert dict(await call.initial_metadata())[key] == RESUME_EXTENSION
        await collect(call)


async def test_a_deadline_of_the_call_ends_only_the_call(mesh: GrpcMesh) -> None:
    started = await mesh.v1.SendMessage(send_request("wait 3600", now=True))
    task_id = started.task.id
    request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
    ended = await refusal(lambda: collect(mesh.v1.SubscribeToTask(request, timeout=0.2)))
    assert ended.code == "DEADLINE_EXCEEDED"
    await wait_until_open(mesh.bridged.bridge.grpc, 0)
    await wait_until_working(mesh, task_id)
    await mesh.v1.CancelTask(a2a_pb2.CancelTaskRequest(id=task_id))


async def wait_until_working(mesh: GrpcMesh, task_id: str) -> None:
    """Wait until a task's agent has begun; assert that the task has not ended."""
    await mesh.bridged.mesh.until(
        task_id, lambda now: now.task.status.state == State.TASK_STATE_WORKING
    )


async def test_the_health_service_reports_serving(mesh: GrpcMesh) -> None:
    stub: Any = health_pb2_grpc.HealthStub(mesh.channel)
    for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("/lf.a2a.v1.A2AService/Nope", "it has SendMessage, SendStreamingMessage, "),
        ("/a2a.v1.A2AService/ListTasks", "lf.a2a.v1.A2AService of A2A 1.0 has it"),
        ("/lf.a2a.v1.A2AService/", "it has SendMessage, "),
        ("/x.Y/" + "Z" * 3000, "A2A is served as lf.a2a.v1.A2AService and a2a.v1.A2AService"),
    ],
)
async def test_unknown_methods_are_refused_with_the_known_ones(
    mesh: GrpcMesh, method: str, advice: str
) -> None:
    refused = await refusal(mesh.raw(method, b"x" * 100_000))
    assert (refused.code, refused.reason) == ("UNIMPLEMENTED", "METHOD_NOT_FOUND")
    assert advice in refused.text
    assert method[1:].startswith(refused.metadata["method"].removesuffix("…"))
    # A client that streams requests gets the error before its first request.
    many: Any = mesh.channel.stream_stream(method)
    assert (await refusal(many().read())).code == "UNIMPLEMENTED"
