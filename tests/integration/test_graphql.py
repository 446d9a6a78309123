"""GraphQL for messages, rooms, workflows and runs: a real mesh, HTTP, SSE and WebSockets."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.a2a.bridged_mesh import BridgedMesh, Stream, open_bridged_mesh
from harness.a2a.graphql_client import PROTOCOL, GraphQLClient, GraphQLSocket, Json
from harness.mesh.messaging import join_messages
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from harness.workflows.building import agent_node, build
from trunkline import EvaluationRequest, EvaluationResult, TaskContext, agent, from_workflow
from trunkline.mesh.workflow_catalog import DataFolderCatalog
from trunkline.settings import GraphQLSettings, LimitSettings
from trunkline.settings.limits import AccountLimitSettings
from trunkline_bridge.edge import api_keys
from trunkline_bridge.edge.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.settings import BridgeSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "reader": {"methods": ("read",)},
    "narrow": {"agents": ("teacher",)},
    "slow": {"account": "slow"},
    "single": {"account": "single"},
    "leaving": {},
}
MESSAGE = "id correlationId causationId sender recipient room type text data isReply"
SEND = f"mutation($m: MessageInput!) {{ sendMessage(message: $m) {{ {MESSAGE} }} }}"
START = 'mutation($d: JSON) { startWorkflow(name: "flow", data: $d) { id } }'
RUN = """query($id: ID!) { run(id: $id) {
  id workflow version state statusText isPaused contextId createTime statusTime
  answer { text data } path { node label isError startTime endTime } currentNodes drawing } }"""
EVENTS = """subscription($id: ID!, $after: String) { runEvents(id: $id, after: $after) {
  __typename cursor time
  ... on RunStateChanged { state } ... on NodeStarted { node } ... on NodeFinished { node label }
  ... on ContentAdded { text } ... on AgentCalled { agent } } }"""
WATCH = f"""subscription($room: String!, $after: String) {{
  messages(filter: {{room: $room}}, after: $after) {{ cursor message {{ {MESSAGE} }} }} }}"""


@agent(name="teacher", description="Evaluates drafts.")
async def teacher(task: TaskContext) -> str:
    return f"you said {task.text}"


@teacher.on(EvaluationRequest)
async def evaluate(_: TaskContext, request: EvaluationRequest) -> EvaluationResult:
    if request.context == "fail":
        raise RuntimeError("broken")
    return EvaluationResult(approved=True, proposal=request.proposal, score=80)


@teacher.on("quiet")
async def stay_quiet(_: TaskContext, __: object) -> None:
    return None


class Gate:
    """Where runs of the workflow wait."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    async def pass_through(self, task: TaskContext) -> str:
        if "wait" in task.text:
            await self.is_open.wait()
        return f"passed {task.text}"


@dataclass(frozen=True, slots=True)
class GraphQLMesh:
    mesh: BridgedMesh
    gate: Gate
    keys: Path

    def at(self, key: str = "ann") -> GraphQLClient:
        headers = {"X-API-Key": f"key-of-{key}"} if key else {}
        return GraphQLClient(self.mesh.client, self.mesh.url, headers)

    async def send(self, recipient: str, text: str, key: str = "ann", **fields: Any) -> Json:
        message = {"recipient": recipient, "type": "quiet", "text": text, **fields}
        sent: Json = (await self.at(key).data(SEND, m=message))["sendMessage"]
        return sent

    async def start(self, text: str) -> str:
        run = await self.at().data(START, d={"text": text})
        return str(run["startWorkflow"]["id"])

    async def until_over(self, run_id: str, after: str | None = None) -> list[Json]:
        """Return the events of a run to its end."""
        async with self.at().events(EVENTS, id=run_id, after=after) as stream:
            return [event["data"]["runEvents"] for event in await read_to_end(stream)]

    async def dead_letter(self) -> str:
        """Return the id of a message that can't be handled, when it is given up."""
        query = """subscription($id: String!) { messages(
          filter: {id: $id}, after: "0", withDeliveries: true) {
            message { deliveries { state recipient attemptCount attempts { problem } } } } }"""
        body = {
            "recipient": "teacher",
            "type": "evaluation_request",
            "data": {"proposal": "p", "context": "fail"},
        }
        sent = (await self.at().data(SEND, m=body))["sendMessage"]
        async with self.at().events(query, id=sent["id"]) as stream:
            async for event in stream:
                message = event.response["data"]["messages"]["message"]
                if message and message["deliveries"][0]["state"] == "DEAD":
                    (delivery,) = message["deliveries"]
                    assert delivery["recipient"] == "teacher"
                    assert delivery["attemptCount"] == 2
                    assert len(delivery["attempts"]) == 2
                    return str(sent["id"])
        raise AssertionError("the stream ended")


async def read_to_end(stream: Stream) -> list[Json]:
    """Return the results of a stream until it is complete."""
    results: list[Json] = []
    async for event in stream:
        if event.kind == "complete":
            return results
        assert event.kind == "next"
        results.append(event.response)
    raise AssertionError("the stream was cut")


def flow(version: int, *nodes: str) -> Any:
    return build(
        "flow",
        agent_node("first", "gate", "${input.text}"),
        {"id": "end", "output": {"text": "${last.text}", "version": version}},
        edges="start > first > end",
        version=version,
        description=f"Version {version}.",
        inputs={"type": "object", "required": ["text"], "properties": {"text": {}}},
    )


def write_keys(file: Path, *names: str) -> None:
    entries = [
        ApiKey(
            name,
            KEYS[name].get("account", "acme"),
            hash_key(f"key-of-{name}"),
            agents=KEYS[name].get("agents", ()),
            methods=KEYS[name].get("methods", ()),
        )
        for name in names
    ]
    save_keys(file, entries)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GraphQLMesh]:
    folder = tmp_path_factory.mktemp("graphql")
    keys = folder / "keys"
    write_keys(keys, *KEYS)
    accounts = {
        "slow": AccountLimitSettings(rate=0.001, burst=3),
        "single": AccountLimitSettings(streams=1),
    }
    settings = BridgeSettings(
        default_agent="teacher",
        api_keys_file=keys,
        body_limit_bytes=100_000,
        limits=LimitSettings(account=accounts),
        graphql=GraphQLSettings(enabled=True, rollback=True, subscriptions=3, page_size=50),
    )
    gate = Gate()
    gate_agent = agent(name="gate", description="Waits.")(gate.pass_through)
    async with open_bridged_mesh(folder, settings, catalog=DataFolderCatalog(folder)) as mesh:
        await mesh.mesh.join(teacher, gate_agent, from_workflow(flow(1), flow(2)))
        await join_messages(mesh.mesh, attempts=2)
        yield GraphQLMesh(mesh, gate, keys)


async def test_messages_are_sent_requested_read_and_answered(outside: GraphQLMesh) -> None:
    ann = outside.at()
    request = f"mutation($m: MessageInput!) {{ request(message: $m) {{ {MESSAGE} }} }}"
    body = {"recipient": "teacher", "type": "evaluation_request", "data": {"proposal": "a draft"}}
    reply = (await ann.data(request, m=body))["request"]
    assert (reply["type"], reply["sender"], reply["isReply"]) == (
        "evaluation_result",
        "teacher",
        True,
    )
    assert (reply["recipient"], reply["data"]["score"]) == ("user:ann", 80)

    found = await ann.data(
        """query($id: ID!) { message(id: $id) {
          type priority createTime expireTime metadata hopCount
          deliveries { recipient state attempts { taskId startTime endTime problem } }
          replies(first: 5) { nodes { id } endCursor } } }""",
        id=reply["causationId"],
    )
    message = found["message"]
    assert (message["type"], message["priority"]) == ("evaluation_request", "NORMAL")
    assert message["createTime"].startswith("20")
    assert message["metadata"] == {}
    assert message["deliveries"][0]["state"] == "HANDLED"
    assert message["deliveries"][0]["attempts"][0]["problem"] == ""
    assert message["replies"] == {"nodes": [{"id": reply["id"]}], "endCursor": None}

    answer = f"""mutation($to: ID!, $m: MessageInput!) {{
      reply(to: $to, message: $m) {{ {MESSAGE} }} }}"""
    answered = await ann.data(answer, to=reply["id"], m={"type": "quiet", "text": "thanks"})
    assert answered["reply"]["recipient"] == "teacher"
    assert answered["reply"]["correlationId"] == reply["correlationId"]
    assert answered["reply"]["causationId"] == reply["id"]
    assert answered["reply"]["isReply"]


async def test_several_messages_are_accepted_together_or_not_at_all(outside: GraphQLMesh) -> None:
    send = "mutation($m: [MessageInput!]!) { sendMessages(messages: $m) { text } }"
    good = {"recipient": "teacher", "type": "quiet", "text": "one", "correlationId": "together"}
    sent = await outside.at().data(send, m=[good, {**good, "text": "two"}])
    assert [message["text"] for message in sent["sendMessages"]] == ["one", "two"]
    error = await outside.at().refusal(send, m=[good, {**good, "recipient": "nobody"}])
    assert error["extensions"]["reason"] == "AGENT_NOT_FOUND"
    assert error["extensions"]["code"] == "NOT_FOUND"
    assert error["path"] == ["sendMessages"]
    listed = await outside.at().data(
        '{ messages(filter: {correlationId: "together"}) { nodes { text } } }'
    )
    assert [node["text"] for node in listed["messages"]["nodes"]] == ["two", "one"]


async def test_messages_are_filtered_and_paged(outside: GraphQLMesh) -> None:
    for text in ("a", "b", "c"):
        await outside.send("teacher", text, correlationId="paged", metadata={"n": 1})
    query = """query($first: Int!, $after: String) {
      messages(filter: {correlationId: "paged", participant: "user:ann"}, first: $first,
        after: $after) { nodes { text metadata } endCursor } }"""
    page = (await outside.at().data(query, first=2))["messages"]
    assert [node["text"] for node in page["nodes"]] == ["c", "b"]
    assert page["nodes"][0]["metadata"] == {"n": 1}
    rest = (await outside.at().data(query, first=2, after=page["endCursor"]))["messages"]
    assert [node["text"] for node in rest["nodes"]] == ["a"]
    assert rest["endCursor"] is None
    assert await outside.at().reason(query, first=2, after="nonsense") == "INVALID_PARAMS"
    too_large = await outside.at().refusal(query, first=51)
    assert too_large["extensions"]["violations"] == [
        {"field": "first", "problem": "must be 1 to 50"}
    ]
    late = '{ messages(filter: {startTime: "2100-01-01T00:00:00"}) { nodes { id } } }'
    assert (await outside.at().data(late))["messages"]["nodes"] == []


async def test_dead_letters_are_redriven_replayed_and_purged(outside: GraphQLMesh) -> None:
    ann = outside.at()
    dead = await outside.dead_letter()
    query = "query($f: MessageFilter) { deadLetters(filter: $f) { nodes { id } } }"
    assert (await ann.data(query, f={"id": dead}))["deadLetters"]["nodes"] == [{"id": dead}]
    redrive = "mutation($f: MessageFilter!) { redriveDeadLetters(filter: $f) }"
    assert (await ann.data(redrive, f={"id": dead}))["redriveDeadLetters"] == 1

    quiet = await outside.send("teacher", "again")
    replay = """mutation($f: MessageFilter!, $dry: Boolean!) {
      replayMessages(filter: $f, dryRun: $dry) }"""
    planned = await ann.data(replay, f={"id": quiet["id"]}, dry=True)
    assert planned["replayMessages"] == [quiet["id"]]
    replayed = await ann.data(replay, f={"id": quiet["id"]}, dry=False)
    (new,) = replayed["replayMessages"]
    copy = await ann.data("query($id: ID!) { message(id: $id) { replayOf text } }", id=new)
    assert copy["message"] == {"replayOf": quiet["id"], "text": "again"}

    own = await outside.send("user:ann", "note")
    purge = "mutation($f: MessageFilter!) { purgeMessages(filter: $f) }"
    assert (await ann.data(purge, f={"id": own["id"]}))["purgeMessages"] == 1
    gone = "query($id: ID!) { message(id: $id) { id } }"
    assert await ann.refusal(gone, id=own["id"])


async def test_rooms_have_members_and_history(outside: GraphQLMesh) -> None:
    ann = outside.at()
    join = """mutation($room: String!, $member: String! = "") {
      joinRoom(room: $room, member: $member) { name members createTime } }"""
    joined = (await ann.data(join, room="attic", member="teacher"))["joinRoom"]
    assert joined["members"] == ["teacher"]
    publish = """mutation { publish(room: "attic", message: {type: "quiet", text: "hello"}) {
      room recipient } }"""
    assert (await ann.data(publish))["publish"] == {"room": "attic", "recipient": "room:attic"}
    room = await ann.data('{ room(name: "attic") { members history { nodes { text type } } } }')
    assert room["room"]["members"] == ["teacher"]
    assert {"text": "hello", "type": "quiet"} in room["room"]["history"]["nodes"]
    await ann.data(join, room="cellar")
    rooms = (await ann.data("{ rooms(first: 1) { nodes { name } endCursor } }"))["rooms"]
    assert rooms == {"nodes": [{"name": "attic"}], "endCursor": "attic"}
    more = await ann.data('{ rooms(after: "attic") { nodes { name members } endCursor } }')
    assert more["rooms"]["nodes"][0] == {"name": "cellar", "members": ["user:ann"]}
    left = await ann.data('mutation { leaveRoom(room: "cellar") { members } }')
    assert left["leaveRoom"]["members"] == []


@pytest.mark.parametrize("by_socket", [False, True])
async def test_a_subscription_to_a_room_goes_on_after_a_cursor(
    outside: GraphQLMesh, *, by_socket: bool
) -> None:
    room = f"live-{by_socket}"
    async with AsyncExitStack() as stack:
        events = await subscribe(stack, outside.at(), by_socket, WATCH, room=room)
        began = await anext(events)
        assert began["messages"]["message"] is None
        sent = await outside.send(f"room:{room}", "one")
        event = (await anext(events))["messages"]
        assert event["message"]["id"] == sent["id"]
    await outside.send(f"room:{room}", "two")
    async with AsyncExitStack() as stack:
        events = await subscribe(
            stack, outside.at(), by_socket, WATCH, room=room, after=event["cursor"]
        )
        missed = (await anext(events))["messages"]
        assert missed["message"]["text"] == "two"
        await outside.send(f"room:{room}", "other", key="bob")
        await outside.send(f"room:{room}", "three")
        texts: list[str] = []
        while texts[-1:] != ["three"]:
            found = (await anext(events))["messages"]["message"]
            texts += [found["text"]] if found else []
        # Another account has a room of this name, too.
        assert texts == ["three"]


async def subscribe(
    stack: AsyncExitStack, client: GraphQLClient, by_socket: bool, query: str, **variables: Any
) -> AsyncIterator[Json]:
    """Start a subscription; return its data."""
    if by_socket:
        socket = await stack.enter_async_context(client.socket())
        await socket.start(query, **variables)
        return (frame["payload"]["data"] async for frame in socket)
    stream = await stack.enter_async_context(client.events(query, **variables))
    return (event.response["data"] async for event in stream if event.kind == "next")


async def test_workflows_have_versions_definitions_and_drawings(outside: GraphQLMesh) -> None:
    ann = outside.at()
    listed = await ann.data("{ workflows { nodes { name version isCurrent } endCursor } }")
    assert listed["workflows"] == {
        "nodes": [{"name": "flow", "version": 2, "isCurrent": True}],
        "endCursor": None,
    }
    query = """query($v: Int) { workflow(name: "flow", version: $v) {
      name version isCurrent description definition versions drawing } }"""
    old = (await ann.data(query, v=1))["workflow"]
    assert (old["version"], old["isCurrent"], old["versions"]) == (1, False, [2, 1])
    assert old["description"] == "Version 1."
    assert [node["id"] for node in old["definition"]["nodes"]] == ["first", "end", "start"]
    assert old["definition"]["edges"][0] == {"from": "start", "to": "first"}
    assert old["drawing"].startswith("flowchart TD\n")
    for version in (9, -1):
        wrong = await ann.refusal(query, v=version)
        assert f"there is no {version}; there are: 1, 2" in wrong["message"]
    hostile = "query($n: String!) { workflow(name: $n) { name } }"
    for name in ("nothing", "../flow", "flow/../flow", ""):
        assert await ann.reason(hostile, n=name) == "AGENT_NOT_FOUND"

    roll_back = """mutation($v: Int) { rollBackWorkflow(name: "flow", version: $v) {
      version isCurrent } }"""
    chosen = await ann.data(roll_back)
    assert chosen["rollBackWorkflow"] == {"version": 1, "isCurrent": True}
    run_id = await outside.start("old")
    await outside.until_over(run_id)
    assert (await ann.data(RUN, id=run_id))["run"]["version"] == 1
    assert await ann.reason(roll_back) == "INVALID_PARAMS"
    await ann.data(roll_back, v=2)


async def test_a_run_is_started_followed_and_read(outside: GraphQLMesh) -> None:
    run_id = await outside.start("now")
    events = await outside.until_over(run_id)
    kinds = [event["__typename"] for event in events]
    assert {"RunStateChanged", "NodeStarted", "NodeFinished", "ContentAdded", "AgentCalled"} <= set(
        kinds
    )
    assert [event["node"] for event in events if event["__typename"] == "NodeStarted"] == [
        "start",
        "first",
        "end",
    ]
    assert events[-1]["state"] == "COMPLETED"
    # A reader that was cut goes on behind the last event that it has.
    middle = events[len(events) // 2]["cursor"]
    assert await outside.until_over(run_id, middle) == events[len(events) // 2 + 1 :]
    assert await outside.until_over(run_id, events[-1]["cursor"]) == []

    run = (await outside.at().data(RUN, id=run_id))["run"]
    assert (run["workflow"], run["version"], run["state"]) == ("flow", 2, "COMPLETED")
    assert run["answer"] == {
        "text": "passed now",
        "data": [{"text": "passed now", "version": 2}],
    }
    assert [visit["node"] for visit in run["path"]] == ["start", "first", "end"]
    assert all(visit["endTime"] for visit in run["path"])
    assert run["currentNodes"] == []
    assert "class n2,n0,n1 visited" in run["drawing"]
    runs = await outside.at().data(
        """{ runs(workflow: "flow", state: COMPLETED, first: 1) {
          nodes { id state answer { text } } endCursor }
          workflow(name: "flow") { runs(state: FAILED) { nodes { id } } } }"""
    )
    assert runs["runs"]["nodes"][0]["state"] == "COMPLETED"
    assert runs["runs"]["nodes"][0]["answer"]["text"].startswith("passed")
    assert runs["workflow"]["runs"]["nodes"] == []


async def test_a_run_is_paused_resumed_and_canceled(outside: GraphQLMesh) -> None:
    ann = outside.at()
    outside.gate.is_open.clear()
    run_id = await outside.start("wait here")
    async with ann.events(EVENTS, id=run_id) as stream:
        async for event in stream:
            if event.response["data"]["runEvents"].get("agent") == "gate":
                break
    waiting = (await ann.data(RUN, id=run_id))["run"]
    assert (waiting["state"], waiting["currentNodes"]) == ("WORKING", ["first"])
    act = "mutation($id: ID!) {{ {0}(id: $id) {{ id state isPaused }} }}"
    paused = (await ann.data(act.format("pauseRun"), id=run_id))["pauseRun"]
    assert paused == {"id": run_id, "state": "WORKING", "isPaused": True}
    resumed = (await ann.data(act.format("resumeRun"), id=run_id))["resumeRun"]
    assert resumed["isPaused"] is False
    canceled = (await ann.data(act.format("cancelRun"), id=run_id))["cancelRun"]
    assert canceled["state"] == "CANCELED"
    assert await ann.reason(act.format("cancelRun"), id=run_id) == "TASK_NOT_CANCELABLE"
    assert (await ann.data(RUN, id=run_id))["run"]["currentNodes"] == []


async def test_a_start_is_repeated_by_its_request_id_and_checked(outside: GraphQLMesh) -> None:
    ann = outside.at()
    start = """mutation($r: String! = "", $v: Int, $t: String, $d: JSON) {
      startWorkflow(name: "flow", requestId: $r, version: $v, text: $t, data: $d) { id } }"""
    first = await ann.data(start, r="once", t="x")
    assert await ann.data(start, r="once", t="x") == first
    old = (await ann.data(start, v=1, t="x"))["startWorkflow"]["id"]
    await outside.until_over(old)
    assert (await ann.data(RUN, id=old))["run"]["version"] == 1
    for wrong in ({}, {"t": "x", "d": {}}, {"d": [1]}, {"t": "x", "v": 7}):
        assert await ann.reason(start, **wrong) == "INVALID_PARAMS"
    unknown = 'mutation { startWorkflow(name: "none", text: "x") { id } }'
    assert await ann.reason(unknown) == "AGENT_NOT_FOUND"


async def test_another_account_sees_nothing(outside: GraphQLMesh) -> None:
    sent = await outside.send("room:secret", "for us")
    run_id = await outside.start("mine")
    await outside.until_over(run_id)
    bob = outside.at("bob")
    assert await bob.refusal("query($id: ID!) { message(id: $id) { id } }", id=sent["id"])
    assert (await bob.data('{ room(name: "secret") { history { nodes { id } } } }'))["room"] == {
        "history": {"nodes": []}
    }
    for key in ("bob",):
        reasons = {await outside.at(key).reason(RUN, id=run_id)}
        for act in ("pauseRun", "resumeRun", "cancelRun"):
            act_query = f"mutation($id: ID!) {{ {act}(id: $id) {{ id }} }}"
            reasons.add(await outside.at(key).reason(act_query, id=run_id))
        assert reasons == {"TASK_NOT_FOUND"}
    assert (await bob.data('{ runs(workflow: "flow") { nodes { id } } }'))["runs"]["nodes"] == []
    async with bob.events(EVENTS, id=run_id) as stream:
        (result,) = await read_to_end(stream)
    assert result["errors"][0]["extensions"]["reason"] == "TASK_NOT_FOUND"


async def test_credentials_are_for_methods_and_agents(outside: GraphQLMesh) -> None:
    reader, narrow = outside.at("reader"), outside.at("narrow")
    assert await reader.reason(SEND, m={"recipient": "teacher", "text": "x"}) == "PERMISSION_DENIED"
    assert await reader.reason(START, d={"text": "x"}) == "PERMISSION_DENIED"
    roll_back = 'mutation { rollBackWorkflow(name: "flow") { version } }'
    assert await reader.reason(roll_back) == "PERMISSION_DENIED"
    run_id = await outside.start("for readers")
    await outside.until_over(run_id)
    assert (await reader.data(RUN, id=run_id))["run"]["state"] == "COMPLETED"
    pause = "mutation($id: ID!) { pauseRun(id: $id) { id } }"
    assert await reader.reason(pause, id=run_id) == "PERMISSION_DENIED"
    assert await narrow.reason(RUN, id=run_id) == "PERMISSION_DENIED"
    assert await narrow.reason("{ messages { nodes { id } } }") == "PERMISSION_DENIED"
    assert (await narrow.data("{ workflows { nodes { name } } }"))["workflows"]["nodes"] == []
    assert await narrow.data('{ messages(filter: {recipient: "teacher"}) { nodes { id } } }')


async def test_credentials_are_required_everywhere(outside: GraphQLMesh) -> None:
    for key in ("", "wrong"):
        response = await outside.at(key).post("{ rooms { nodes { name } } }")
        assert response.status_code == 401
        assert "www-authenticate" in response.headers
        assert response.json()["errors"][0]["extensions"]["reason"] == "UNAUTHENTICATED"
        assert await status_of(outside.at(key)) == 401
    assert await status_of(outside.at(), subprotocols=None) == 400
    # A page of another site may connect only with a credential that it knows.
    encoded = base64.urlsafe_b64encode(b"key-of-ann").decode().rstrip("=")
    subprotocols = [PROTOCOL, f"trunkline.credential.{encoded}"]
    async with outside.at("").socket(subprotocols=subprotocols, origin="http://evil") as socket:
        await socket.start("{ rooms { endCursor } }")
        assert "data" in (await socket.frame())["payload"]
    assert await status_of(outside.at(), origin="http://evil") == 403


async def status_of(client: GraphQLClient, **options: Any) -> int:
    """Return the HTTP status that refuses a WebSocket."""
    with pytest.raises(InvalidStatus) as caught:
        await AsyncExitStack().enter_async_context(client.socket(**options))
    return int(caught.value.response.status_code)


LIMITS = {
    "depth": "{ messages { nodes {" + "replies { nodes { " * 5 + "id" + " } }" * 6 + " }",
    "cost": "{ messages(first: 50) { nodes { replies(first: 50) { nodes { id type text } } } } }",
    "number of aliases": "{"
    + " ".join(f'a{n}: room(name: "a") {{ name }}' for n in range(31))
    + "}",
    "number of aliases and repeated": "{ rooms { " + "endCursor " * 40 + "} }",
    "nested too deeply": "{ ...F0 } "
    + " ".join(f"fragment F{n} on Query {{ ...F{n + 1} }}" for n in range(80))
    + " fragment F80 on Query { rooms { endCursor } }",
    "more than 1000 tokens": "{" + "x " * 1001 + "}",
    "more than 50000 characters": "{ rooms { endCursor } } #" + "x" * 50_000,
}


@pytest.mark.parametrize("problem", LIMITS)
async def test_operations_have_limits(outside: GraphQLMesh, problem: str) -> None:
    error = await outside.at().refusal(LIMITS[problem])
    assert problem in error["message"]
    assert error["extensions"]["reason"] in ("GRAPHQL_LIMIT_EXCEEDED", "GRAPHQL_PARSE_FAILED")


async def test_the_cost_counts_variables_and_fragments(outside: GraphQLMesh) -> None:
    # Each fragment uses the next one twice: written out, they have 2^20 fields.
    doubling = " ".join(
        f"fragment F{n} on Query {{ ...F{n + 1} ... on Query {{ ...F{n + 1} }} }}"
        for n in range(20)
    )
    text = "{ ...F0 } " + doubling + " fragment F20 on Query { rooms { endCursor } }"
    assert "the cost of the operation is 32505856" in (await outside.at().refusal(text))["message"]
    query = """query($n: Int = 50) { messages(first: $n) { nodes {
      replies(first: $n) { nodes { id } } } } }"""
    assert await outside.at().reason(query) == "GRAPHQL_LIMIT_EXCEEDED"
    assert await outside.at().data(query, n=2)
    circle = "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }"
    assert await outside.at().reason(circle) == "GRAPHQL_VALIDATION_FAILED"


INVALID = {
    "{ rooms { nodes { none } } }": "GRAPHQL_VALIDATION_FAILED",
    "{ rooms": "GRAPHQL_PARSE_FAILED",
    '{ rooms(first: "x") { endCursor } }': "GRAPHQL_VALIDATION_FAILED",
    '{ messages(filter: {startTime: "soon"}) { endCursor } }': "GRAPHQL_VALIDATION_FAILED",
    "{ __schema { types { name } } }": "GRAPHQL_VALIDATION_FAILED",
    "{ messages(filter: {states: [LOST]}) { endCursor } }": "GRAPHQL_VALIDATION_FAILED",
    "subscription { messages { cursor } }": "INVALID_REQUEST",
    "fragment F on Query { rooms { endCursor } }": "INVALID_REQUEST",
    "{ rooms(first: 0) { endCursor } }": "INVALID_PARAMS",
    '{ run(id: "none") { id } }': "TASK_NOT_FOUND",
}


@pytest.mark.parametrize("query", INVALID)
async def test_what_is_wrong_has_a_reason(outside: GraphQLMesh, query: str) -> None:
    error = await outside.at().refusal(query)
    assert error["extensions"]["reason"] == INVALID[query], error
    assert "Did you mean" not in error["message"]


async def test_values_are_checked_as_elsewhere(outside: GraphQLMesh) -> None:
    ann = outside.at()
    wrong: Json
    for wrong in ({"data": [1]}, {"text": "x", "data": {}}, {"metadata": 3}, {"typeVersion": -1}):
        error = await ann.refusal(SEND, m={"recipient": "teacher", **wrong})
        assert error["extensions"]["reason"] == "INVALID_PARAMS", error
    for wrong in ({"text": 3}, {"priority": "URGENT"}, {"expireTime": "x"}, {"none": 1}):
        assert await ann.reason(SEND, m={"recipient": "teacher", **wrong}) == (
            "GRAPHQL_VALIDATION_FAILED"
        )
    after = 'subscription { messages(after: "x") { cursor } }'
    async with ann.events(after) as stream:
        (result,) = await read_to_end(stream)
    assert result["errors"][0]["extensions"]["violations"][0]["field"] == "after"
    for cursor in ("x", "1", "1-", f"1-{10**30}", "٣-٣"):
        async with ann.events(EVENTS, id="x", after=cursor) as stream:
            (result,) = await read_to_end(stream)
        assert result["errors"][0]["extensions"]["reason"] == "INVALID_PARAMS"


async def test_only_json_is_served_and_only_by_post(outside: GraphQLMesh) -> None:
    ann, client = outside.at(), outside.mesh.client
    body = '{"query": "{ rooms { endCursor } }"}'
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        headers = {**ann.headers, "content-type": content_type}
        response = await client.post(ann.url, content=body, headers=headers)
        assert response.status_code == 415
        assert "errors" in response.json()
    get = await client.get(
        ann.url, params={"query": "{ rooms { endCursor } }"}, headers=ann.headers
    )
    assert get.status_code == 405
    assert get.headers["allow"] == "POST"
    for wrong in ([{"query": "{ rooms { endCursor } }"}], 3, {"query": 3}, {"query": ""}):
        response = await client.post(ann.url, json=wrong, headers=ann.headers)
        assert response.status_code == 400
        assert response.json()["errors"][0]["extensions"]["reason"] == "INVALID_PARAMS"
    large = await ann.post("{ rooms { endCursor } } #" + "x" * 200_000)
    assert large.status_code == 413
    assert "errors" in large.json()
    elsewhere = await client.post(
        ann.url, json={"query": "{ a }"}, headers={**ann.headers, "host": "evil"}
    )
    assert elsewhere.status_code == 421


async def test_the_new_content_type_tells_refused_operations(outside: GraphQLMesh) -> None:
    accept = "application/graphql-response+json, application/json"
    good = await outside.at().post("{ rooms { endCursor } }", accept=accept)
    assert (good.status_code, good.headers["content-type"]) == (
        200,
        "application/graphql-response+json",
    )
    bad = await outside.at().post("{ none }", accept=accept)
    assert bad.status_code == 400
    assert "data" not in bad.json()
    partial = await outside.at().post('{ run(id: "x") { id } rooms { endCursor } }', accept=accept)
    assert partial.status_code == 200
    assert "errors" in partial.json()


async def test_a_socket_runs_operations_side_by_side_up_to_a_limit(outside: GraphQLMesh) -> None:
    async with outside.at().socket() as socket:
        for number in range(3):
            await socket.start(WATCH, room=f"side-{number}")
            assert (await socket.frame())["type"] == "next"
        tag = await socket.start("{ rooms { endCursor } }")
        refused = await socket.frame()
        assert (refused["id"], refused["type"]) == (tag, "error")
        assert refused["payload"][0]["extensions"]["reason"] == "GRAPHQL_LIMIT_EXCEEDED"
        await socket.send({"id": "1", "type": "complete"})
        await socket.send({"type": "ping"})
        assert (await socket.frame())["type"] == "pong"
        await socket.start("{ rooms { nodes { none } } }")
        wrong = await socket.frame()
        assert wrong["type"] == "error"
        assert wrong["payload"][0]["extensions"]["reason"] == "GRAPHQL_VALIDATION_FAILED"
        sent = await outside.send("room:side-2", "still here")
        assert (await next_message(socket))["id"] == sent["id"]


async def next_message(socket: GraphQLSocket) -> Json:
    while True:
        message: Json | None = (await socket.frame())["payload"]["data"]["messages"]["message"]
        if message is not None:
            return message


NONSENSE = ("[]", "3", "{", '{"type": 3}', '{"type": "x"}', '{"type": "subscribe"}', b"\x00")


@pytest.mark.parametrize("frame", NONSENSE, ids=str)
async def test_a_socket_is_closed_for_frames_that_are_none(
    outside: GraphQLMesh, frame: str | bytes
) -> None:
    async with outside.at().socket() as socket:
        await socket.send(frame)
        assert await close_code(socket) == 4400
    async with outside.at().socket() as socket:
        await socket.send({"id": "a", "type": "subscribe", "payload": [1]})
        assert (await socket.frame())["payload"][0]["extensions"]["reason"] == "INVALID_PARAMS"


async def test_each_field_that_is_asked_for_counts_as_a_request(outside: GraphQLMesh) -> None:
    client = outside.at("slow")
    error = await client.refusal(
        "{ a: rooms { endCursor } b: rooms { endCursor } "
        "c: rooms { endCursor } d: rooms { endCursor } }"
    )
    assert error["extensions"]["reason"] == "RESOURCE_EXHAUSTED"
    assert error["extensions"]["retryAfterSeconds"] > 100
    response = await client.post("{ rooms { endCursor } }")
    assert response.status_code == 429
    assert float(response.headers["retry-after"]) > 100


async def test_open_subscriptions_of_an_account_are_limited(outside: GraphQLMesh) -> None:
    async with outside.at("single").socket() as socket:
        first = await socket.start(WATCH, room="a")
        await socket.frame()
        await socket.start(WATCH, room="b")
        refused = await socket.frame()
        assert refused["payload"]["errors"][0]["extensions"]["reason"] == "RESOURCE_EXHAUSTED"
        assert (await socket.frame())["type"] == "complete"
        await socket.send({"id": first, "type": "complete"})
        async with asyncio.timeout(PATIENCE_S):
            while "errors" in await opened(socket):
                pass
    # The end of a connection ends its subscriptions, too.
    async with asyncio.timeout(PATIENCE_S), outside.at("single").socket() as socket:
        while "errors" in await opened(socket):
            pass


async def opened(socket: GraphQLSocket) -> Json:
    """Return the first result of a new subscription."""
    await socket.start(WATCH, room="c")
    payload: Json = (await socket.frame())["payload"]
    if "errors" in payload:
        assert (await socket.frame())["type"] == "complete"
    return payload


async def test_streams_end_with_their_credential_and_with_the_bridge(
    outside: GraphQLMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.05)
    client = outside.at("leaving")
    async with client.socket() as socket, client.events(WATCH, room="expiry") as stream:
        await socket.start(WATCH, room="expiry")
        await socket.frame()
        await anext(stream)
        write_keys(outside.keys, *(name for name in KEYS if name != "leaving"))
        (last,) = await read_to_end(stream)
        assert last["errors"][0]["extensions"]["reason"] == "UNAUTHENTICATED"
        assert await close_code(socket) == 1008
    async with outside.at().socket() as socket, outside.at().events(WATCH, room="x") as stream:
        await socket.start(WATCH, room="expiry")
        await socket.frame()
        await anext(stream)
        outside.mesh.bridge.abort_requests()
        (last,) = await read_to_end(stream)
        assert last["errors"][0]["extensions"]["reason"] == "UNAVAILABLE"
        assert await close_code(socket) == 1012


async def read_frames(socket: GraphQLSocket) -> None:
    while True:
        await socket.frame()


async def close_code(socket: GraphQLSocket) -> int:
    """Read to the end of a connection; return the code of its close frame."""
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(read_frames(socket), PATIENCE_S)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


async def test_spans_have_the_name_of_the_operation_and_no_variables(
    outside: GraphQLMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans_in(InMemorySpanExporter(), monkeypatch) as spans:
        query = "query Attic($name: String!) { room(name: $name) { name } }"
        await outside.at().data(query, name="very-secret")
        async with outside.at().socket() as socket:
            await socket.start(query, name="very-secret")
            await socket.frame()
            await socket.frame()
    named = [span for span in spans.get_finished_spans() if span.name == "graphql.query"]
    assert len(named) == 2
    for span in named:
        attributes = dict(span.attributes or {})
        assert attributes["graphql.operation.name"] == "Attic"
        assert "very-secret" not in str(attributes)


async def test_errors_are_in_the_span(
    outside: GraphQLMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans_in(InMemorySpanExporter(), monkeypatch) as spans:
        await outside.at().refusal('{ run(id: "none") { id } }')
    (span,) = [each for each in spans.get_finished_spans() if each.name == "graphql.query"]
    assert (span.attributes or {})["error.type"] == "TASK_NOT_FOUND"


async def test_a_query_has_a_time_limit_and_so_has_each_event(tmp_path: Path) -> None:
    settings = BridgeSettings(
        default_agent="teacher", graphql=GraphQLSettings(enabled=True, timeout_s=0.5)
    )
    async with open_bridged_mesh(tmp_path, settings) as mesh:
        await mesh.mesh.join(teacher)
        await join_messages(mesh.mesh)
        client = GraphQLClient(mesh.client, mesh.url)
        watch = """subscription { messages(filter: {type: "quiet"}) {
          message { text replies { nodes { id } } } } }"""
        async with client.events(watch) as stream:
            await anext(stream)
            request = f"mutation($m: MessageInput!) {{ request(message: $m) {{ {MESSAGE} }} }}"
            body = {"recipient": "teacher", "type": "quiet", "text": "no answer"}
            error = await client.refusal(request, m=body)
            assert error["extensions"]["reason"] == "DEADLINE_EXCEEDED"
            assert "no reply to message" in error["message"]
            await client.data(SEND, m={**body, "text": "late"})
            texts: list[str] = []
            while "late" not in texts:
                result = (await anext(stream)).response
                assert "errors" not in result
                message = result["data"]["messages"]["message"]
                texts += [message["text"]] if message else []


async def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path) as mesh:
        response = await mesh.client.post(f"{mesh.url}/graphql", json={"query": "{ a }"})
        assert response.status_code == 404
