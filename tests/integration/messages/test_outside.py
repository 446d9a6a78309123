"""Messages for callers outside: over HTTP, server-sent events, WebSockets and the client."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close

from harness.a2a.bridged_mesh import BridgedMesh, Event, Stream, open_bridged_mesh
from harness.a2a.caller_keys import key_headers, write_keys
from harness.agents.teacher import teacher
from harness.mesh.messages import join_messages
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.cutting_relay import open_relay
from trunkline import (
    Client,
    EvaluationRequest,
    EvaluationResult,
    SystemMessage,
)
from trunkline.core.settings import Settings
from trunkline.errors import (
    AgentCallError,
    AgentNotFoundError,
    EnvelopeNotFoundError,
    PeerRefusedError,
    PeerTimeoutError,
    QueueFullError,
)
from trunkline.observe.audit import audit_path, open_audit_log
from trunkline_bridge.callers import api_keys

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
UNCUT = 1 << 30
KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "reader": {"methods": ("read",)},
    "narrow": {"agents": ("teacher", "room:narrow")},
    "leaving": {},
}


@dataclass(frozen=True, slots=True)
class Outside:
    """A mesh with messages, and callers of it."""

    mesh: BridgedMesh
    keys: Path

    @property
    def url(self) -> str:
        return self.mesh.url

    async def post(
        self, path: str, body: object, key: str = "ann", **extra: str
    ) -> httpx2.Response:
        return await self.mesh.client.post(
            self.url + path, json=body, headers=key_headers(key) | extra
        )

    async def get(self, path: str, key: str = "ann") -> httpx2.Response:
        return await self.mesh.client.get(self.url + path, headers=key_headers(key))

    async def send(self, recipient: str, text: str, **fields: str) -> Json:
        """Send a text to a recipient; return the accepted message."""
        body = {"recipient": recipient, "type": "quiet", "text": text, **fields}
        response = await self.post("/messages", body)
        assert response.status_code == 200, response.text
        accepted: Json = response.json()["envelopes"][0]
        return accepted

    async def wait_for_state(self, message_id: str, state: str) -> Json:
        """Return a message when its delivery is in a state."""
        query = f"/messages:watch?envelopeId={message_id}&withDeliveries=true&afterPosition=0"
        async with self.watch(query) as events:
            async for event in events:
                for delivery in event.response.get("deliveries", ()):
                    if delivery["state"] == f"DELIVERY_STATE_{state}":
                        return event.response
        raise AssertionError("the stream ended")

    @asynccontextmanager
    async def watch(self, path: str, key: str = "ann", last: str = "") -> AsyncIterator[Stream]:
        resumed = {"Last-Event-ID": last} if last else {}
        async with self.mesh.client.stream(
            "GET", self.url + path, headers=key_headers(key) | resumed
        ) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def socket(
        self, room: str, query: str = "", key: str = "ann", **options: Any
    ) -> AsyncIterator[ClientConnection]:
        """Connect to a room."""
        url = f"{self.url.replace('http', 'ws', 1)}/messages/rooms/{room}/socket{query}"
        options = {"additional_headers": key_headers(key), "proxy": None, **options}
        async with connect(url, **options) as connection:
            yield connection

    @asynccontextmanager
    async def client(self, key: str = "ann", url: str = "") -> AsyncIterator[Client]:
        async with Client(url or self.url, key=f"key-of-{key}") as client:
            yield client


async def frame(connection: ClientConnection) -> Json:
    async with asyncio.timeout(PATIENCE_S):
        value: Json = json.loads(await connection.recv())
    return value


async def closing_of(connection: ClientConnection) -> Close:
    """Read to the end; return the close frame."""
    with pytest.raises(ConnectionClosed) as closed:
        await read_all(connection)
    assert closed.value.rcvd is not None
    return closed.value.rcvd


async def read_all(connection: ClientConnection) -> None:
    while True:
        await frame(connection)


async def next_event(events: Stream) -> Event:
    """Return the next event with a message."""
    while True:
        event = await anext(events)
        if event.kind != "position":
            return event


async def status_of(attempt: Any) -> int:
    """Return the HTTP status that refuses a WebSocket."""
    with pytest.raises(InvalidStatus) as caught:
        await AsyncExitStack().enter_async_context(attempt)
    return int(caught.value.response.status_code)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    folder = tmp_path_factory.mktemp("outside")
    keys = folder / "keys"
    write_keys(keys, KEYS)
    settings = Settings(default_agent="teacher", api_keys_file=keys)
    async with open_bridged_mesh(folder, settings) as mesh:
        await mesh.mesh.join(teacher)
        await join_messages(mesh.mesh, attempts=2)
        yield Outside(mesh, keys)


async def test_several_messages_are_accepted_together_or_not_at_all(outside: Outside) -> None:
    good = {"recipient": "teacher", "type": "quiet", "text": "one", "correlationId": "together"}
    accepted = await outside.post("/messages", {"envelopes": [good, {**good, "text": "two"}]})
    assert [e["envelope"]["text"] for e in accepted.json()["envelopes"]] == ["one", "two"]
    refused = await outside.post(
        "/messages", {"envelopes": [{**good, "text": "three"}, {**good, "recipient": "nobody"}]}
    )
    error = refused.json()["error"]
    assert (refused.status_code, error["status"]) == (404, "NOT_FOUND")
    assert error["details"][0]["metadata"]["agent"] == "nobody"
    page = (await outside.get("/messages?correlationId=together&pageSize=1")).json()
    assert page["envelopes"][0]["envelope"]["text"] == "two"
    token = page["nextPageToken"]
    rest = (
        await outside.get(f"/messages?correlationId=together&pageSize=1&pageToken={token}")
    ).json()
    assert rest["envelopes"][0]["envelope"]["text"] == "one"
    assert "nextPageToken" not in rest


async def test_a_wrong_request_is_refused_with_the_reason(outside: Outside) -> None:
    wrong: list[tuple[str, Json, int]] = [
        ("/messages", {}, 400),
        ("/messages", {"recipient": "teacher", "type": "quiet", "text": 5}, 400),
        ("/messages", {"envelopes": [], "agent": "teacher"}, 400),
        ("/messages", {"recipient": "teacher", "type": "quiet", "text": "x", "bogus": 1}, 400),
        ("/messages:request", {"recipient": "teacher", "text": "x", "bogus": 1}, 400),
        ("/messages", {"envelopes": [{"recipient": "teacher", "text": "x", "bogus": 1}]}, 400),
        ("/messages", {"envelopes": [], "bogus": 1}, 400),
        ("/messages/rooms/x:join", {"bogus": 1}, 400),
        ("/messages:replay", {}, 400),
        ("/messages:purge", {"filter": {}}, 400),
        ("/messages:purge", {"filter": {"room": "x", "sort": "quiet"}}, 400),
        ("/messages:purge", {"filter": {"room": "x"}, "dryRun": True}, 400),
        ("/messages:redrive", {"filter": {"sort": "quiet"}}, 400),
        ("/messages:redrive", {"filter": {"states": ["lost"]}}, 400),
        ("/messages/rooms/-bad-:join", {}, 400),
        ("/messages/rooms/x:join", {"member": ["a"]}, 400),
        ("/messages/rooms", {}, 405),
    ]
    for path, body, status in wrong:
        answer = await outside.post(path, body)
        assert answer.status_code == status, (path, body, answer.text)
        assert answer.json()["error"]["message"], path
    unknown = await outside.post("/messages", {"text": "x", "receiver": "teacher", "txt": 1})
    assert unknown.json()["error"]["message"].startswith("receiver: is unknown; there are: ")
    for path, status in (
        ("/messages?pageSize=9999", 400),
        ("/messages?states=lost", 400),
        ("/messages?bogus=1", 400),
        ("/messages?afterPosition=1", 400),
        ("/messages:watch?rom=x", 400),
        ("/messages/rooms/x?bogus=", 400),
        ("/messages:watch?afterPosition=-1", 400),
        ("/messages/none", 404),
        ("/messages/a/b", 404),
    ):
        assert (await outside.get(path)).status_code == status, path


async def test_messages_are_visible_to_their_account_only(outside: Outside) -> None:
    sent = await outside.send("teacher", "private")
    message_id = sent["envelope"]["envelopeId"]
    assert (await outside.get(f"/messages/{message_id}", "bob")).status_code == 404
    listed = (await outside.get("/messages", "bob")).json()
    assert "envelopes" not in listed
    assert (await outside.mesh.client.get(f"{outside.url}/messages")).status_code == 401


async def test_credentials_limit_what_may_be_done_with_messages(outside: Outside) -> None:
    to_teacher = {"recipient": "teacher", "type": "quiet", "text": "x"}
    assert (await outside.post("/messages", to_teacher, "reader")).status_code == 403
    assert (await outside.get("/messages", "reader")).status_code == 200
    assert (await outside.post("/messages/rooms/x:join", {}, "reader")).status_code == 403
    assert (await outside.post("/messages", to_teacher, "narrow")).status_code == 200
    for recipient in ("all", "room:other", "user:ann"):
        body = {**to_teacher, "recipient": recipient}
        refused = await outside.post("/messages", body, "narrow")
        assert refused.status_code == 403, recipient
    assert (await outside.get("/messages", "narrow")).status_code == 403
    assert (await outside.get("/messages?recipient=teacher", "narrow")).status_code == 200
    assert (await outside.get("/messages?room=narrow", "narrow")).status_code == 200
    secret = await outside.send("user:ann", "for ann")
    path = f"/messages/{secret['envelope']['envelopeId']}"
    assert (await outside.get(path, "narrow")).status_code == 403
    assert await status_of(outside.socket("x", key="reader")) == 403
    assert await status_of(outside.socket("other", key="narrow")) == 403


async def test_a_watch_resumes_after_the_last_event(outside: Outside) -> None:
    path = "/messages:watch?correlationId=watched"
    async with outside.watch(path) as events:
        first = await anext(events)
        assert (first.kind, first.response) == ("position", {})
        await outside.send("teacher", "one", correlationId="watched")
        event = await next_event(events)
        assert event.response["envelope"]["text"] == "one"
    await outside.send("teacher", "two", correlationId="watched")
    async with outside.watch(path, last=event.id) as events:
        assert (await next_event(events)).response["envelope"]["text"] == "two"
    async with outside.watch(path, last=first.id) as events:
        texts = [(await next_event(events)).response["envelope"]["text"] for _ in range(2)]
    assert texts == ["one", "two"]


async def test_dead_letters_are_listed_and_delivered_again(outside: Outside) -> None:
    body = {
        "recipient": "teacher",
        "type": "evaluation_request",
        "data": {"proposal": "p", "context": "fail"},
    }
    sent = (await outside.post("/messages", body)).json()["envelopes"][0]
    message_id = sent["envelope"]["envelopeId"]
    dead = await outside.wait_for_state(message_id, "DEAD")
    assert dead["deliveries"][0]["attemptCount"] == 2
    query = f"/messages?states=dead&envelopeId={message_id}"
    listed = (await outside.get(query)).json()["envelopes"]
    assert [entry["envelope"]["envelopeId"] for entry in listed] == [message_id]
    condition = {"filter": {"envelopeId": message_id, "states": ["dead"]}}
    redriven = await outside.post("/messages:redrive", condition)
    assert redriven.json() == {"deliveries": "1"}
    await outside.wait_for_state(message_id, "DEAD")
    dry = (await outside.post("/messages:replay", {**condition, "dryRun": True})).json()
    assert dry == {"envelopeIds": [message_id]}
    replayed = await outside.post("/messages:replay", {**condition, "recipient": "user:ann"})
    (new_id,) = replayed.json()["envelopeIds"]
    new = (await outside.get(f"/messages/{new_id}")).json()["envelope"]
    assert (new["replayOf"], new["recipient"]) == (message_id, "user:ann")
    purged = (await outside.post("/messages:purge", condition)).json()
    assert purged == {"envelopes": "1"}
    assert (await outside.get(f"/messages/{message_id}")).status_code == 404


async def test_rooms_have_members_and_a_history(outside: Outside) -> None:
    joined = (await outside.post("/messages/rooms/class:join", {"member": "teacher"})).json()
    assert (joined["name"], joined["members"]) == ("class", ["teacher"])
    await outside.send("room:class", "hello")
    assert (await outside.get("/messages/rooms/class")).json()["members"] == ["teacher"]
    rooms = (await outside.get("/messages/rooms")).json()["rooms"]
    assert "class" in [room["name"] for room in rooms]
    history = (await outside.get("/messages/rooms/class/messages")).json()["envelopes"]
    assert [entry["envelope"]["type"] for entry in history] == ["quiet", "system"]
    left = (await outside.post("/messages/rooms/class:leave", {"member": "teacher"})).json()
    assert left.get("members", []) == []


async def test_joins_and_leaves_are_audited_with_their_caller(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    write_keys(keys, {"ann": {}})
    settings = Settings(default_agent="teacher", api_keys_file=keys)
    audited = Settings(data_dir=tmp_path)
    async with (
        open_audit_log(audited, process="bridge") as audit,
        open_bridged_mesh(tmp_path, settings, audit=audit) as mesh,
    ):
        await mesh.mesh.join(teacher)
        await join_messages(mesh.mesh)
        outside = Outside(mesh, keys)
        await outside.post("/messages/rooms/den:join", {"member": "teacher"})
        await outside.post("/messages/rooms/den:leave", {"member": "teacher"})
        async with outside.socket("den") as ann:
            await frame(ann)
            await ann.send('{"leave": {}}')
            await closing_of(ann)
    text = await asyncio.to_thread(audit_path(audited).read_text)
    records = list(map(json.loads, text.splitlines()))
    acts = [
        (record["action"], record["object"])
        for record in records
        if record["actor"].get("name") == "ann" and record["action"].startswith("room.")
    ]
    assert acts[:3] == [
        ("room.join", {"room": "den", "agent": "teacher"}),
        ("room.leave", {"room": "den", "agent": "teacher"}),
        ("room.join", {"room": "den"}),
    ]
    assert ("room.leave", {"room": "den"}) in acts[3:]


async def test_a_participant_joins_a_room_by_websocket(outside: Outside) -> None:
    async with outside.socket("ws") as ann:
        joined = (await frame(ann))["joined"]
        assert (joined["room"], joined["membership"]) == ("ws", "connection")
        assert (await outside.get("/messages/rooms/ws")).json()["members"] == ["user:ann"]
        await ann.send(json.dumps({"send": {"type": "note", "text": "hi"}, "id": "1"}))
        frames = [await frame(ann), await frame(ann)]
        accepted = next(f for f in frames if "accepted" in f)
        message = next(f["message"] for f in frames if "message" in f)
        assert (accepted["id"], accepted["accepted"]["position"]) == ("1", message["position"])
        assert message["envelope"]["sender"] == "user:ann"
        await ann.send(json.dumps({"ping": "a"}))
        assert await frame(ann) == {"pong": "a"}
        for wrong in ("[]", "{", '{"what": 1}', '{"send": {"text": 1}}', '{"ack": -1}'):
            await ann.send(wrong)
            assert (await frame(ann))["error"]["code"] == 400, wrong
        await ann.send('{"leave": {}}')
        close = await closing_of(ann)
        assert (close.code, close.reason) == (1000, "left the room")
    async with outside.socket("ws", f"?after={joined['position']}&membership=none") as again:
        await frame(again)
        assert (await frame(again))["message"]["envelope"]["text"] == "hi"


async def test_frames_of_a_room_continue_traces(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_connection, of_the_message = "a" * 32, "c" * 32
    parent = f"00-{of_the_connection}-{'b' * 16}-01"
    extra = key_headers("ann") | {"traceparent": parent}
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        async with outside.socket("traced", additional_headers=extra) as ann:
            await frame(ann)
            own = {"traceparent": f"00-{of_the_message}-{'d' * 16}-01"}
            for fields in ({"recipient": "broadcast"}, own):
                message = {"type": "note", "text": "hi", **fields}
                await ann.send(json.dumps({"send": message}))
                answers = [await frame(ann), await frame(ann)]
                accepted = next(f["accepted"]["envelope"] for f in answers if "accepted" in f)
                assert accepted["room"] == "traced"
            await ann.send('{"leave": {}}')
            await closing_of(ann)
    found = {
        (span.name, f"{span.context.trace_id:032x}"): span for span in memory.get_finished_spans()
    }
    for trace, parent_id in ((of_the_connection, "b" * 16), (of_the_message, "d" * 16)):
        received = found["messages.send", trace]
        assert received.parent is not None
        assert f"{received.parent.span_id:016x}" == parent_id
    # The message itself, which the recipients' work continues, is in the trace of its frame.
    assert {("send broadcast", of_the_connection), ("send room", of_the_message)} <= set(found)
    assert {("messages.join", of_the_connection), ("messages.leave", of_the_connection)} <= set(
        found
    )


async def test_membership_ends_with_the_last_connection_unless_it_lasts(outside: Outside) -> None:
    async def members() -> list[str]:
        return list((await outside.get("/messages/rooms/life")).json().get("members", []))

    async with outside.client() as client, outside.socket("life") as one:
        position = (await frame(one))["joined"]["position"]
        left = client.messages(room="life", type="system", after=position)
        async with outside.socket("life") as two:
            await frame(two)
        assert await members() == ["user:ann"]
        await one.close()
        notice = (await anext(left)).payload
        assert isinstance(notice, SystemMessage)
        assert (notice.event, notice.member) == ("leave", "user:ann")
        await left.aclose()
    assert await members() == []
    async with outside.socket("life", "?membership=lasting") as one:
        await frame(one)
    assert await members() == ["user:ann"]


async def test_a_window_holds_messages_back_until_they_are_acknowledged(outside: Outside) -> None:
    for number in range(4):
        await outside.send("room:window", f"text {number}")
    async with outside.socket("window", "?after=0&window=2&membership=none") as reader:
        await frame(reader)
        messages = [(await frame(reader))["message"] for _ in range(2)]
        # The pong comes next, so nothing was sent beyond the window.
        await reader.send('{"ping": "b"}')
        assert await frame(reader) == {"pong": "b"}
        await reader.send(json.dumps({"ack": messages[-1]["position"]}))
        texts = [(await frame(reader))["message"]["envelope"]["text"] for _ in range(2)]
    assert texts == ["text 2", "text 3"]


async def test_a_browser_connects_with_a_credential_as_subprotocol(outside: Outside) -> None:
    encoded = base64.urlsafe_b64encode(b"key-of-ann").decode().rstrip("=")
    options: Json = {
        "additional_headers": {},
        "origin": "https://elsewhere.example",
        "subprotocols": ["trunkline.room.v1", f"trunkline.credential.{encoded}"],
    }
    async with outside.socket("browser", **options) as page:
        assert page.subprotocol == "trunkline.room.v1"
        await frame(page)
    wrong = options | {"subprotocols": ["trunkline.room.v1", "trunkline.credential.eA"]}
    assert await status_of(outside.socket("browser", **wrong)) == 401
    assert await status_of(outside.socket("browser", additional_headers={})) == 401
    without = {"origin": "https://elsewhere.example"}
    assert await status_of(outside.socket("browser", **without)) == 403
    same = {"origin": outside.url}
    async with outside.socket("browser", **same) as page:
        await frame(page)


async def test_a_websocket_elsewhere_or_with_wrong_parameters_is_refused(outside: Outside) -> None:
    base = outside.url.replace("http", "ws", 1)
    for path, status in (
        ("/messages/rooms/x/socket?membership=maybe", 400),
        ("/messages/rooms/x/socket?window=1e9", 400),
        ("/messages/rooms/x/socket?token=secret", 400),
        ("/messages/rooms/-x/socket", 400),
        ("/agents/teacher", 404),
        ("/messages", 404),
    ):
        attempt = connect(base + path, additional_headers=key_headers("ann"), proxy=None)
        assert await status_of(attempt) == status, path
    foreign = connect(
        f"{base}/messages/rooms/x/socket",
        additional_headers=key_headers("ann") | {"Host": "evil.example"},
        proxy=None,
    )
    assert await status_of(foreign) in (400, 421)


async def test_frames_that_are_too_large_or_binary_close_the_connection(outside: Outside) -> None:
    for content, code in (("x" * 600_000, 1009), (b"binary", 1003)):
        async with outside.socket("large") as reader:
            await frame(reader)
            await reader.send(content)
            close = await closing_of(reader)
            assert close.code == code


async def test_streams_end_when_their_credential_is_refused(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.05)
    async with (
        outside.socket("expiry", key="leaving") as reader,
        outside.watch("/messages:watch?room=expiry", "leaving") as events,
    ):
        await frame(reader)
        await anext(events)
        write_keys(outside.keys, {name: KEYS[name] for name in KEYS if name != "leaving"})
        last = [event async for event in events][-1]
        assert (last.kind, last.response["error"]["code"]) == ("error", 401)
        close = await closing_of(reader)
        assert close.code == 1008
        assert "no longer accepted" in close.reason


async def test_the_client_sends_requests_and_listens(outside: Outside) -> None:
    async with outside.client() as client:
        request = EvaluationRequest(proposal="a draft")
        reply = await client.request("teacher", request)
        assert isinstance(reply.payload, EvaluationResult)
        assert (reply.payload.score, reply.sender) == (80, "teacher")
        sent = await client.send("teacher", "hello", type="quiet", id="once", priority="high")
        again = await client.send("teacher", "hello", type="quiet", id="once", priority="high")
        assert (sent.id, sent.priority, sent) == ("once", "high", again)
        assert await client.message("once") == sent
        assert (await client.join("den")).members == ("user:ann",)
        await client.publish("den", "news", type="quiet")
        assert [m.payload async for m in client.history(room="den", type="quiet")] == ["news"]
        assert "den" in [room.name for room in await client.rooms()]
        assert (await client.leave("den")).members == ()
        with pytest.raises(AgentNotFoundError, match="nobody"):
            await client.send("nobody", "x")
        with pytest.raises(EnvelopeNotFoundError):
            await client.message("none")
        with pytest.raises(AgentCallError, match="agent 'teacher' sent no reply: message q was"):
            await client.request("teacher", "x", type="quiet", id="q")
        failure = r"^agent 'teacher' failed: RuntimeError"
        with pytest.raises(AgentCallError, match=failure) as dead:
            await client.request("teacher", EvaluationRequest(proposal="p", context="fail"))
        assert (dead.value.agent, dead.value.state) == ("teacher", "failed")
        assert dead.value.task_id
        # A user may answer later.
        with pytest.raises(
            PeerTimeoutError,
            match=r"^user:bob did not answer in time: no reply to message late in 0\.\d+ s$",
        ):
            await client.request("user:bob", "x", type="quiet", id="late", timeout_s=0.3)
    async with outside.client("nobody") as client:
        with pytest.raises(PeerRefusedError, match="pass `token`, `key`"):
            await client.send("teacher", "x")


async def test_the_client_tells_that_the_queue_is_full(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path, Settings(default_agent="teacher")) as mesh:
        host = await mesh.mesh.join(teacher)
        await join_messages(mesh.mesh, queue_limit=1)
        host.withdraw_agents()
        await mesh.mesh.directory.wait_until(
            lambda known: "teacher" not in known.list_agents(), timeout_s=PATIENCE_S
        )
        async with Client(mesh.url) as client:
            await client.send("teacher", "x", type="quiet")
            with pytest.raises(QueueFullError, match=r"^1 deliveries wait already; send the"):
                await client.send("teacher", "y", type="quiet")


async def test_the_client_listens_on_over_cut_connections(outside: Outside) -> None:
    budgets = itertools.chain([UNCUT], itertools.repeat(3000))
    async with open_relay(budgets) as relay:
        relay.target = outside.url.rpartition("/")[2]
        async with outside.client(url=f"http://{relay.address}") as client:
            for number in range(12):
                await outside.send("room:cut", f"text {number}")
            stream = client.messages(room="cut", after="0")
            async with asyncio.timeout(PATIENCE_S):
                texts = [(await anext(stream)).payload for _ in range(12)]
            await stream.aclose()
        assert texts == [f"text {number}" for number in range(12)]
        assert relay.cuts > 0
