"""GraphQL for messages, rooms, workflows and runs: a real mesh, HTTP, SSE and WebSockets."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.graphql_client import GraphQLClient, Json
from harness.a2a.graphql_mesh import (
    EVENTS,
    MESSAGE,
    RUN,
    WATCH,
    GraphQLMesh,
    open_graphql_mesh,
    read_to_end,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GraphQLMesh]:
    async with open_graphql_mesh(tmp_path_factory.mktemp("graphql")) as mesh:
        yield mesh


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


async def test_the_data_of_a_message_is_exact(outside: GraphQLMesh) -> None:
    data = {"z": 9007199254740993, "whole": 5.0, "empty": {}, "none": None, "a": [2**64 + 1, []]}
    send = "mutation($m: MessageInput!) { sendMessage(message: $m) { id } }"
    body = {"recipient": "teacher", "type": "quiet", "data": data}
    sent = (await outside.at().data(send, m=body))["sendMessage"]
    read = "query($id: ID!) { message(id: $id) { data } }"
    found = (await outside.at().data(read, id=sent["id"]))["message"]
    assert json.dumps(found["data"]) == json.dumps(data)


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
    # A reader that was cut off continues behind its last event.
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
    reasons = {await bob.reason(RUN, id=run_id)}
    for act in ("pauseRun", "resumeRun", "cancelRun"):
        reasons.add(
            await bob.reason(f"mutation($id: ID!) {{ {act}(id: $id) {{ id }} }}", id=run_id)
        )
    assert reasons == {"TASK_NOT_FOUND"}
    assert (await bob.data('{ runs(workflow: "flow") { nodes { id } } }'))["runs"]["nodes"] == []
    async with bob.events(EVENTS, id=run_id) as stream:
        (result,) = await read_to_end(stream)
    assert result["errors"][0]["extensions"]["reason"] == "TASK_NOT_FOUND"
