"""A2A's unary calls through a real bridge to real hosts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from harness.agents.inline_agents import define
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline_agents.echo.agent import echo

CARD = "/.well-known/agent-card.json"


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    return bridged.at("/agents/echo")


def reason(error: dict[str, list[dict[str, str]]]) -> str:
    return error["data"][0]["reason"]


async def test_a_message_is_answered_at_the_end_of_its_turn(caller: Caller) -> None:
    task = await caller.send("count 3")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "1 2 3 "}]
    assert task["history"][0]["contextId"] == task["contextId"]


async def test_a_message_can_be_answered_at_once(caller: Caller) -> None:
    task = await caller.send("wait 3600", now=True)
    assert task["status"]["state"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    ended = await caller.call("CancelTask", {"id": task["id"]})
    assert ended["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_direct_reply_is_a_message_and_leaves_no_task(caller: Caller) -> None:
    result = await caller.call("SendMessage", {"message": caller.message("message hello")})
    assert [part["text"] for part in result["message"]["parts"]] == ["hello"]
    assert "taskId" not in result["message"]
    assert (await caller.call("ListTasks", {}))["totalSize"] == 0


async def test_a_question_is_answered_by_the_next_message(caller: Caller) -> None:
    waiting = await caller.send("ask Which colour?")
    assert waiting["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert waiting["status"]["message"]["parts"] == [{"text": "Which colour?"}]
    completed = await caller.send("red", taskId=waiting["id"])
    assert completed["id"] == waiting["id"]
    assert completed["contextId"] == waiting["contextId"]
    assert completed["artifacts"][0]["parts"] == [{"text": "answer: red"}]
    texts = [message["parts"][0]["text"] for message in completed["history"]]
    assert texts == ["ask Which colour?", "Which colour?", "red"]


async def test_a_context_alone_begins_a_new_task_in_it(caller: Caller) -> None:
    first = await caller.send("one", contextId="my-context")
    second = await caller.send("two", contextId="my-context")
    assert first["contextId"] == second["contextId"] == "my-context"
    assert first["id"] != second["id"]
    listed = await caller.call("ListTasks", {"contextId": "my-context"})
    assert [task["id"] for task in listed["tasks"]] == [second["id"], first["id"]]


async def test_a_task_of_another_context_is_refused(caller: Caller) -> None:
    waiting = await caller.send("ask what?")
    params = {"message": caller.message("x", taskId=waiting["id"], contextId="other")}
    error = await caller.error("SendMessage", params)
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == "message.contextId"


async def test_an_ended_task_accepts_no_message_no_subscriber_and_no_cancel(caller: Caller) -> None:
    task = await caller.send("done")
    message = {"message": caller.message("more", taskId=task["id"])}
    errors = {
        "SendMessage": await caller.error("SendMessage", message),
        "SendStreamingMessage": await caller.error("SendStreamingMessage", message),
        "SubscribeToTask": await caller.error("SubscribeToTask", {"id": task["id"]}),
        "CancelTask": await caller.error("CancelTask", {"id": task["id"]}),
    }
    assert {name: (error["code"], reason(error)) for name, error in errors.items()} == {
        "SendMessage": (-32004, "UNSUPPORTED_OPERATION"),
        "SendStreamingMessage": (-32004, "UNSUPPORTED_OPERATION"),
        "SubscribeToTask": (-32004, "UNSUPPORTED_OPERATION"),
        "CancelTask": (-32002, "TASK_NOT_CANCELABLE"),
    }


@pytest.mark.parametrize("task_id", ["nope", "abcdefgh-0123456789abcdef", "é", "-"])
async def test_an_unknown_task_is_not_found(caller: Caller, task_id: str) -> None:
    message = caller.message("hi", taskId=task_id)
    errors = [
        await caller.error("GetTask", {"id": task_id}),
        await caller.error("CancelTask", {"id": task_id}),
        await caller.error("SubscribeToTask", {"id": task_id}),
        await caller.error("SendMessage", {"message": message}),
        await caller.error("SendStreamingMessage", {"message": message}),
    ]
    assert [(error["code"], reason(error)) for error in errors] == [
        (-32001, "TASK_NOT_FOUND")
    ] * len(errors)


async def test_a_task_is_visible_only_at_its_agent(bridged: BridgedMesh, caller: Caller) -> None:
    await bridged.mesh.join(define(say_hello))
    other = bridged.at("/agents/tested")
    task = await caller.send("ask what?")
    assert (await bridged.at("/").call("GetTask", {"id": task["id"]}))["id"] == task["id"]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert (await other.error(method, {"id": task["id"]}))["code"] == -32001
    message = other.message("x", taskId=task["id"])
    assert (await other.error("SendMessage", {"message": message}))["code"] == -32001
    assert (await other.call("ListTasks", {}))["tasks"] == []


async def say_hello(task: TaskContext) -> str:
    return f"Hello, {task.text}!"


async def test_an_agent_that_joins_later_is_public_at_once(bridged: BridgedMesh) -> None:
    late_agent = bridged.at("/agents/tested")
    params = {"message": late_agent.message("Ann")}
    error = await late_agent.error("SendMessage", params)
    assert "tested" in error["message"]
    assert (await bridged.client.get(late_agent.url + CARD)).status_code == 404
    await bridged.mesh.join(define(say_hello))
    assert (await late_agent.send("Ann"))["artifacts"][0]["parts"] == [{"text": "Hello, Ann!"}]
    assert (await bridged.client.get(late_agent.url + CARD)).json()["name"] == "tested"


async def test_history_has_the_requested_length(caller: Caller) -> None:
    message = caller.message("hi")
    params = {"message": message, "configuration": {"historyLength": 0}}
    task = (await caller.call("SendMessage", params))["task"]
    assert "history" not in task
    assert len((await caller.call("GetTask", {"id": task["id"]}))["history"]) == 1
    none = await caller.call("GetTask", {"id": task["id"], "historyLength": 0})
    assert "history" not in none


async def test_tasks_are_listed_newest_first_in_pages(caller: Caller) -> None:
    ids = [(await caller.send(f"echo {number}"))["id"] for number in range(5)]
    first = await caller.call("ListTasks", {"pageSize": 2})
    second = await caller.call("ListTasks", {"pageSize": 2, "pageToken": first["nextPageToken"]})
    third = await caller.call("ListTasks", {"pageSize": 2, "pageToken": second["nextPageToken"]})
    pages = [first, second, third]
    assert [task["id"] for page in pages for task in page["tasks"]] == ids[::-1]
    assert [(page["pageSize"], page["totalSize"]) for page in pages] == [(2, 5)] * 3
    assert third["nextPageToken"] == ""


async def test_a_page_of_large_tasks_ends_by_bytes(caller: Caller) -> None:
    # The text is in the history and in the artifact.
    text = "echo " + "x" * 1_200_000
    ids = [(await caller.send(text))["id"] for _ in range(3)]
    seen: list[str] = []
    sizes: list[int] = []
    token = ""
    while not sizes or token:
        page = await caller.call("ListTasks", {"includeArtifacts": True, "pageToken": token})
        seen += [task["id"] for task in page["tasks"]]
        sizes.append(len(page["tasks"]))
        token = page["nextPageToken"]
    assert seen == ids[::-1]
    assert sizes == [2, 1]


async def test_lists_include_only_the_requested_fields(caller: Caller) -> None:
    await caller.send("echo hi")
    await caller.send("fail it")
    plain = (await caller.call("ListTasks", {}))["tasks"]
    assert ["artifacts" in task for task in plain] == [False, False]
    whole = await caller.call("ListTasks", {"includeArtifacts": True, "historyLength": 1})
    assert [len(task["artifacts"]) for task in whole["tasks"]] == [0, 1]
    assert [len(task["history"]) for task in whole["tasks"]] == [1, 1]
    failed = await caller.call("ListTasks", {"status": "TASK_STATE_FAILED"})
    assert [task["status"]["state"] for task in failed["tasks"]] == ["TASK_STATE_FAILED"]
    since = {"statusTimestampAfter": failed["tasks"][0]["status"]["timestamp"]}
    assert (await caller.call("ListTasks", since))["totalSize"] >= 1
    later = {"statusTimestampAfter": "2199-01-01T00:00:00.000Z"}
    assert (await caller.call("ListTasks", later))["tasks"] == []


async def test_an_invalid_page_token_is_refused(caller: Caller) -> None:
    assert (await caller.error("ListTasks", {"pageToken": "nonsense"}))["code"] == -32602


async def test_unsupported_operations_are_refused(caller: Caller) -> None:
    assert (await caller.error("GetExtendedAgentCard", {}))["code"] == -32004


async def test_webhooks_of_an_unknown_task_are_not_found(caller: Caller) -> None:
    push = {"taskId": "t", "id": "c", "url": "https://example.org"}
    for method in (
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ):
        assert (await caller.error(method, push))["code"] == -32001


async def test_unknown_methods_are_not_found_and_old_ones_name_their_successors(
    caller: Caller,
) -> None:
    assert (await caller.error("DoMagic", {}))["code"] == -32601
    error = await caller.error("tasks/list", {})
    assert error["code"] == -32601
    assert "ListTasks" in error["message"]


@pytest.mark.parametrize("version", ["1.0", "1.0.1", ""])
async def test_versions_that_are_served(caller: Caller, version: str) -> None:
    headers = {"A2A-Version": version}
    assert (await caller.call("ListTasks", {}, headers))["tasks"] == []


@pytest.mark.parametrize("version", ["0.2", "2.0", "1.1", "latest", "1"])
async def test_other_versions_are_refused(caller: Caller, version: str) -> None:
    error = await caller.error("ListTasks", {}, {"A2A-Version": version})
    assert (error["code"], reason(error)) == (-32009, "VERSION_NOT_SUPPORTED")
    answer = await caller.client.post(
        f"{caller.url}?A2A-Version={version}", json=caller.body("ListTasks", {})
    )
    assert answer.json()["error"]["code"] == -32009


async def test_a_timeout_ends_the_task_itself(bridged: BridgedMesh) -> None:
    # The agent must not reply directly, because its task would not exist before its first event.
    await bridged.mesh.join(SteppedAgent().agent())
    caller = bridged.at("/agents/tested")
    params = {"message": caller.message("go")}
    task = (await caller.call("SendMessage", params, {"Trunkline-Timeout": "0.2"}))["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    error = await caller.error("SendMessage", params, {"Trunkline-Timeout": "soon"})
    assert error["code"] == -32602


async def test_with_the_extension_a_message_is_submitted_once(bridged: BridgedMesh) -> None:
    await bridged.mesh.join(define(say_hello))
    caller = bridged.at("/agents/tested")
    params = {"message": caller.message("echo once")}
    headers = {"A2A-Extensions": f"https://example.org/x, {RESUME_EXTENSION}"}
    answers = [await caller.post("SendMessage", params, headers) for _ in range(2)]
    ids = {answer.json()["result"]["task"]["id"] for answer in answers}
    assert len(ids) == 1
    assert {answer.headers["a2a-extensions"] for answer in answers} == {RESUME_EXTENSION}
    changed = {"message": {**params["message"], "parts": [{"text": "echo other"}]}}
    assert (await caller.error("SendMessage", changed, headers))["code"] == -32602


async def test_without_the_extension_every_message_is_new(caller: Caller) -> None:
    params = {"message": caller.message("echo twice")}
    tasks = [(await caller.call("SendMessage", params))["task"]["id"] for _ in range(2)]
    assert tasks[0] != tasks[1]


async def test_a_caller_that_disconnects_leaves_the_task_running(tmp_path: Path) -> None:
    began, proceed = asyncio.Event(), asyncio.Event()

    async def patient(task: TaskContext) -> str:
        began.set()
        await proceed.wait()
        return "done"

    async with open_bridged_mesh(tmp_path) as bridged:
        await bridged.mesh.join(define(patient))
        caller = bridged.at("/agents/tested")
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            waiting = group.create_task(caller.send("hello"))
            await began.wait()
            waiting.cancel()
        proceed.set()
        (row,) = (await caller.call("ListTasks", {}))["tasks"]
        await bridged.mesh.until(row["id"], lambda now: bool(now.task.artifacts))
        final = await caller.call("GetTask", {"id": row["id"]})
        assert final["artifacts"][0]["parts"] == [{"text": "done"}]


async def test_the_bridge_is_ready_when_the_default_agent_is(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path) as bridged:
        assert (await bridged.client.get(bridged.url + "/healthz")).status_code == 200
        assert (await bridged.client.get(bridged.url + "/readyz")).status_code == 503
        unready = await bridged.client.get(bridged.url + "/readyz")
        assert unready.json() == {"status": "unavailable"}
        await bridged.mesh.join(echo)
        await bridged.at("/agents/echo").send("hello")
        # Without authentication, all callers get the same, whatever they send.
        for headers in ({}, {"X-API-Key": "any"}, {"Authorization": "Bearer any"}):
            ready = await bridged.client.get(bridged.url + "/readyz", headers=headers)
            assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_an_unreachable_host_is_waited_for_until_the_deadline(
    tmp_path: Path, method: str
) -> None:
    settings = Settings(default_agent="echo", patience_s=3600)
    async with open_bridged_mesh(tmp_path, settings) as bridged:
        joined = await bridged.mesh.join(echo)
        await joined.cut()
        caller = bridged.at("/agents/echo")
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hi"}]}
        answer = await caller.post(method, {"message": message}, {"Trunkline-Timeout": "0.5"})
        assert answer.status_code == 503
        assert "the agent's host can't be reached" in answer.json()["error"]["message"]
        assert joined.address not in answer.text


async def test_tasks_of_a_host_that_left_are_unavailable_and_not_unknown(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path) as bridged:
        joined = await bridged.mesh.join(echo)
        caller = bridged.at("/agents/echo")
        task = await caller.send("echo hi")
        await joined.cut()
        answer = await caller.post("GetTask", {"id": task["id"]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["data"][0]["reason"] == "UNAVAILABLE"
        error = answer.json()["error"]["message"]
        assert "again" in error.partition("; ")[2]
        assert "errno" not in error.lower()
