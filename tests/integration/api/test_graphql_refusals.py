"""Refusals of GraphQL: credentials, limits and faults; and the ends of its streams."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.caller_keys import write_keys
from harness.a2a.graphql_client import PROTOCOL, GraphQLClient, GraphQLSocket, Json
from harness.a2a.graphql_mesh import (
    EVENTS,
    KEYS,
    MESSAGE,
    RUN,
    SEND,
    START,
    WATCH,
    GraphQLMesh,
    open_graphql_mesh,
    read_to_end,
)
from harness.agents.teacher import teacher
from harness.mesh.messages import join_messages
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.core.settings import GraphQLSettings, Settings
from trunkline_bridge.api.graphql import sockets
from trunkline_bridge.callers import api_keys

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GraphQLMesh]:
    async with open_graphql_mesh(tmp_path_factory.mktemp("graphql")) as mesh:
        yield mesh


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


async def test_a_socket_whose_client_does_not_read_is_disconnected(
    outside: GraphQLMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "WRITE_TIMEOUT_S", 0.5)
    room, text = "room:unread", 90_000 * "x"
    copies = " ".join(f"copy{number}: text" for number in range(20))
    watch = f"""subscription {{ messages(filter: {{room: "unread"}}) {{
      message {{ {copies} }} }} }}"""
    bridge = outside.mesh.bridge
    before = bridge.in_flight_count
    async with outside.at().socket(max_queue=1, max_size=None) as socket:
        await socket.start(watch)
        assert (await socket.frame())["type"] == "next"
        assert bridge.in_flight_count > before
        count = 0
        async with asyncio.timeout(PATIENCE_S):
            # More than the buffers of both sides: the bridge keeps no more of it.
            while bridge.in_flight_count > before:
                await outside.send(room, text if count < 10 else "x")
                count += 1
        with pytest.raises(ConnectionClosed) as closed:
            await read_all(socket)
        # The buffers are full, so that the client gets no reason.
        assert closed.value.rcvd is None


async def read_all(socket: GraphQLSocket) -> None:
    while True:
        await socket.frame()


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
        write_keys(outside.keys, {name: KEYS[name] for name in KEYS if name != "leaving"})
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
    settings = Settings(
        default_agent="teacher", graphql=GraphQLSettings(enabled=True, timeout_s=2.0)
    )
    async with open_bridged_mesh(tmp_path, settings) as mesh:
        await mesh.mesh.join(teacher)
        await join_messages(mesh.mesh)
        client = GraphQLClient(mesh.client, mesh.url)
        watch = """subscription { messages(filter: {type: "quiet"}) {
          message { text replies { nodes { id } } } } }"""
        async with client.events(watch) as stream:
            await anext(stream)
            request = f"""mutation($m: MessageInput!, $s: Float) {{
              request(message: $m, timeoutSeconds: $s) {{ {MESSAGE} }} }}"""
            body = {"recipient": "user:bob", "type": "quiet", "text": "no answer"}
            error = await client.refusal(request, m=body, s=0.1)
            assert "no reply to message" in error["message"]
            error = await client.refusal(request, m=body)
            assert error["extensions"]["reason"] == "DEADLINE_EXCEEDED"
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
