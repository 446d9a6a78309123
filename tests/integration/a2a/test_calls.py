"""A2A's unary calls through a real bridge to real hosts."""

from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from trunkline import agent
from trunkline.tasks.context import TaskContext
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARD = "/.well-known/agent-card.json"


@agent(name="greeter", description="Greets.")
async def greeter(task: TaskContext) -> str:
    return f"Hello, {task.text}!"


async def test_a_task_is_visible_only_at_its_agent(bridged: BridgedMesh, caller: Caller) -> None:
    await bridged.mesh.join(greeter)
    other = bridged.at("/agents/greeter")
    task = await caller.send("ask what?")
    assert (await bridged.at("/").call("GetTask", {"id": task["id"]}))["id"] == task["id"]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert (await other.error(method, {"id": task["id"]}))["code"] == -32001
    hook = {"taskId": task["id"], "id": "one", "url": "https://example.com/hook"}
    for method in ("Create", "Get", "Delete"):
        error = await other.error(f"{method}TaskPushNotificationConfig", hook)
        assert error["code"] == -32001
    error = await other.error("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert error["code"] == -32001
    message = other.message("x", taskId=task["id"])
    assert (await other.error("SendMessage", {"message": message}))["code"] == -32001
    assert (await other.call("ListTasks", {}))["tasks"] == []


async def test_an_agent_that_joins_later_is_public_at_once(bridged: BridgedMesh) -> None:
    @agent(name="late", description="Comes late.")
    async def late(task: TaskContext) -> str:
        return f"Hello, {task.text}!"

    late_agent = bridged.at("/agents/late")
    params = {"message": late_agent.message("Ann")}
    error = await late_agent.error("SendMessage", params)
    assert "late" in error["message"]
    assert (await bridged.client.get(late_agent.url + CARD)).status_code == 404
    await bridged.mesh.join(late)
    assert (await late_agent.send("Ann"))["artifacts"][0]["parts"] == [{"text": "Hello, Ann!"}]
    assert (await bridged.client.get(late_agent.url + CARD)).json()["name"] == "late"


async def test_a_page_of_large_tasks_ends_by_bytes(caller: Caller) -> None:
    # The text is in the history and in the artifact.
    text = "echo " + "x" * 1_200_000
    context = "of large tasks"
    ids = [(await caller.send(text, contextId=context))["id"] for _ in range(3)]
    seen: list[str] = []
    sizes: list[int] = []
    token = ""
    while not sizes or token:
        query = {"contextId": context, "includeArtifacts": True, "pageToken": token}
        page = await caller.call("ListTasks", query)
        seen += [task["id"] for task in page["tasks"]]
        sizes.append(len(page["tasks"]))
        token = page["nextPageToken"]
    assert seen == ids[::-1]
    assert sizes == [2, 1]


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
