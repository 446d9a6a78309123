"""The page's API for workflows, the wire, webhooks, approvals and the audit log."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import Json, open_bridged_mesh
from harness.a2a.page_accounts import PageMesh, open_page_mesh
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.webhook_receiver import OK, Answer, ReceivedPost, open_receiver, status
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    folder = tmp_path_factory.mktemp("page")
    async with open_page_mesh(folder, allow_webhook=("127.0.0.1",)) as mesh:
        yield mesh


async def test_workflows_are_listed_drawn_compared_and_run(page: PageMesh) -> None:
    ann = page.at()
    listed = (await ann.get("/workflows"))["workflows"]
    assert listed == [
        {"name": "flow", "description": "Version 2.", "version": 2, "versions": [2, 1]}
    ]
    assert (await page.at("narrow").get("/workflows"))["workflows"] == []
    found = await ann.get("/workflows/flow?version=1")
    assert (found["version"], found["isCurrent"], found["versions"]) == (1, False, [2, 1])
    assert [node["id"] for node in found["definition"]["nodes"]] == ["first", "end", "start"]
    assert {"from": "start", "to": "first"} in found["definition"]["edges"]
    assert found["inputSchema"]["required"] == ["text"]

    difference = await ann.get("/workflows/flow:diff")
    assert (difference["from"], difference["to"]) == (1, 2)
    assert '~ description: "Version 1." -> "Version 2."' in difference["text"]
    (changed,) = difference["nodes"]["changed"]
    assert changed["id"] == "end"
    assert (changed["before"]["output"]["version"], changed["after"]["output"]["version"]) == (1, 2)
    assert difference["edges"] == {"added": [], "removed": [], "changed": []}

    started = await ann.post(
        "/workflows/flow:start", {"inputs": {"text": "on"}, "version": 1, "requestId": "r-1"}
    )
    again = await ann.post(
        "/workflows/flow:start", {"inputs": {"text": "on"}, "version": 1, "requestId": "r-1"}
    )
    assert again == started
    async with ann.events(f"/tasks/{started['taskId']}/events") as events:
        assert (await events.rest())[-1].kind == "end"
    (run,) = (await ann.get("/workflows/flow/runs"))["tasks"]
    assert (run["id"], run["workflowVersion"]) == (started["taskId"], 1)
    assert run["state"] == "TASK_STATE_COMPLETED"
    assert (await page.at("bob").get("/workflows/flow/runs"))["tasks"] == []


async def test_only_operators_choose_the_version_of_new_tasks(page: PageMesh) -> None:
    path = "/workflows/flow:rollBack"
    assert await page.at().refusal("POST", path) == "PERMISSION_DENIED"
    assert await page.at("reading-ops").refusal("POST", path) == "PERMISSION_DENIED"
    assert (await page.at("ops").post(path, {"version": 1}))["version"] == 1
    assert (await page.at("ops").post(path, {"version": 2}))["isCurrent"]
    assert await page.at("ops").refusal("POST", path, {"version": 9}) == "INVALID_PARAMS"


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
    ann, caller = page.at(), page.mesh.at("/agents/echo")
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
        for row in (await ann.get("/tasks?agent=echo&pageSize=1"))["tasks"]
        if row["agent"] == "echo"
    ]
    wire = await ann.get(f"/tasks/{task['id']}/wire?version={version}")
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
    task = await page.send("count 40")
    for version in ("1.0", "0.1"):
        path = f"/tasks/{task['id']}/wire?version={version}"
        whole = (await page.at().get(path))["frames"]
        frames, token = [], ""
        while True:
            part = await page.at().get(f"{path}&pageSize=7&pageToken={token}")
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
        async with asyncio.timeout(PATIENCE_S):
            while (  # noqa: ASYNC110
                len(frames := (await mesh.client.get(url)).json()["frames"]) > 1
            ):
                await asyncio.sleep(0.1)
        assert frames[0]["json"]["result"] == {"task": task}


@pytest.mark.parametrize(("version", "count"), [("1.0", 8), ("0.3", 8), ("0.1", 4)])
async def test_requests_are_curl_commands_that_work_without_credentials_in_them(
    page: PageMesh, version: str, count: int
) -> None:
    text = "it's 'quoted' $HOME `x`"
    task = await page.send(text)
    requests = (await page.at().get(f"/tasks/{task['id']}/wire?version={version}"))["requests"]
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
    return (await page.mesh.client.request(method, url, headers=headers, content=body)).text


async def test_the_wire_of_a_task_is_for_its_account_and_agents(page: PageMesh) -> None:
    task = await page.send("order 1 apples", agent="apples")
    path = f"/tasks/{task['id']}/wire"
    assert await page.at("bob").refusal("GET", path) == "TASK_NOT_FOUND"
    assert await page.at("narrow").refusal("GET", path) == "PERMISSION_DENIED"
    assert await page.at().refusal("GET", f"{path}?version=2.0") == "INVALID_PARAMS"
    assert await page.at().refusal("GET", f"{path}?pageToken=x") == "INVALID_PARAMS"


async def test_webhooks_show_their_delivery_and_are_sent_again(page: PageMesh) -> None:
    answers: list[bytes] = [status(410)]

    async def decide(_post: ReceivedPost) -> Answer:
        return answers[0]

    async with open_receiver(decide) as receiver:
        config = {"id": "hook.1", "url": receiver.url, "token": "secret-token"}
        task = await page.send("hi", configuration={"taskPushNotificationConfig": config})
        hook = f"/webhooks/{task['id']}.hook.1:replay"
        found = await _until_webhook(page, task["id"], "dead")
        assert found["url"] == receiver.url
        assert found["lastError"]
        assert "secret-token" not in json.dumps(found)
        assert (await page.at("bob").get("/webhooks"))["webhooks"] == []
        assert await page.at("bob").refusal("POST", hook) == "TASK_NOT_FOUND"
        assert await page.at("narrow").post(hook) == {"webhooks": 1}
        answers[0] = OK
        assert await page.at("ops").refusal("POST", f"/webhooks/{task['id']}.x:replay")
        assert await page.at("reading-ops").refusal("POST", hook) == "PERMISSION_DENIED"
        assert await page.at("ops").post(hook, {"fromStart": True}) == {"webhooks": 1}
        await _until_webhook(page, task["id"], "done")
        await _until_recorded(page, "account=operators&action=webhook.replay&outcome=ok", count=1)
    other = {"id": "b", "url": receiver.url}
    await page.send("hi", configuration={"taskPushNotificationConfig": other})
    first = await page.at("ops").get("/webhooks?pageSize=1")
    rest = await page.at("ops").get(f"/webhooks?pageToken={first['nextPageToken']}")
    assert [webhook["configId"] for webhook in (*first["webhooks"], *rest["webhooks"])] == [
        "b",
        "hook.1",
    ]


async def _until_webhook(page: PageMesh, task_id: str, state: str) -> dict[str, object]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await page.at().get(f"/webhooks?taskId={task_id}&state={state}")
            if found["webhooks"]:
                webhook: dict[str, object] = found["webhooks"][0]
                return webhook
            await asyncio.sleep(0.05)


async def test_open_approvals_are_listed_and_followed(page: PageMesh) -> None:
    ann = page.at()
    for approval in (await ann.get("/approvals"))["approvals"]:
        await ann.post(f"/tasks/{approval['taskId']}:cancel")
    async with ann.events("/approvals:watch") as events:
        first = await anext(events)
        assert (first.kind, first.response["approvals"]) == ("approvals", [])
        task = await page.send("order 3 apples", agent="apples")
        (approval,) = (await anext(events)).response["approvals"]
        assert approval["taskId"] == task["id"]
        assert approval["tool"].endswith("order")
        assert approval["arguments"] == {"n": 3, "item": "apples"}
        assert approval["path"] == ["apples"]
        assert (await ann.get("/approvals"))["approvals"] == [approval]
        assert (await page.at("bob").get("/approvals"))["approvals"] == []
        assert (await page.at("narrow").get("/approvals"))["approvals"] == []
        answer = f"/tasks/{task['id']}/approvals/{approval['approvalId']}:answer"
        await ann.post(answer, {"decision": "approved"})
        assert (await anext(events)).response["approvals"] == []


async def _until_recorded(page: PageMesh, query: str, *, count: int) -> Json:
    """Return the page of records that match, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        # Records are written some time after the act.
        while len((found := await page.at("ops").get(f"/audit?{query}"))["records"]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found


async def test_the_audit_log_is_for_operators_and_paged(page: PageMesh) -> None:
    assert await page.at().refusal("GET", "/audit") == "PERMISSION_DENIED"
    ops = page.at("ops")
    for _ in range(3):
        await page.send("hi", key="bob")
    path = "/audit?account=other&action=message.*"
    found = await _until_recorded(page, "account=other&action=message.*", count=3)
    assert found["process"] == "test"
    assert [record["actor"]["name"] for record in found["records"]] == ["bob"] * 3
    times = [record["time"] for record in found["records"]]
    assert times == sorted(times, reverse=True)
    records, token = [], ""
    while True:
        part = await ops.get(f"{path}&pageSize=1&pageToken={token}")
        records += part["records"]
        token = part["nextPageToken"]
        if not token:
            break
    assert records == found["records"]
    assert (await ops.get(f"{path}&outcome=denied"))["records"] == []
    assert (await ops.get("/audit?since=2100-01-01T00:00:00Z"))["records"] == []
    for query in ("action=nonsense", "since=yesterday", "pageToken=x", "pageSize=1000"):
        assert await ops.refusal("GET", f"/audit?{query}") == "INVALID_PARAMS", query


async def test_without_credentials_everybody_is_an_operator(tmp_path: Path) -> None:
    async with open_page_mesh(tmp_path, api_keys_file=None) as open_page:
        assert (await open_page.at("").get("/audit"))["process"] == "test"
