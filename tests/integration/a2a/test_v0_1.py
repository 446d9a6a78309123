"""A2A v0.1 through a real bridge to real hosts: clients choose the task ids."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, Event, open_bridged_mesh
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.core.settings import Settings
from trunkline.mesh.client import allocate_task_id
from trunkline.v1 import task_service_pb2
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json: TypeAlias = dict[str, Any]

HOOK = {"url": "https://127.0.0.1/hook", "token": "opaque-77"}


@pytest.fixture(scope="module")
def gate() -> SteppedAgent:
    return SteppedAgent()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(
    tmp_path_factory: pytest.TempPathFactory, gate: SteppedAgent
) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    async with open_bridged_mesh(tmp_path_factory.mktemp("v0_1"), settings) as mesh:
        # With two replicas of each agent, so that a client's id has to find its task.
        for _ in range(2):
            await mesh.mesh.join(echo, gate.agent())
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def caller(bridged: BridgedMesh) -> Caller:
    return bridged.at("/")


def send_params(client_id: str, text: str, **fields: object) -> Json:
    part = {"type": "text", "text": text}
    return {"id": client_id, "message": {"role": "user", "parts": [part]}, **fields}


async def streamed(caller: Caller, method: str, params: Json, **headers: str) -> list[Event]:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(PATIENCE_S), caller.stream(method, params, header_fields) as stream:
        return await stream.rest()


def artifact(text: str, index: int = 0, role: str = "answer", **fields: object) -> Json:
    content: Json = {**fields, "index": index, "parts": [{"type": "text", "text": text}]}
    if "append" not in fields:
        content["metadata"] = {"trunkline/role": role}
    return content


async def test_a_task_has_the_id_that_its_client_chose(caller: Caller) -> None:
    params = send_params("chosen-1", "count 3", sessionId="s-1", historyLength=5)
    task = await caller.call("tasks/send", params)
    assert task["id"] == "chosen-1"
    assert task["sessionId"] == "s-1"
    assert task["status"]["state"] == "completed"
    assert task["artifacts"] == [artifact("1 2 3 ", name="count")]
    assert task["history"] == [params["message"]]
    # For methods that v0.3 has too, the id determines the version.
    assert await caller.call("tasks/get", {"id": "chosen-1", "historyLength": 5}) == task
    del task["history"]
    assert await caller.call("tasks/get", {"id": "chosen-1"}) == task
    assert await caller.call("tasks/get", {"id": "chosen-1"}, {"A2A-Version": "0.1"}) == task


async def test_the_id_of_an_ended_task_begins_another_in_the_same_session(caller: Caller) -> None:
    first = await caller.call("tasks/send", send_params("chosen-5", "echo one"))
    second = await caller.call("tasks/send", send_params("chosen-5", "echo two"))
    assert second["sessionId"] == first["sessionId"]
    assert second["artifacts"] == [artifact("two", name="echo")]
    assert await caller.call("tasks/get", {"id": "chosen-5"}) == second
    other_session = await caller.call(
        "tasks/send", send_params("chosen-5", "echo 3", sessionId="s-5")
    )
    assert other_session["sessionId"] == "s-5"
    listed = await caller.call("ListTasks", {"contextId": first["sessionId"], "historyLength": 1})
    newest, oldest = listed["tasks"]
    assert newest["history"][0]["referenceTaskIds"] == [oldest["id"]]


async def test_ids_are_per_agent(bridged: BridgedMesh, caller: Caller, gate: SteppedAgent) -> None:
    await caller.call("tasks/send", send_params("chosen-6", "echo here"))
    tested = bridged.at("/agents/tested")
    error = await tested.error("tasks/get", {"id": "chosen-6"})
    assert (error["code"], error["data"][0]["metadata"]) == (-32001, {"taskId": "chosen-6"})
    gate.write("there", "")
    task = await tested.call("tasks/send", send_params("chosen-6", "go"))
    assert task["artifacts"][0]["name"] == "pieces"


async def test_a_direct_reply_is_a_completed_task(caller: Caller) -> None:
    task = await caller.call("tasks/send", send_params("chosen-7", "message hello"))
    message = {"role": "agent", "parts": [{"type": "text", "text": "hello"}]}
    assert task["status"] == {"state": "completed", "message": message}
    assert task["artifacts"] == [artifact("hello")]
    events = await streamed(caller, "tasks/sendSubscribe", send_params("chosen-8", "message hello"))
    assert [event.result for event in events] == [
        {"id": "chosen-8", "artifact": artifact("hello", lastChunk=True)},
        {"id": "chosen-8", "status": task["status"], "final": True},
    ]
    # It was never a task, so the next message with its id may create one.
    assert (await caller.error("tasks/get", {"id": "chosen-7"}))["code"] == -32001
    again = await caller.call("tasks/send", send_params("chosen-7", "echo now"))
    assert again["artifacts"] == [artifact("now", name="echo")]


async def test_a_stream_resumes_after_an_event_with_the_same_indexes(
    bridged: BridgedMesh, gate: SteppedAgent
) -> None:
    tested = bridged.at("/agents/tested")
    gate.write("a", "b", "c", "")
    whole = await streamed(tested, "tasks/sendSubscribe", send_params("chosen-11", "go"))
    for index in range(len(whole)):
        again = await streamed(
            tested, "tasks/resubscribe", {"id": "chosen-11"}, Last_Event_ID=whole[index].id
        )
        assert [(event.id, event.result) for event in again] == [
            (event.id, event.result) for event in whole[index + 1 :]
        ]
    ended = await streamed(tested, "tasks/resubscribe", {"id": "chosen-11"})
    assert [event.result for event in ended] == [
        {"id": "chosen-11", "artifact": artifact("abc", name="pieces")},
        whole[-1].result,
    ]


async def test_a_message_after_an_unfinished_binding_creates_its_task(
    bridged: BridgedMesh, caller: Caller
) -> None:
    """The bridge died between the binding and the message."""
    directory = bridged.mesh.directory
    promised = allocate_task_id(directory.choose_host("echo"))
    client = directory.client_for_task(promised)
    await client.tasks.SetTaskAlias(
        task_service_pb2.SetTaskAliasRequest(
            account="anonymous", alias="echo/chosen-12", task_id=promised
        )
    )
    assert (await caller.error("tasks/get", {"id": "chosen-12"}))["code"] == -32001
    await caller.call("tasks/send", send_params("chosen-12", "echo late"))
    assert (await caller.call("GetTask", {"id": promised}))["artifacts"][0]["name"] == "echo"


async def test_an_id_assigned_by_the_mesh_is_accepted(caller: Caller) -> None:
    task = await caller.send("ask colour?")
    old = {"A2A-Version": "0.1"}
    assert (await caller.call("tasks/get", {"id": task["id"]}, old))["id"] == task["id"]
    answered = await caller.call("tasks/send", send_params(task["id"], "red"))
    assert answered["artifacts"] == [artifact("answer: red", name="answer")]
    # Without a version header it is an id of v0.3.
    assert (await caller.call("tasks/get", {"id": task["id"]}))["kind"] == "task"
    unknown = f"{task['id']}0"
    assert (await caller.error("tasks/send", send_params(unknown, "x")))["code"] == -32001


async def test_a_webhook_has_no_id(caller: Caller) -> None:
    params = send_params("chosen-14", "ask which?", pushNotification=HOOK)
    await caller.call("tasks/send", params)
    expected = {"id": "chosen-14", "pushNotificationConfig": {"url": HOOK["url"]}}
    assert await caller.call("tasks/pushNotification/get", {"id": "chosen-14"}) == expected
    other = {"id": "chosen-14", "pushNotificationConfig": {**HOOK, "url": HOOK["url"] + "/2"}}
    created = await caller.call("tasks/pushNotification/set", other)
    assert created["pushNotificationConfig"] == {"url": HOOK["url"] + "/2"}
    assert await caller.call("tasks/pushNotification/get", {"id": "chosen-14"}) == created
    odd_id = "chosen " + "é/" * 150
    await caller.call("tasks/send", send_params(odd_id, "ask which?", pushNotification=HOOK))
    webhook = await caller.call("tasks/pushNotification/get", {"id": odd_id})
    assert webhook["pushNotificationConfig"] == {"url": HOOK["url"]}
    error = await caller.error("tasks/pushNotification/get", {"id": "nope"})
    assert error["code"] == -32001


async def test_concurrent_messages_with_a_new_id_are_each_answered_or_refused(
    caller: Caller,
) -> None:
    texts = [str(number) for number in range(8)]
    async with asyncio.TaskGroup() as group:
        posts = {
            text: group.create_task(
                caller.post("tasks/send", send_params("chosen-15", f"echo {text}"))
            )
            for text in texts
        }
    answers = {text: post.result().json() for text, post in posts.items()}
    refused = {answer["error"]["code"] for answer in answers.values() if "error" in answer}
    assert refused <= {-32004}
    accepted = {text: answer["result"] for text, answer in answers.items() if "result" in answer}
    assert accepted
    # Each answer is the one to its caller's own message.
    assert {text: task["artifacts"][0]["parts"][0]["text"] for text, task in accepted.items()} == {
        text: text for text in accepted
    }


async def test_of_concurrent_streams_with_a_new_id_the_refused_do_not_begin(
    caller: Caller,
) -> None:
    texts = [str(number) for number in range(8)]
    async with asyncio.TaskGroup() as group:
        posts = [
            group.create_task(
                caller.post("tasks/sendSubscribe", send_params("chosen-17", f"echo {text}"))
            )
            for text in texts
        ]
    for response in (post.result() for post in posts):
        if response.headers["content-type"] == "application/json":
            assert response.json()["error"]["code"] == -32004
        else:
            assert '"error"' not in response.text
