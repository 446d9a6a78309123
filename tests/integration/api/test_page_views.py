"""The page's API for workflows, the wire, webhooks, approvals and the audit log."""

import json
import shlex
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import Json, open_bridged_mesh
from harness.a2a.page_client import reason
from harness.a2a.page_mesh import PageMesh, open_page_mesh
from harness.polling import poll
from harness.remote.webhook_receiver import OK, Answer, ReceivedPost, open_receiver, status
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    folder = tmp_path_factory.mktemp("page")
    async with open_page_mesh(folder, echo, allow_webhook=("127.0.0.1",)) as mesh:
        yield mesh


async def test_workflows_are_listed_drawn_compared_and_run(page: PageMesh) -> None:
    ann = page.at()
    listed = (await ann.read("/workflows"))["workflows"]
    assert listed == [
        {"name": "flow", "description": "Version 2.", "version": 2, "versions": [2, 1]}
    ]
    assert (await page.at("narrow").read("/workflows"))["workflows"] == []
    found = await ann.read("/workflows/flow", version=1)
    assert (found["version"], found["isCurrent"], found["versions"]) == (1, False, [2, 1])
    assert [node["id"] for node in found["definition"]["nodes"]] == ["first", "end", "start"]
    assert {"from": "start", "to": "first"} in found["definition"]["edges"]
    assert found["inputSchema"]["required"] == ["text"]

    difference = await ann.read("/workflows/flow:diff")
    assert (difference["from"], difference["to"]) == (1, 2)
    assert '~ description: "Version 1." -> "Version 2."' in difference["text"]
    (changed,) = difference["nodes"]["changed"]
    assert changed["id"] == "end"
    assert (changed["before"]["output"]["version"], changed["after"]["output"]["version"]) == (1, 2)
    assert difference["edges"] == {"added": [], "removed": [], "changed": []}

    request = {"inputs": {"text": "on"}, "version": 1, "requestId": "r-1"}
    started = await ann.change("/workflows/flow:start", **request)
    assert await ann.change("/workflows/flow:start", **request) == started
    async with ann.stream(f"/tasks/{started['taskId']}/events") as events:
        assert (await events.rest())[-1].kind == "end"
    (run,) = (await ann.read("/workflows/flow/runs"))["tasks"]
    assert (run["id"], run["workflowVersion"]) == (started["taskId"], 1)
    (row,) = (await ann.read("/tasks", agent="flow"))["tasks"]
    assert run["text"] == row["text"] == '{"text": "on"}'
    assert run["state"] == "TASK_STATE_COMPLETED"
    assert (await page.at("bob").read("/workflows/flow/runs"))["tasks"] == []


async def test_only_operators_choose_the_version_of_new_tasks(page: PageMesh) -> None:
    path = "/workflows/flow:rollBack"
    assert reason(await page.at().post(path)) == "PERMISSION_DENIED"
    assert reason(await page.at("reading-operator").post(path)) == "PERMISSION_DENIED"
    assert (await page.at("operator").change(path, version=1))["version"] == 1
    assert (await page.at("operator").change(path, version=2))["isCurrent"]
    assert reason(await page.at("operator").post(path, version=9)) == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("version", "method", "headers"),
    [
        ("1.0", "SendStreamingMessage", {"A2A-Version": "1.0"}),
        ("0.3", "message/stream", {"A2A-Version": "0.3"}),
        ("0.1", "tasks/sendSubscribe", {}),
    ],
)
async def test_frames_are_those_that_a_client_of_the_version_got(
    page: PageMesh, version: str, method: str, headers: dict[str, str]
) -> None:
    ann, caller = page.at(), page.bridged.at("/agents/echo")
    message = {"messageId": f"m-{version}", "role": "ROLE_USER", "parts": [{"text": "count 5"}]}
    params: dict[str, object] = {"message": message}
    if version == "0.3":
        parts = [{"kind": "text", "text": "count 5"}]
        message |= {"kind": "message", "role": "user", "parts": parts}
    elif version == "0.1":
        parts = [{"type": "text", "text": "count 5"}]
        params = {"id": "chosen", "message": {"role": "user", "parts": parts}}
    async with caller.stream(method, params, {**ann.headers, **headers}) as stream:
        sent = [event.response async for event in stream]
    (task,) = [
        row
        for row in (await ann.read("/tasks", agent="echo", pageSize=1))["tasks"]
        if row["agent"] == "echo"
    ]
    wire = await ann.read(f"/tasks/{task['id']}/wire", version=version)
    frames = [frame["json"]["result"] for frame in wire["frames"]]
    expected = [event["result"] for event in sent]
    if version == "0.1":
        for frame in frames:
            assert frame["id"] == task["id"]
            frame["id"] = "chosen"
    assert frames == expected
    assert {frame["method"] for frame in wire["frames"]} == {method}
    assert wire["nextPageToken"] == ""


async def test_frames_are_paged_without_a_gap(page: PageMesh) -> None:
    task = await page.ask("echo", "count 40")
    path = f"/tasks/{task['id']}/wire"
    for version in ("1.0", "0.1"):
        whole = (await page.at().read(path, version=version))["frames"]
        frames, token = [], ""
        while True:
            part = await page.at().read(path, version=version, pageSize=7, pageToken=token)
            assert ("requests" in part) == (token == "")
            frames += part["frames"]
            token = part["nextPageToken"]
            if not token:
                break
        assert frames == whole


async def test_frames_past_retention_are_the_task_as_it_is(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo, compact_after_s=0.01, lease_s=1.0)
        task = await mesh.at("/").send("count 3")
        url = f"{mesh.url}/ui/api/tasks/{task['id']}/wire"

        async def read_frames() -> list[Json]:
            return list((await mesh.client.get(url)).json()["frames"])

        frames = await poll(read_frames, lambda frames: len(frames) == 1)
        assert frames[0]["json"]["result"] == {"task": task}


@pytest.mark.parametrize(("version", "count"), [("1.0", 8), ("0.3", 8), ("0.1", 4)])
async def test_requests_are_curl_commands_that_work_without_credentials_in_them(
    page: PageMesh, version: str, count: int
) -> None:
    text = "it's 'quoted' $HOME `x`"
    task = await page.ask("echo", text)
    requests = (await page.at().read(f"/tasks/{task['id']}/wire", version=version))["requests"]
    assert len(requests) == count
    assert "key-of" not in json.dumps(requests)
    for request in requests:
        answer = await _send_as_curl(page, request["curl"])
        if request["title"].startswith("Cancel"):
            assert "completed" in answer, answer
            continue
        assert '"error"' not in answer, (request, answer)
        assert task["contextId"] in answer or task["id"] in answer or "Message" in request["title"]
        if request["title"].startswith("Message"):
            assert text in answer


async def _send_as_curl(page: PageMesh, command: str) -> str:
    """Send what a curl command sends, with credentials; return the body of the response."""
    program, flags, *words = shlex.split(command)
    assert (program, flags) == ("curl", "-sN")
    method, body, headers, url = "GET", None, dict(page.at().headers), ""
    while words:
        word = words.pop(0)
        match word:
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case _:
                assert not url
                url = word
    return (await page.bridged.client.request(method, url, headers=headers, content=body)).text


async def test_the_wire_of_a_task_is_for_its_account_and_agents(page: PageMesh) -> None:
    task = await page.ask("apples", "order 1 apples")
    path = f"/tasks/{task['id']}/wire"
    assert reason(await page.at("bob").get(path)) == "TASK_NOT_FOUND"
    assert reason(await page.at("narrow").get(path)) == "PERMISSION_DENIED"
    assert reason(await page.at().get(path, version="2.0")) == "INVALID_PARAMS"
    assert reason(await page.at().get(path, pageToken="x")) == "INVALID_PARAMS"


async def test_webhooks_show_their_delivery_and_are_sent_again(page: PageMesh) -> None:
    answers: list[bytes] = [status(410)]

    async def decide(_post: ReceivedPost) -> Answer:
        return answers[0]

    async with open_receiver(decide) as receiver:
        config = {"id": "hook.1", "url": receiver.url, "token": "secret-token"}
        task = await page.ask("teacher", "hi", taskPushNotificationConfig=config)
        hook = f"/webhooks/{task['id']}.hook.1:replay"
        found = await _until_webhook(page, task["id"], "dead")
        assert found["url"] == receiver.url
        assert found["lastError"]
        assert "secret-token" not in json.dumps(found)
        assert (await page.at("bob").read("/webhooks"))["webhooks"] == []
        assert reason(await page.at("bob").post(hook)) == "TASK_NOT_FOUND"
        assert await page.at("narrow").change(hook) == {"webhooks": 1}
        answers[0] = OK
        assert reason(await page.at("operator").post(f"/webhooks/{task['id']}.x:replay"))
        assert reason(await page.at("reading-operator").post(hook)) == "PERMISSION_DENIED"
        assert await page.at("operator").change(hook, fromStart=True) == {"webhooks": 1}
        await _until_webhook(page, task["id"], "done")
        await _until_recorded(page, 1, account="ops", action="webhook.replay", outcome="ok")
    other = {"id": "b", "url": receiver.url}
    await page.ask("teacher", "hi", taskPushNotificationConfig=other)
    first = await page.at("operator").read("/webhooks", pageSize=1)
    rest = await page.at("operator").read("/webhooks", pageToken=first["nextPageToken"])
    # Other tests of this mesh have webhooks, too.
    ids = [webhook["configId"] for webhook in (*first["webhooks"], *rest["webhooks"])]
    assert [each for each in ids if each in {"b", "hook.1"}] == ["b", "hook.1"]


async def test_changes_of_webhooks_are_followed_by_those_who_see_them(page: PageMesh) -> None:
    async with (
        open_receiver() as receiver,
        page.at("operator").stream("/webhooks:watch") as operators,
        page.at().stream("/webhooks:watch") as own,
    ):
        for stream in (operators, own):
            assert (await anext(stream)).kind == "ready"
        config = {"id": "followed", "url": receiver.url, "token": "secret-token"}
        task = await page.ask("teacher", "hi", taskPushNotificationConfig=config)
        other = await page.ask("teacher", "hi", "operator", taskPushNotificationConfig=config)
        for stream, account_tasks in ((operators, {task["id"], other["id"]}), (own, {task["id"]})):
            done: set[str] = set()
            while not account_tasks <= done:
                event = await anext(stream)
                assert event.kind == "webhook"
                # Other tests of this mesh have webhooks, too.
                assert event.response["taskId"] in account_tasks or (
                    event.response["configId"] != "followed"
                )
                assert "secret-token" not in json.dumps(event.response)
                if event.response["state"] == "done":
                    done.add(event.response["taskId"])
        deleted = {"taskId": task["id"], "id": "followed"}
        caller = page.bridged.at("/agents/teacher")
        await caller.call("DeleteTaskPushNotificationConfig", deleted, page.at().headers)
        while event.kind != "deleted":
            event = await anext(own)
        assert event.response == {"id": f"{task['id']}.followed"}


async def _until_webhook(page: PageMesh, task_id: str, state: str) -> Json:
    """Return the webhook of a task, once it is in a state."""

    async def find() -> list[Json]:
        return list((await page.at().read("/webhooks", taskId=task_id, state=state))["webhooks"])

    return (await poll(find))[0]


async def test_open_approvals_are_listed_and_followed(page: PageMesh) -> None:
    ann = page.at()
    for approval in (await ann.read("/approvals"))["approvals"]:
        await ann.change(f"/tasks/{approval['taskId']}:cancel")
    async with ann.stream("/approvals:watch") as events:
        first = await anext(events)
        assert (first.kind, first.response["approvals"]) == ("approvals", [])
        task = await page.ask("apples", "order 3 apples")
        (approval,) = (await anext(events)).response["approvals"]
        assert approval["taskId"] == task["id"]
        assert approval["tool"].endswith("order")
        assert approval["arguments"] == {"n": 3, "item": "apples"}
        assert approval["path"] == ["apples"]
        assert (await ann.read("/approvals"))["approvals"] == [approval]
        assert (await page.at("bob").read("/approvals"))["approvals"] == []
        assert (await page.at("narrow").read("/approvals"))["approvals"] == []
        answer = f"/tasks/{task['id']}/approvals/{approval['approvalId']}:answer"
        await ann.change(answer, decision="approved")
        assert (await anext(events)).response["approvals"] == []


async def _until_recorded(page: PageMesh, count: int, **query: str) -> Json:
    """Return the page of records that match, once there are so many."""
    return await poll(
        lambda: page.at("operator").read("/audit", **query),
        lambda found: len(found["records"]) >= count,
    )


async def test_the_audit_log_is_for_operators_and_paged(page: PageMesh) -> None:
    assert reason(await page.at().get("/audit")) == "PERMISSION_DENIED"
    operator = page.at("operator")
    query = {"account": "other", "action": "message.*", "since": datetime.now(UTC).isoformat()}
    for _ in range(3):
        await page.ask("echo", "hi", "bob")
    found = await _until_recorded(page, 3, **query)
    assert found["process"] == "test"
    assert [record["actor"]["name"] for record in found["records"]] == ["bob"] * 3
    times = [record["time"] for record in found["records"]]
    assert times == sorted(times, reverse=True)
    records, token = [], ""
    while True:
        part = await operator.read("/audit", **query, pageSize=1, pageToken=token)
        records += part["records"]
        token = part["nextPageToken"]
        if not token:
            break
    assert records == found["records"]
    assert (await operator.read("/audit", **query, outcome="denied"))["records"] == []
    assert (await operator.read("/audit", since="2100-01-01T00:00:00Z"))["records"] == []
    wrong = {"action": "nonsense", "since": "yesterday", "pageToken": "x", "pageSize": "1000"}
    for name, value in wrong.items():
        assert reason(await operator.get("/audit", **{name: value})) == "INVALID_PARAMS", name


async def test_new_records_of_the_audit_log_are_followed(page: PageMesh) -> None:
    operator = page.at("operator")
    refused = await page.at().get("/audit:watch")
    assert reason(refused) == "PERMISSION_DENIED"
    assert reason(await operator.get("/audit:watch", action="nonsense")) == "INVALID_PARAMS"
    query = {"account": "other", "action": "message.*"}
    async with operator.stream("/audit:watch", **query) as stream:
        assert (await anext(stream)).kind == "ready"
        for _ in range(2):
            task = await page.ask("echo", "hi", "bob")
            event = await anext(stream)
            assert (event.kind, event.response["object"]["task"]) == ("record", task["id"])
            listed = await operator.read("/audit", **query, task=task["id"])
            assert listed["records"] == [event.response]
