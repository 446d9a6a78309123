"""The draft of A2A 1.1 over all bindings: generations, timelines, long polls and preconditions."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import httpx2
import pytest

from harness.a2a.bridged_mesh import Caller
from harness.a2a.grpc_client import GrpcMesh, collect, open_grpc_mesh, refusal
from harness.a2a.rest_client import RestCaller
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.webhook_receiver import open_receiver
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.agents.hosting import describe_host
from trunkline.json_values import parse_dict
from trunkline_agents.echo.agent import echo
from trunkline_bridge.app import Bridge
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.versions.v1_1 import json_writer as v1_1_json

Json: TypeAlias = dict[str, Any]

HEADERS = {"A2A-Version": "1.1"}
METADATA = (("a2a-version", "1.1"),)
SETTINGS = BridgeSettings(default_agent="echo", a2a_1_1=True, allow_webhook=("127.0.0.1",))


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[GrpcMesh]:
    async with asyncio.timeout(PATIENCE_S), open_grpc_mesh(tmp_path, SETTINGS) as opened:
        await opened.bridged.mesh.join(echo)
        yield opened


@pytest.fixture
def caller(mesh: GrpcMesh) -> Caller:
    return mesh.bridged.at("/agents/echo")


def at_rest(mesh: GrpcMesh) -> RestCaller:
    return RestCaller(mesh.bridged.client, f"{mesh.bridged.url}/agents/echo")


def unary(mesh: GrpcMesh, method: str, request: Any, response_type: Any) -> Any:
    """Call a method of the draft over gRPC."""
    call: Any = mesh.channel.unary_unary(
        f"/lf.a2a.v1.A2AService/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response_type.FromString,
    )
    return call(request, metadata=METADATA, timeout=PATIENCE_S)


def send_request(text: str, **configuration: Any) -> v1_1_pb2.SendMessageRequest:
    task_id = configuration.pop("task_id", "")
    request = v1_1_pb2.SendMessageRequest(
        tenant="echo", configuration=v1_1_pb2.SendMessageConfiguration(**configuration)
    )
    message = {
        "messageId": uuid.uuid4().hex,
        "role": "ROLE_USER",
        "taskId": task_id,
        "parts": [{"text": text}],
    }
    parse_dict(message, request.message)
    return request


async def send(caller: Caller, text: str, *, task_id: str = "", **configuration: object) -> Json:
    fields = {"taskId": task_id} if task_id else {}
    params = {"message": caller.message(text, **fields), "configuration": configuration}
    task: Json = (await caller.call("SendMessage", params, HEADERS))["task"]
    return task


async def read(caller: Caller, task_id: str, **params: object) -> Json:
    return await caller.call("GetTask", {"id": task_id, **params}, HEADERS)


def generation(event: Json) -> int:
    """Return the generation in an event of any kind."""
    (content,) = event.values()
    assert isinstance(content["generation"], str)
    return int(content["generation"])


async def test_every_binding_has_the_same_generations(mesh: GrpcMesh, caller: Caller) -> None:
    params = {"message": caller.message("count 20")}
    async with caller.stream("SendStreamingMessage", params, HEADERS) as stream:
        events = await stream.rest()
    generations = [generation(event.result) for event in events]
    assert generations == list(range(1, len(events) + 1))
    task = events[0].result["task"]
    assert task["timeline"] == [{"message": task["history"][0], "generation": "1"}]
    resumed = {**HEADERS, "Last-Event-ID": events[0].id}
    over_rest = await at_rest(mesh).events("GET", f"/tasks/{task['id']}:subscribe", None, resumed)
    assert [event.data for event in over_rest] == [event.result for event in events[1:]]
    open_stream: Any = mesh.channel.unary_stream(
        "/lf.a2a.v1.A2AService/SubscribeToTask",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=v1_1_pb2.StreamResponse.FromString,
    )
    request = a2a_pb2.SubscribeToTaskRequest(tenant="echo", id=task["id"])
    call = open_stream(request, metadata=(*METADATA, ("last-event-id", events[0].id)))
    over_grpc = [payload(event) for event in await collect(call)]
    over_rpc = [(next(iter(event.result)), generation(event.result)) for event in events[1:]]
    assert [(name, content.generation) for name, content in over_grpc] == over_rpc


def payload(event: v1_1_pb2.StreamResponse) -> tuple[str, Any]:
    """Return the JSON name and the content of an event over gRPC."""
    descriptor, content = event.ListFields()[0]
    return descriptor.json_name, content


async def test_reads_of_every_binding_have_the_same_task(mesh: GrpcMesh, caller: Caller) -> None:
    sent = await send(caller, "ask what?")
    task = await send(caller, "this", task_id=sent["id"])
    assert task == await read(caller, task["id"])
    over_rest = await at_rest(mesh).request("GET", f"/tasks/{task['id']}", headers=HEADERS)
    assert over_rest.json() == task
    request = v1_1_pb2.GetTaskRequest(tenant="echo", id=task["id"])
    over_grpc = await unary(mesh, "GetTask", request, v1_1_pb2.Task)
    assert v1_1_json.task_json(over_grpc) == task
    page = await caller.call("ListTasks", {"historyLength": 0, "timelineLength": 1}, HEADERS)
    (listed,) = page["tasks"]
    assert (listed["generation"], listed["timeline"]) == (task["generation"], task["timeline"][-1:])
    list_request = v1_1_pb2.ListTasksRequest(tenant="echo", timeline_length=0)
    (row,) = (await unary(mesh, "ListTasks", list_request, v1_1_pb2.ListTasksResponse)).tasks
    assert (row.generation, len(row.timeline)) == (int(task["generation"]), 0)


async def test_a_list_has_no_history_and_short_timelines_unless_requested(
    mesh: GrpcMesh, caller: Caller
) -> None:
    sent = await send(caller, "ask what?")
    task = await send(caller, "this", task_id=sent["id"])
    (row,) = (await caller.call("ListTasks", {}, HEADERS))["tasks"]
    assert "history" not in row
    assert row["timeline"] == task["timeline"][-3:]
    over_rest = await at_rest(mesh).request("GET", "/tasks", headers=HEADERS)
    assert over_rest.json()["tasks"] == [row]
    request = v1_1_pb2.ListTasksRequest(tenant="echo")
    (over_grpc,) = (await unary(mesh, "ListTasks", request, v1_1_pb2.ListTasksResponse)).tasks
    assert v1_1_json.task_json(over_grpc) == row
    params = {"historyLength": 10, "timelineLength": 100}
    (whole,) = (await caller.call("ListTasks", params, HEADERS))["tasks"]
    assert (whole["history"], whole["timeline"]) == (task["history"], task["timeline"])


async def test_the_timeline_has_messages_and_statuses_in_order(caller: Caller) -> None:
    sent = await send(caller, "ask what?")
    task = await send(caller, "this", task_id=sent["id"])
    entries = [
        (
            int(entry["generation"]),
            entry["message"]["parts"][0]["text"]
            if "message" in entry
            else entry["status"]["state"],
        )
        for entry in task["timeline"]
    ]
    # 6 and 7 are the answer and the mark that it is complete.
    (answer, *_) = task["artifacts"]
    assert entries[:4] == [
        (1, "ask what?"),
        (2, "TASK_STATE_INPUT_REQUIRED"),
        (3, "this"),
        (4, "TASK_STATE_WORKING"),
    ]
    assert entries[-1] == (int(task["generation"]), "TASK_STATE_COMPLETED")
    assert task["timeline"][1]["status"]["message"]["parts"] == [{"text": "what?"}]
    assert (answer["startGeneration"], answer["endGeneration"]) == ("5", "5")
    assert task["timeline"][:2] == sent["timeline"]


async def test_a_long_poll_answers_when_the_generation_rises(mesh: GrpcMesh) -> None:
    gate = SteppedAgent()
    await mesh.bridged.mesh.join(gate.agent())
    caller = mesh.bridged.at("/agents/tested")
    rest = RestCaller(mesh.bridged.client, f"{mesh.bridged.url}/agents/tested")
    task = await send(caller, "go", returnImmediately=True)
    await gate.began.wait()
    task_id = task["id"]
    known = int((await read(caller, task_id))["generation"])
    for text in ("one", "two"):
        request = v1_1_pb2.GetTaskRequest(tenant="tested", id=task_id, current_generation=known)
        async with asyncio.TaskGroup() as group:
            over_rpc = group.create_task(read(caller, task_id, currentGeneration=known))
            over_rest = group.create_task(
                rest.request(
                    "GET",
                    f"/tasks/{task_id}",
                    headers=HEADERS,
                    query={"currentGeneration": str(known)},
                )
            )
            over_grpc = group.create_task(wait_for(unary(mesh, "GetTask", request, v1_1_pb2.Task)))
            gate.write(text)
        answers = (
            over_rpc.result(),
            over_rest.result().json(),
            v1_1_json.task_json(over_grpc.result()),
        )
        generations = [int(answer["generation"]) for answer in answers]
        assert min(generations) > known
        known = max(generations)
    known = int((await read(caller, task_id))["generation"])
    # A task that has a higher generation is returned at once.
    assert (await read(caller, task_id, currentGeneration="1"))["generation"] == str(known)
    gate.write("")
    ended = await read(caller, task_id, currentGeneration=known)
    while ended["status"]["state"] != "TASK_STATE_COMPLETED":
        ended = await read(caller, task_id, currentGeneration=ended["generation"])
    # Nothing more can come, so nothing waits.
    assert await read(caller, task_id, currentGeneration=ended["generation"]) == ended


async def wait_for(call: Any) -> Any:
    return await call


async def test_a_long_poll_ends_after_its_limit(tmp_path: Path) -> None:
    settings = BridgeSettings(default_agent="echo", a2a_1_1=True, long_poll_s=0.01)
    async with asyncio.timeout(PATIENCE_S), open_grpc_mesh(tmp_path, settings) as opened:
        await opened.bridged.mesh.join(echo)
        caller = opened.bridged.at("/agents/echo")
        waiting = await send(caller, "ask what?")
        known = int(waiting["generation"])
        assert await read(caller, waiting["id"], currentGeneration=known) == waiting
        assert await read(caller, waiting["id"], currentGeneration=known + 5) == waiting


async def test_a_message_for_another_generation_is_refused(mesh: GrpcMesh, caller: Caller) -> None:
    task_id = (await send(caller, "ask what?"))["id"]
    details = {"taskId": task_id, "expectedGeneration": "1", "currentGeneration": "2"}
    body = {
        "message": caller.message("this", taskId=task_id),
        "configuration": {"ifGenerationMatch": "1"},
    }
    for method in ("SendMessage", "SendStreamingMessage"):
        error = await caller.error(method, body, HEADERS)
        assert (error["code"], error["data"][0]["metadata"]) == (-32010, details)
    over_rest = await at_rest(mesh).request("POST", "/message:send", body, headers=HEADERS)
    error = over_rest.json()["error"]
    assert (over_rest.status_code, error["code"], error["status"]) == (409, 409, "ABORTED")
    assert error["details"][0]["reason"] == "TASK_GENERATION_MISMATCH"
    assert error["details"][0]["metadata"] == details
    request = send_request("this", task_id=task_id, if_generation_match=1)
    over_grpc = await refusal(unary(mesh, "SendMessage", request, v1_1_pb2.SendMessageResponse))
    assert (over_grpc.code, over_grpc.reason) == ("ABORTED", "TASK_GENERATION_MISMATCH")
    assert over_grpc.metadata == details
    request = send_request("this", task_id=task_id, if_generation_match=2)
    answered = await unary(mesh, "SendMessage", request, v1_1_pb2.SendMessageResponse)
    assert answered.task.generation > 2
    # A message that creates a task has no generation to match.
    assert await send(caller, "hello", ifGenerationMatch=77)


async def test_of_two_messages_for_one_generation_one_wins(caller: Caller) -> None:
    waiting = await send(caller, "ask what?")
    params = [
        {
            "message": caller.message(text, taskId=waiting["id"]),
            "configuration": {"ifGenerationMatch": waiting["generation"]},
        }
        for text in ("first", "second")
    ]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(caller.post("SendMessage", body, HEADERS)) for body in params]
    answers = [call.result().json() for call in calls]
    assert sorted("result" in answer for answer in answers) == [False, True]
    # -32004: the other's turn was just being opened, at the same generation.
    (code,) = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert code in (-32010, -32004)
    task = await read(caller, waiting["id"])
    assert len([entry for entry in task["timeline"] if "message" in entry]) == 2


async def test_another_bridge_has_the_same_generations_also_when_the_agent_has_left(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), open_grpc_mesh(tmp_path, SETTINGS) as opened:
        mesh = opened.bridged.mesh
        joined = await mesh.join(echo)
        caller = opened.bridged.at("/agents/echo")
        before = [await send(caller, "ask what?"), await send(caller, "count 3")]
        transport = httpx2.ASGITransport(Bridge(mesh.directory, SETTINGS))
        async with httpx2.AsyncClient(transport=transport, base_url="http://other") as client:
            other = Caller(client, "/agents/echo")
            assert [await read(other, task["id"]) for task in before] == before
            new_host = describe_host(joined.host, address=joined.address)
            del new_host.agents[:]
            await mesh.register(new_host)
            await mesh.directory.wait_until(
                lambda known: "echo" not in known.list_agents(), timeout_s=PATIENCE_S
            )
            assert [await read(other, task["id"]) for task in before] == before
            waiting = int(before[0]["generation"])
            canceled = await other.call("CancelTask", {"id": before[0]["id"]}, HEADERS)
            assert canceled["generation"] == str(waiting + 1)


async def test_webhooks_of_v1_1_have_generations(caller: Caller) -> None:
    async with open_receiver() as receiver:
        webhook = {"url": receiver.url}
        task = await send(caller, "count 3", taskPushNotificationConfig=webhook)
        await receiver.until(
            lambda seen: any(
                generation(post.json) == int(task["generation"]) for post in seen.accepted
            )
        )
        posts = [post.json for post in receiver.accepted]
    generations = [generation(post) for post in posts]
    assert generations == list(range(1, int(task["generation"]) + 1))
    assert posts[0]["task"]["timeline"][0]["generation"] == "1"
    ends = [post["artifactUpdate"] for post in posts if "artifactUpdate" in post]
    closing = next(update for update in ends if update.get("lastChunk"))
    assert closing["generation"] == task["artifacts"][0]["endGeneration"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"currentGeneration": "soon"}, "currentGeneration"),
        ({"currentGeneration": 2**63}, "currentGeneration"),
        ({"timelineLength": -1}, "timelineLength"),
        ({"timelineLength": 2**31}, "timelineLength"),
    ],
)
async def test_wrong_parameters_are_named(caller: Caller, params: Json, field: str) -> None:
    error = await caller.error("GetTask", {"id": "any", **params}, HEADERS)
    assert error["code"] == -32602
    assert [violation["field"] for violation in error["data"][1]["fieldViolations"]] == [field]


async def test_other_versions_are_as_without_the_draft(mesh: GrpcMesh, caller: Caller) -> None:
    task = await caller.send("count 3")
    wrong = {"id": task["id"], "currentGeneration": "soon", "timelineLength": -1}
    for headers in ({}, {"A2A-Version": "1.0"}):
        assert await caller.call("GetTask", wrong, headers) == task
    assert not {"generation", "timeline"} & task.keys()
    assert "startGeneration" not in task["artifacts"][0]
    # The field numbers of the draft are unknown fields in 1.0.
    raw = mesh.raw("/lf.a2a.v1.A2AService/GetTask", b"\x0a\x04echo\x12" + chunk(task["id"]))
    assert v1_1_pb2.Task.FromString(await raw).generation == 0
    async with caller.streamed("count 3") as stream:
        assert all("generation" not in str(event.response) for event in await stream.rest())


def chunk(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


async def test_without_the_switch_v1_1_is_not_served(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), open_grpc_mesh(tmp_path) as opened:
        await opened.bridged.mesh.join(echo)
        caller = opened.bridged.at("/agents/echo")
        params = {"message": caller.message("hello")}
        error = await caller.error("SendMessage", params, HEADERS)
        assert error["data"][0]["metadata"] == {"supportedVersions": "1.0, 0.3, 0.1"}
        rest = await at_rest(opened).request("GET", "/tasks", headers=HEADERS)
        assert rest.json()["error"]["details"][0]["metadata"] == {"supportedVersions": "1.0"}
        request = v1_1_pb2.GetTaskRequest(tenant="echo", id="any")
        refused = await refusal(unary(opened, "GetTask", request, v1_1_pb2.Task))
        assert refused.reason == "VERSION_NOT_SUPPORTED"
        assert card_versions(await card(caller)) == ["1.0", "0.3"]


async def test_the_card_has_the_draft_after_v1_0(mesh: GrpcMesh, caller: Caller) -> None:
    served = await card(caller)
    assert card_versions(served) == ["1.0", "1.1", "0.3"]
    interfaces = served["supportedInterfaces"]
    drafts = [interface for interface in interfaces if interface["protocolVersion"] == "1.1"]
    bindings = [interface["protocolBinding"] for interface in drafts]
    assert bindings == ["JSONRPC", "HTTP+JSON", "GRPC"]
    assert drafts[2]["tenant"] == "echo"
    refused = await caller.error("GetTask", {"id": "any"}, {"A2A-Version": "1.2"})
    assert "1.1" in refused["data"][0]["metadata"]["supportedVersions"]
    unknown: Any = mesh.channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
    with pytest.raises(grpc.aio.AioRpcError, match=r"1\.2"):
        await unknown(b"", metadata=(("a2a-version", "1.2"),))


async def card(caller: Caller) -> Json:
    answer = await caller.client.get(f"{caller.url}/.well-known/agent-card.json")
    content: Json = answer.json()
    return content


def card_versions(served: Json) -> list[str]:
    interfaces = served["supportedInterfaces"]
    return list(dict.fromkeys(interface["protocolVersion"] for interface in interfaces))
