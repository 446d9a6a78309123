"""A2A over gRPC: every method of v1.0 and v0.3, called with the reference SDK's stubs."""

import asyncio
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
from trunkline.json_values import parse_dict
from trunkline.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENT_ID = f"{RESUME_EXTENSION}/eventId"
HOOK = "http://127.0.0.1:9/hook"
WITH_RESUME = (("a2a-extensions", RESUME_EXTENSION),)


@agent(name="other", description="Answers for another agent.")
async def other(task: TaskContext) -> str:
    return f"other: {task.text}"


@agent(name="slow", description="Works until it is stopped.")
async def slow(_task: TaskContext) -> None:
    await asyncio.Event().wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    folder = tmp_path_factory.mktemp("mesh")
    async with open_grpc_mesh(folder, settings, own=("other",)) as opened:
        await opened.bridged.mesh.join(echo, other, slow)
        yield opened


def text_of(artifacts: Any) -> str:
    return "".join(part.text for artifact in artifacts for part in artifact.parts)


def streamed_text(events: list[Any]) -> str:
    return text_of(event.artifact_update.artifact for event in events)


async def test_v1_sends_and_waits(mesh: GrpcMesh) -> None:
    answer = await mesh.v1.SendMessage(send_request("count 3"))
    assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert text_of(answer.task.artifacts) == "1 2 3 "
    task_read = await mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=answer.task.id))
    assert task_read == answer.task
    without_history = await mesh.v1.GetTask(
        a2a_pb2.GetTaskRequest(id=answer.task.id, history_length=0)
    )
    assert not without_history.history


async def test_v1_gets_only_a_direct_reply(mesh: GrpcMesh) -> None:
    answer = await mesh.v1.SendMessage(send_request("message hello"))
    assert text_of([answer.message]) == "hello"
    (event,) = await collect(
        mesh.v1.SendStreamingMessage(send_request("message hello"), metadata=WITH_RESUME)
    )
    assert text_of([event.message]) == "hello"
    assert not event.message.HasField("metadata")


async def test_v1_streams_in_order(mesh: GrpcMesh) -> None:
    events = await collect(mesh.v1.SendStreamingMessage(send_request("count 200")))
    assert events[0].HasField("task")
    assert streamed_text(events).split() == [str(number) for number in range(1, 201)]
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_v1_answers_a_question_by_the_tasks_id(mesh: GrpcMesh) -> None:
    events = await collect(mesh.v1.SendStreamingMessage(send_request("ask what?")))
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_INPUT_REQUIRED
    task_id = events[0].task.id
    answered = await mesh.v1.SendMessage(send_request("this", taskId=task_id))
    assert answered.task.id == task_id
    assert answered.task.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_v1_subscribes_and_cancels(mesh: GrpcMesh) -> None:
    started = await mesh.v1.SendMessage(send_request("wait 3600", now=True))
    task_id = started.task.id
    subscribed = mesh.v1.SubscribeToTask(a2a_pb2.SubscribeToTaskRequest(id=task_id))
    assert (await subscribed.read()).task.id == task_id
    canceled = await mesh.v1.CancelTask(a2a_pb2.CancelTaskRequest(id=task_id))
    assert canceled.status.state == a2a_pb2.TASK_STATE_CANCELED
    remaining = await collect(subscribed)
    assert remaining[-1].status_update.status.state == a2a_pb2.TASK_STATE_CANCELED


async def test_v1_lists_by_pages(mesh: GrpcMesh) -> None:
    context_id = (await mesh.v1.SendMessage(send_request("one"))).task.context_id
    await mesh.v1.SendMessage(send_request("two", contextId=context_id))
    query = a2a_pb2.ListTasksRequest(context_id=context_id, page_size=1)
    page = await mesh.v1.ListTasks(query)
    assert (len(page.tasks), page.page_size, page.total_size) == (1, 1, 2)
    query.page_token = page.next_page_token
    remaining = await mesh.v1.ListTasks(query)
    assert (len(remaining.tasks), remaining.next_page_token) == (1, "")
    assert remaining.tasks[0].id != page.tasks[0].id
    default = await mesh.v1.ListTasks(a2a_pb2.ListTasksRequest(context_id=context_id))
    assert (len(default.tasks), default.page_size) == (2, 50)


async def test_a_task_is_the_same_over_grpc_and_over_json(mesh: GrpcMesh) -> None:
    request = send_request("file 300", metadata={"deep": [1, {"x": None}], "half": 0.5})
    request.message.parts.add().data.list_value.extend(["a", 2])
    task = (await mesh.v1.SendMessage(request)).task
    json_task = await mesh.bridged.at("/").call("GetTask", {"id": task.id})
    parsed = parse_dict(json_task, a2a_pb2.Task())
    # JSON has only milliseconds.
    task.status.timestamp.nanos -= task.status.timestamp.nanos % 1_000_000
    assert parsed == task


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


async def test_a_stream_resumes_after_an_event(mesh: GrpcMesh) -> None:
    events = await collect(
        mesh.v1.SendStreamingMessage(send_request("count 20"), metadata=WITH_RESUME)
    )
    ids = [getattr(event, event.WhichOneof("payload")).metadata[EVENT_ID] for event in events]
    assert len(set(ids)) == len(ids)
    request = a2a_pb2.SubscribeToTaskRequest(id=events[0].task.id)
    for index in (0, 7, len(ids) - 2, len(ids) - 1):
        resume_metadata = (*WITH_RESUME, ("last-event-id", ids[index]))
        remaining = await collect(mesh.v1.SubscribeToTask(request, metadata=resume_metadata))
        assert remaining == events[index + 1 :]


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


async def test_with_the_extension_a_repeated_message_is_submitted_once(mesh: GrpcMesh) -> None:
    request = send_request("count 2")
    first = await collect(mesh.v1.SendStreamingMessage(request, metadata=WITH_RESUME))
    again = await collect(mesh.v1.SendStreamingMessage(request, metadata=WITH_RESUME))
    assert again[0].task.id == first[0].task.id
    plain = await mesh.v1.SendMessage(request)
    assert plain.task.id != first[0].task.id


async def test_a_deadline_of_the_call_ends_only_the_call(mesh: GrpcMesh) -> None:
    started = await mesh.v1.SendMessage(send_request("wait 3600", now=True))
    task_id = started.task.id
    request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
    ended = await refusal(lambda: collect(mesh.v1.SubscribeToTask(request, timeout=0.2)))
    assert ended.code == "DEADLINE_EXCEEDED"
    await wait_until_open(mesh.bridged.bridge.grpc, 0)
    await wait_until_working(mesh, task_id)
    await mesh.v1.CancelTask(a2a_pb2.CancelTaskRequest(id=task_id))


async def test_a_timeout_in_the_metadata_is_the_tasks(mesh: GrpcMesh) -> None:
    call = send_request("hello", tenant="slow")
    answer = await mesh.v1.SendMessage(call, metadata=(("trunkline-timeout", "0.2"),))
    assert answer.task.status.state == a2a_pb2.TASK_STATE_FAILED
    error = await refusal(
        mesh.v1.SendMessage(send_request("hello"), metadata=(("trunkline-timeout", "soon"),))
    )
    assert (error.code, set(error.violations)) == ("INVALID_ARGUMENT", {"Trunkline-Timeout"})


async def test_a_client_that_disconnects_ends_only_its_call(mesh: GrpcMesh) -> None:
    calls = mesh.bridged.bridge.grpc
    await wait_until_open(calls, 0)
    stream = mesh.v1.SendStreamingMessage(send_request("wait 3600"))
    task_id = (await stream.read()).task.id
    assert len(calls) == 1
    stream.cancel()
    await wait_until_open(calls, 0)
    await wait_until_working(mesh, task_id)
    await mesh.v1.CancelTask(a2a_pb2.CancelTaskRequest(id=task_id))


async def wait_until_working(mesh: GrpcMesh, task_id: str) -> None:
    """Wait until a task's agent has begun; assert that the task has not ended."""
    await mesh.bridged.mesh.until(
        task_id, lambda now: now.task.status.state == State.TASK_STATE_WORKING
    )


@pytest.mark.parametrize(
    ("version", "is_served"),
    [("1.0", True), ("1.0.7", True), ("", True), ("0.3", False), ("2.0", False), ("x", False)],
)
async def test_v1_serves_only_its_own_version(
    mesh: GrpcMesh, version: str, is_served: bool
) -> None:
    call = mesh.v1.SendMessage(send_request("hello"), metadata=(("a2a-version", version),))
    if is_served:
        assert (await call).task.status.state == a2a_pb2.TASK_STATE_COMPLETED
        return
    refused = await refusal(call)
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
    assert refused.metadata == {"supportedVersions": "1.0"}


async def test_v0_3_serves_only_its_own_version(mesh: GrpcMesh) -> None:
    answer = await mesh.v0_3.SendMessage(
        v0_3_send_request("hello"), metadata=(("a2a-version", "0.3"),)
    )
    assert answer.task.status.state == old.TASK_STATE_COMPLETED
    call = mesh.v0_3.SendMessage(v0_3_send_request("hello"), metadata=(("a2a-version", "1.0"),))
    refused = await refusal(call)
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")


async def test_v0_3_sends_and_waits(mesh: GrpcMesh) -> None:
    answer = await mesh.v0_3.SendMessage(v0_3_send_request("count 3"))
    assert answer.task.status.state == old.TASK_STATE_COMPLETED
    assert text_of(answer.task.artifacts) == "1 2 3 "
    assert answer.task.history[0].content[0].text == "count 3"
    task_read = await mesh.v0_3.GetTask(old.GetTaskRequest(name=f"tasks/{answer.task.id}"))
    assert task_read == answer.task
    now = await mesh.v0_3.SendMessage(v0_3_send_request("wait 3600", blocking=False))
    canceled = await mesh.v0_3.CancelTask(old.CancelTaskRequest(name=f"tasks/{now.task.id}"))
    assert canceled.status.state == old.TASK_STATE_CANCELLED
    direct = await mesh.v0_3.SendMessage(v0_3_send_request("message hello"))
    assert direct.msg.content[0].text == "hello"


async def test_v0_3_streams_to_the_end_of_the_turn(mesh: GrpcMesh) -> None:
    events = await collect(mesh.v0_3.SendStreamingMessage(v0_3_send_request("count 50")))
    assert events[0].HasField("task")
    assert streamed_text(events).split() == [str(number) for number in range(1, 51)]
    finals = [event.status_update.final for event in events if event.HasField("status_update")]
    assert finals == [False] * (len(finals) - 1) + [True]
    question_events = await collect(mesh.v0_3.SendStreamingMessage(v0_3_send_request("ask what?")))
    assert question_events[-1].status_update.final
    assert question_events[-1].status_update.status.state == old.TASK_STATE_INPUT_REQUIRED
    task_id = question_events[0].task.id
    answered = await mesh.v0_3.SendMessage(v0_3_send_request("this", taskId=task_id))
    assert answered.task.status.state == old.TASK_STATE_COMPLETED


async def test_v0_3_subscribes_until_the_turn_ends(mesh: GrpcMesh) -> None:
    now = await mesh.v0_3.SendMessage(v0_3_send_request("wait 3600", blocking=False))
    name = f"tasks/{now.task.id}"
    subscribed = mesh.v0_3.TaskSubscription(old.TaskSubscriptionRequest(name=name))
    assert (await subscribed.read()).task.id == now.task.id
    await mesh.v0_3.CancelTask(old.CancelTaskRequest(name=name))
    remaining = await collect(subscribed)
    assert remaining[-1].status_update.final
    # An ended task is returned again, without an error.
    events = await collect(mesh.v0_3.TaskSubscription(old.TaskSubscriptionRequest(name=name)))
    assert [event.WhichOneof("payload") for event in events] == ["task", "status_update"]


async def test_v1_stores_webhooks_and_never_shows_their_secrets(mesh: GrpcMesh) -> None:
    task_id = (await mesh.v1.SendMessage(send_request("ask what?"))).task.id
    config = a2a_pb2.TaskPushNotificationConfig(id="w-1", task_id=task_id, url=HOOK, token="s3cret")
    config.authentication.scheme = "Bearer"
    config.authentication.credentials = "s3cret"
    created = await mesh.v1.CreateTaskPushNotificationConfig(config)
    assert (created.id, created.task_id, created.url) == ("w-1", task_id, HOOK)
    request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id="w-1")
    task_read = await mesh.v1.GetTaskPushNotificationConfig(request)
    query = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    listed = await mesh.v1.ListTaskPushNotificationConfigs(query)
    assert task_read == created
    assert list(listed.configs) == [created]
    assert b"s3cret" not in listed.SerializeToString()
    deletion = a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="w-1")
    await mesh.v1.DeleteTaskPushNotificationConfig(deletion)
    assert not (await mesh.v1.ListTaskPushNotificationConfigs(query)).configs
    refused = await refusal(mesh.v1.GetTaskPushNotificationConfig(request))
    assert (refused.code, refused.reason) == ("NOT_FOUND", "TASK_NOT_FOUND")


async def test_v0_3_stores_webhooks_by_their_names(mesh: GrpcMesh) -> None:
    task_id = (await mesh.v0_3.SendMessage(v0_3_send_request("ask what?"))).task.id
    request = old.CreateTaskPushNotificationConfigRequest(
        parent=f"tasks/{task_id}", config_id="w-1"
    )
    request.config.push_notification_config.url = HOOK
    request.config.push_notification_config.authentication.schemes.append("Bearer")
    created = await mesh.v0_3.CreateTaskPushNotificationConfig(request)
    name = f"tasks/{task_id}/pushNotificationConfigs/w-1"
    assert (created.name, created.push_notification_config.url) == (name, HOOK)
    for request_name in (name, f"tasks/{task_id}"):
        get_request = old.GetTaskPushNotificationConfigRequest(name=request_name)
        assert await mesh.v0_3.GetTaskPushNotificationConfig(get_request) == created
    query = old.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task_id}")
    assert list((await mesh.v0_3.ListTaskPushNotificationConfig(query)).configs) == [created]
    deletion = old.DeleteTaskPushNotificationConfigRequest(name=name)
    await mesh.v0_3.DeleteTaskPushNotificationConfig(deletion)
    assert not (await mesh.v0_3.ListTaskPushNotificationConfig(query)).configs


async def test_a_webhook_may_come_with_the_message(mesh: GrpcMesh) -> None:
    request = send_request("ask what?")
    request.configuration.task_push_notification_config.url = HOOK
    task_id = (await mesh.v1.SendMessage(request)).task.id
    before = v0_3_send_request("ask what?")
    before.configuration.push_notification.url = HOOK
    other_id = (await mesh.v0_3.SendMessage(before)).task.id
    for sent_id in (task_id, other_id):
        query = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=sent_id)
        (webhook,) = (await mesh.v1.ListTaskPushNotificationConfigs(query)).configs
        assert webhook.url == HOOK


async def test_the_extended_card_is_refused_without_authentication(mesh: GrpcMesh) -> None:
    refused = await refusal(mesh.v1.GetExtendedAgentCard(a2a_pb2.GetExtendedAgentCardRequest()))
    before = await refusal(mesh.v0_3.GetAgentCard(old.GetAgentCardRequest()))
    assert refused.reason == before.reason == "UNSUPPORTED_OPERATION"


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


async def test_big_files_are_urls_of_the_http_side_in_both_versions(mesh: GrpcMesh) -> None:
    expected = (bytes(range(256)) * 400)[:100_000]
    new = await mesh.v1.SendMessage(send_request("file 100000"))
    before = await mesh.v0_3.SendMessage(v0_3_send_request("file 100000"))
    ((part,),) = (artifact.parts for artifact in new.task.artifacts)
    ((old_part,),) = (artifact.parts for artifact in before.task.artifacts)
    assert old_part.file.name == part.filename == "100000.bin"
    for url in (part.url, old_part.file.file_with_uri):
        assert (await mesh.bridged.client.get(url)).content == expected
