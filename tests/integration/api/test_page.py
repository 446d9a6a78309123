"""The page at `/ui`: its files and headers, sign-in, mesh, tasks and traces, over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.a2a.bridged_mesh import Event, Stream, open_bridged_mesh
from harness.a2a.page_mesh import KEYS, PageMesh, open_page_mesh
from harness.mcp.shop_tools import join_shop_tools
from harness.polling import poll
from harness.remote.measurements import measuring
from trunkline.core.json_values import parse_dict
from trunkline.core.settings import PageSettings, Settings
from trunkline.errors import ConfigurationError
from trunkline.journal.fold import Fold
from trunkline.observe import telemetry
from trunkline.observe.traces.spans import read_records
from trunkline.v1 import event_pb2, snapshot_pb2
from trunkline_agents.echo.agent import echo

PAUSED = "trunkline/paused"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    async with open_page_mesh(tmp_path_factory.mktemp("page")) as mesh:
        yield mesh


@pytest.fixture
def page(shared: PageMesh) -> PageMesh:
    """A mesh for tests that see only their own tasks."""
    shared.gate.is_open.clear()
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path: Path) -> AsyncIterator[PageMesh]:
    """A mesh that no other test has changed."""
    async with open_page_mesh(tmp_path) as mesh:
        yield mesh


async def read_until(stream: Stream, kind: str, **fields: Any) -> Event:
    """Read up to the event of a kind whose data has these fields."""
    async for event in stream:
        if event.kind == kind and fields.items() <= event.response.items():
            return event
    raise AssertionError("the stream ended")


def ids(body: Any) -> list[str]:
    return [row["id"] for row in body["tasks"]]


def add_trace(page: PageMesh, number: int, *task_ids: str) -> str:
    """Store a trace whose spans work on tasks; return its id."""
    resource = trace_pb2.ResourceSpans()
    for index, task_id in enumerate(task_ids or ("",), start=1):
        span = resource.scope_spans.add().spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=index.to_bytes(8, "big"),
            name="invoke_agent",
            kind=trace_pb2.Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=(4_000_000_000 + number) * 10**9,
            end_time_unix_nano=(4_000_000_001 + number) * 10**9,
        )
        attributes = {telemetry.SERVICE: "supervisor", telemetry.TASK_ID: task_id}
        attributes |= {
            telemetry.GEN_AI_OPERATION_NAME: telemetry.INVOKE_AGENT,
            telemetry.GEN_AI_AGENT_NAME: "teacher",
        }
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
    page.spans.add(read_records([resource]))
    return number.to_bytes(16, "big").hex()


async def test_requests_of_the_page_are_measured_and_make_no_spans(page: PageMesh) -> None:
    with measuring() as measured:
        answer = await page.bridged.client.get(f"{page.bridged.url}/ui/api/sign-in")
        assert measured.of("http.server.request.duration") == {
            ("GET", "http", "/ui/api/sign-in", "200"): 1
        }
    assert answer.status_code == 200
    assert "traceresponse" not in answer.headers


async def test_files_need_no_credentials_and_have_strict_headers(page: PageMesh) -> None:
    client, url = page.bridged.client, page.bridged.url
    redirect = await client.get(f"{url}/ui")
    assert (redirect.status_code, redirect.headers["location"]) == (308, "ui/")
    index = await client.get(f"{url}/ui/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    etag = index.headers["etag"]
    assert (index.headers["content-encoding"], index.headers["vary"]) == ("gzip", "accept-encoding")
    for refusal in ("identity", "gzip;q=0", "br, gzip;q=0.0"):
        plain = await client.get(f"{url}/ui/", headers={"Accept-Encoding": refusal})
        assert "content-encoding" not in plain.headers, refusal
        assert (plain.content, plain.headers["vary"]) == (index.content, "accept-encoding")
        assert plain.headers["etag"] != etag
    again = await client.get(f"{url}/ui/", headers={"If-None-Match": f'"x", W/{etag}'})
    assert (again.status_code, again.content) == (304, b"")
    missing = await client.get(f"{url}/ui/assets/../../page.py")
    assert missing.status_code == 404
    assert (await client.get(f"{url}/ui/assets/none.js")).status_code == 404
    refused = await page.at("").get("/session")
    for response in (redirect, index, again, refused):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
    posted = await client.post(f"{url}/ui/")
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")


async def test_the_session_says_who_signs_in_how_and_what_they_may_do(page: PageMesh) -> None:
    ways = await page.at("").read("/sign-in")
    expected = {"anonymous": False, "certificate": False, "apiKey": True, "token": False}
    assert ways == {**expected, "oidc": None}
    assert (await page.at("").get("/session")).status_code == 401
    assert (await page.at("stranger").get("/session")).status_code == 401
    session = await page.at("narrow").read("/session")
    assert (session["account"], session["user"]) == ("acme", "narrow")
    features = {"messages": True, "allMessages": False, "workflows": True, "inspector": False}
    assert session["features"] == features
    assert (await page.at().read("/session"))["features"]["allMessages"]
    begins_with = {
        key: (await page.at(key).read("/session"))["defaultAgent"]
        for key in ("narrow", "reader", "gatekeeper")
    }
    assert begins_with == {"narrow": "teacher", "reader": "teacher", "gatekeeper": "gate"}
    assert not session["isOperator"]
    assert "SendMessage" in session["methods"]
    assert "SendMessage" not in (await page.at("reader").read("/session"))["methods"]
    operators = {key for key in KEYS if (await page.at(key).read("/session"))["isOperator"]}
    assert operators == {"operator", "reading-operator"}


async def test_the_issuer_is_the_only_other_origin_of_scripts(tmp_path: Path) -> None:
    issuer = {
        "oidc_issuer": "https://id.example/realms/a",
        "oidc_client_id": "page",
    }
    async with open_page_mesh(tmp_path, page=issuer) as page:
        oidc = {"issuer": "https://id.example/realms/a", "clientId": "page"}
        assert (await page.at("").read("/sign-in"))["oidc"] == oidc
        index = await page.bridged.client.get(f"{page.bridged.url}/ui/")
        policy = index.headers["content-security-policy"]
        assert "connect-src 'self' https://id.example;" in policy
    with pytest.raises(ConfigurationError, match="oidc_client_id"):
        async with open_page_mesh(tmp_path, page={"oidc_issuer": "https://id.example"}):
            pass
    plain = {"oidc_issuer": "http://id.example", "oidc_client_id": "p"}
    with pytest.raises(ConfigurationError, match="must be an https URL"):
        async with open_page_mesh(tmp_path, page=plain):
            pass


async def test_without_credentials_everybody_is_an_operator_and_the_page_can_be_off(
    tmp_path: Path,
) -> None:
    async with open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        session = (await mesh.client.get(f"{mesh.url}/ui/api/session")).json()
        assert (session["isOperator"], session["account"]) == (True, "anonymous")
    settings = Settings(default_agent="echo", page=PageSettings(enabled=False))
    async with open_bridged_mesh(tmp_path / "off", settings) as mesh:
        for path in ("/ui", "/ui/", "/ui/api/session", "/ui/api/sign-in"):
            assert (await mesh.client.get(mesh.url + path)).status_code == 404


async def test_tasks_of_all_permitted_agents_are_listed_filtered_and_paged(fresh: PageMesh) -> None:
    first = await fresh.ask("teacher", "Hello Ada")
    second = await fresh.ask("gate", "pass one")
    third = await fresh.ask("teacher", "hello Bob")
    await fresh.ask("teacher", "hello from bob", "bob")
    newest = [third["id"], second["id"], first["id"]]
    listed = await fresh.at().read("/tasks")
    assert ids(listed) == newest
    assert listed["nextPageToken"] == ""
    row = listed["tasks"][-1]
    assert row["text"] == "Hello Ada"
    assert (row["agent"], row["state"]) == ("teacher", "TASK_STATE_COMPLETED")
    assert (row["outcome"], row["parentTaskId"]) == ("complete", "")
    assert row["contextId"] == first["contextId"]
    found: list[str] = []
    token = ""
    while not found or token:
        body = await fresh.at().read("/tasks", pageSize=1, pageToken=token, text="hello")
        found += ids(body)
        token = body["nextPageToken"]
    assert found == [third["id"], first["id"]]
    queries: list[tuple[dict[str, str], list[str]]] = [
        ({"agent": "gate"}, [second["id"]]),
        ({"contextId": first["contextId"]}, [first["id"]]),
        ({"state": "working,input-required"}, []),
        ({"state": "completed"}, newest),
        ({"since": listed["tasks"][1]["updatedAt"]}, newest[:2]),
    ]
    for query, expected in queries:
        assert ids(await fresh.at().read("/tasks", **query)) == expected
    assert ids(await fresh.at("narrow").read("/tasks")) == [third["id"], first["id"]]
    for query in ({"state": "lost"}, {"since": "now"}, {"pageSize": "101"}, {"pageToken": "?"}):
        assert (await fresh.at().get("/tasks", **query)).status_code == 400


async def test_others_see_no_task_and_do_nothing_to_it(fresh: PageMesh) -> None:
    task_id = (await fresh.ask("gate", "wait", now=True))["id"]
    for key, status in (("bob", 404), ("operator", 404), ("narrow", 403)):
        other = fresh.at(key)
        assert ids(await other.read("/tasks")) == []
        reads = ("", "/events", "/trace")
        for path in reads:
            assert (await other.get(f"/tasks/{task_id}{path}")).status_code == status
        for act in ("cancel", "pause", "resume"):
            assert (await other.post(f"/tasks/{task_id}:{act}")).status_code == status
        answer = await other.post(f"/tasks/{task_id}/approvals/a:answer", decision="approved")
        assert answer.status_code == status
    assert (await fresh.at("narrow").get("/tasks", agent="gate")).status_code == 403
    assert (await fresh.at("reader").post(f"/tasks/{task_id}:cancel")).status_code == 403
    assert (await fresh.at("reader").get(f"/tasks/{task_id}")).status_code == 200
    canceled = await fresh.at().change(f"/tasks/{task_id}:cancel")
    assert canceled["task"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_the_list_of_tasks_is_live_and_resumes_without_a_gap(page: PageMesh) -> None:
    await page.ask("teacher", "before")
    async with (
        page.at().stream("/tasks:watch") as stream,
        page.at("bob").stream("/tasks:watch") as foreign,
    ):
        ready = await read_until(stream, "ready")
        await read_until(foreign, "ready")
        task = await page.ask("gate", "wait live", now=True)
        working = await read_until(stream, "task", id=task["id"])
        assert working.response["text"] == "wait live"
        theirs = await page.ask("teacher", "of bob", "bob")
        event = await read_until(foreign, "task")
        assert event.response["id"] == theirs["id"]
    # While nobody watches:
    page.gate.is_open.set()
    missed = await page.ask("teacher", "missed")
    async with page.at().stream("/tasks:watch", last_id=working.id) as stream:
        rows: dict[str, Any] = {}
        while not {task["id"], missed["id"]} <= rows.keys():
            event = await read_until(stream, "task")
            if event.response["state"] == "TASK_STATE_COMPLETED":
                rows[event.response["id"]] = event.response
        assert rows[missed["id"]]["text"] == "missed"
        await page.ask("teacher", "after")
        await read_until(stream, "task", text="after", state="TASK_STATE_COMPLETED")
    assert int(ready.id) <= int(working.id)


async def test_a_task_was_at_each_sequence_what_the_fold_of_its_events_is(page: PageMesh) -> None:
    task_id = (await page.ask("flow", "travel"))["id"]
    async with page.at().stream(f"/tasks/{task_id}/events", after=0) as stream:
        events = await stream.rest()
    assert [event.kind for event in events[-2:]] == ["event", "end"]
    sequences = [event.response["sequence"] for event in events[:-1]]
    client = page.bridged.mesh.directory.client_for_task(task_id)
    async with client.watch_task(
        task_id, account="acme", after=0, with_snapshot=False, until_head=True
    ) as watched:
        sealed = [data async for group in watched for data in group]
    batches = [event_pb2.EventBatch.FromString(data) for data in sealed]
    fold = Fold(task_id)
    for batch in batches:
        fold.apply(batch)
        end = batch.header.first_sequence + batch.header.count - 1
        body = await page.at().read(f"/tasks/{task_id}", at=end)
        shown = parse_dict(body["task"], snapshot_pb2.TaskSnapshot())
        assert shown == fold.snapshot()
        assert (body["sequence"], body["lastSequence"]) == (end, sequences[-1])
        assert end in sequences
    latest = await page.at().read(f"/tasks/{task_id}")
    assert latest["task"] == body["task"]
    assert (await page.at().get(f"/tasks/{task_id}", at=1000)).status_code == 400
    # From any event, the rest of the stream is the same.
    for position, event in enumerate(events[:-1]):
        async with page.at().stream(f"/tasks/{task_id}/events", last_id=event.id) as stream:
            assert await stream.rest() == events[position + 1 :]
    assert (await page.at().get(f"/tasks/{task_id}/events", after="x")).status_code == 400


async def test_events_come_as_they_happen_and_runs_pause_and_resume(page: PageMesh) -> None:
    task_id = (await page.ask("flow", "wait a while", now=True))["id"]
    async with page.at().stream(f"/tasks/{task_id}/events") as stream:
        await read_until(stream, "event", sequence=1)
        paused = await page.at().change(f"/tasks/{task_id}:pause")
        assert PAUSED in paused["task"]["task"].get("metadata", {})
        page.gate.is_open.set()
        resumed = await page.at().change(f"/tasks/{task_id}:resume")
        assert not resumed["task"]["task"].get("metadata", {}).get(PAUSED)
        last = [event.kind for event in await stream.rest()][-1]
        assert last == "end"
    assert (await page.at().post(f"/tasks/{task_id}:pause")).status_code == 400
    teacher = (await page.ask("teacher", "x"))["id"]
    assert (await page.at().post(f"/tasks/{teacher}:resume")).status_code == 400


async def test_approvals_are_answered_edited_and_recorded(tmp_path: Path) -> None:
    async with open_page_mesh(tmp_path) as page:
        task = await page.ask("apples", "order 3 apples")
        approval = f"/tasks/{task['id']}/approvals/{task['id']}.1:answer"
        refused = {"decision": "maybe"}, {"decision": "edited"}
        for body in (*refused, {"decision": "approved", "arguments": {"n": 1}}):
            assert (await page.at().post(approval, **body)).status_code == 400
        reading = await page.at("reader").post(approval, decision="approved")
        assert reading.status_code == 403
        arguments = {"n": 1, "item": "apple"}
        await page.at().change(approval, decision="edited", arguments=arguments, reason="less")
        async with page.at().stream(f"/tasks/{task['id']}/events", after=0) as stream:
            await stream.rest()
        assert page.orders.orders == [arguments]
        late = await page.at().post(approval, decision="rejected")
        assert late.status_code == 400
    lines = (tmp_path / "data/private/audit.jsonl").read_text().splitlines()
    answers = [
        (record["actor"]["name"], record["decision"], record["outcome"])
        for record in map(json.loads, lines)
        if record["action"] == "approval.answer" and record["actor"]["kind"] == "api_key"
    ]
    assert answers == [
        ("reader", "approved", "denied"),
        ("ann", "edited", "ok"),
        ("ann", "rejected", "UNSUPPORTED_OPERATION"),
    ]


async def test_operators_see_the_mesh_and_others_their_agents(fresh: PageMesh) -> None:
    async with fresh.at("operator").stream("/mesh:watch") as stream:
        state = (await read_until(stream, "mesh")).response
        kinds = {agent["name"]: agent["kind"] for agent in state["agents"]}
        assert kinds["flow"] == "workflow"
        assert kinds["teacher"] == "agent"
        assert {host["state"] for host in state["hosts"]} == {"ready"}
        add_trace(fresh, 1)
        while not state["edges"]:
            state = (await read_until(stream, "mesh")).response
        (edge,) = state["edges"]
        assert (edge["from"], edge["to"], edge["kind"]) == ("supervisor", "teacher", "call")
        assert (edge["count"], edge["errorRatio"]) == (1, 0)
        await fresh.bridged.mesh.join(echo)
        while "echo" not in {agent["name"] for agent in state["agents"]}:
            state = (await read_until(stream, "mesh")).response
    room = f"{fresh.bridged.url}/messages/rooms/class"
    async with fresh.at("narrow").stream("/mesh:watch") as stream:
        state = (await read_until(stream, "mesh")).response
        assert [agent["name"] for agent in state["agents"]] == ["teacher"]
        assert state["agents"][0]["host"] == ""
        assert (state["hosts"], state["toolServers"], state["edges"]) == ([], [], [])
    async with fresh.at().stream("/mesh:watch") as stream:
        await read_until(stream, "mesh")
        joined = await fresh.bridged.client.post(
            f"{room}:join", json={"member": "teacher"}, headers=fresh.at().headers
        )
        assert joined.status_code == 200, joined.text
        while not state["rooms"]:
            state = (await read_until(stream, "mesh")).response
        assert state["rooms"] == [{"name": "class", "members": ["teacher"]}]


async def test_the_first_state_of_the_mesh_has_its_tool_servers(fresh: PageMesh) -> None:
    await join_shop_tools(fresh.bridged.mesh, fresh.bridged.mesh.folder)
    async with fresh.at("operator").stream("/mesh:watch") as stream:
        first = (await anext(stream)).response
        state = first
        while not state["toolServers"][1]["tools"]:
            state = (await read_until(stream, "mesh")).response
    assert [server["name"] for server in first["toolServers"]] == ["shop", "careless"]
    careless = state["toolServers"][1]
    assert [tool["name"] for tool in careless["tools"]] == ["good"]
    (problem,) = careless["listingProblems"]
    assert problem.startswith("bad: the tool is left out: inputSchema: ")
    async with fresh.at("narrow").stream("/mesh:watch") as stream:
        assert (await anext(stream)).response["rooms"] is None


async def test_traces_are_all_for_operators_and_only_their_own_for_others(fresh: PageMesh) -> None:
    mine = (await fresh.ask("teacher", "x"))["id"]
    gated = (await fresh.ask("gate", "x"))["id"]
    theirs = (await fresh.ask("teacher", "x", "bob"))["id"]
    traces = {
        "mine": add_trace(fresh, 1, mine),
        "theirs": add_trace(fresh, 2, theirs),
        # Bob has sent his request with the id of our trace.
        "shared": add_trace(fresh, 3, mine, theirs),
        "gated": add_trace(fresh, 4, gated),
        "none": add_trace(fresh, 5),
    }
    seen = {
        "operator": {"mine", "theirs", "shared", "gated", "none"},
        "ann": {"mine", "gated"},
        "narrow": {"mine"},
        "bob": {"theirs"},
        "narrow-operator": set(),
    }
    for key, names in seen.items():
        caller = fresh.at(key)
        listed: list[str] = []
        token = ""
        while True:
            body = await caller.read("/traces", pageSize=2, pageToken=token)
            listed += [trace["traceId"] for trace in body["traces"]]
            token = body["nextPageToken"]
            if not token:
                break
        assert set(listed) == {traces[name] for name in names}
        for name, trace_id in traces.items():
            response = await caller.get(f"/traces/{trace_id}")
            assert response.status_code == (200 if name in names else 404), (key, name)
    spans = (await fresh.at().read(f"/tasks/{mine}/trace"))["spans"]
    assert {span["traceId"] for span in spans} == {traces["mine"]}
    assert (await fresh.at().get("/tasks/j-0/trace")).status_code == 404
    async with fresh.at().stream("/traces:watch") as stream:
        await read_until(stream, "ready")
        add_trace(fresh, 6, theirs)
        add_trace(fresh, 7, mine)
        assert (await read_until(stream, "trace")).response["traceId"][-1] == "7"


async def test_a_lost_host_leaves_the_list_and_returns_to_the_watch(fresh: PageMesh) -> None:
    joined = await fresh.bridged.mesh.join(echo)
    kept = await fresh.ask("teacher", "kept")
    await fresh.ask("echo", "on the lost host")
    async with fresh.at().stream("/tasks:watch") as stream:
        await read_until(stream, "ready")
        await joined.cut()
        listed = await fresh.at().read("/tasks")
        assert listed["isIncomplete"]
        assert ids(listed) == [kept["id"]]
        await joined.serve_again()
        # Its tasks may have changed unseen.
        await read_until(stream, "reset")
        await poll(lambda: fresh.at().read("/tasks"), lambda listed: len(ids(listed)) == 2)
        await fresh.ask("echo", "again")
        await read_until(stream, "task", text="again", state="TASK_STATE_COMPLETED")
