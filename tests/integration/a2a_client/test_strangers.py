"""`trunkline.Client` with agents that are not Trunkline's: no resume, no streams, and faults."""

import asyncio
import json
from typing import Any

import pytest

from harness.remote.scripted_agent import (
    ScriptedAgent,
    artifact,
    chunk,
    error,
    head,
    http,
    raw,
    result,
    scripted_agent,
    silence,
    status,
    stream,
    task,
)
from trunkline import Client, ClientAnswer, ClientEvent, TaskState, TextChunk
from trunkline.a2a_client import client_turn
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.errors import (
    LimitExceededError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
)

STREAM = "SendStreamingMessage"
LOST = raw(head("text/event-stream", more="content-length: 999\r\n"))


async def read(agent: ScriptedAgent, **options: Any) -> tuple[list[ClientEvent], ClientAnswer]:
    async with Client(agent.url, **options) as client:
        *events, answer = [event async for event in client.stream("hello")]
    assert isinstance(answer, ClientAnswer)
    return events, answer


def chunks(events: list[ClientEvent]) -> list[str]:
    assert not any(isinstance(event, TextChunk) and event.replaces for event in events)
    return [event.text for event in events if isinstance(event, TextChunk)]


async def test_without_event_ids_the_missing_text_is_read_from_a_snapshot(
    scripted: ScriptedAgent,
) -> None:
    scripted.on(STREAM, stream(task(), chunk("one "), cut=True))
    known = task(artifacts=[artifact("one two ")])
    rest = stream(known, chunk("three", append=True), status("COMPLETED"))
    scripted.on("SubscribeToTask", rest)
    whole = artifact("one two three")
    scripted.on("GetTask", result(task("COMPLETED", artifacts=[whole])["task"]))
    events, answer = await read(scripted)
    assert chunks(events) == ["one ", "two ", "three"]
    assert answer.text == "one two three"
    assert all(getattr(event, "cursor", "") == "" for event in events)


async def test_an_agent_that_cannot_stream_a_running_task_is_polled(
    scripted: ScriptedAgent,
) -> None:
    scripted.on(STREAM, stream(task(), chunk("one "), cut=True))
    scripted.on(
        "GetTask",
        result(task(artifacts=[artifact("one two ")])["task"]),
        result(task("COMPLETED", artifacts=[artifact("one two three")])["task"]),
    )
    events, answer = await read(scripted)
    assert chunks(events) == ["one ", "two ", "three"]
    assert answer.state is TaskState.COMPLETED


async def test_an_agent_without_streams_is_asked_and_polled() -> None:
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result(task()))
        agent.on("GetTask", result(task("COMPLETED", artifacts=[artifact("all")])["task"]))
        events, answer = await read(agent)
    assert (chunks(events), answer.text) == (["all"], "all")


async def test_a_message_that_may_have_arrived_is_not_sent_again(scripted: ScriptedAgent) -> None:
    scripted.on(STREAM, LOST)
    with pytest.raises(PeerUnavailableError, match="isn't sent again"):
        await read(scripted)
    assert len(scripted.find_requests(STREAM)) == 1


async def test_with_the_resume_extension_it_is_sent_again_with_the_same_id() -> None:
    async with scripted_agent(resumes=RESUME_EXTENSION) as agent:
        agent.on(STREAM, LOST, stream(task(), chunk("one"), status("COMPLETED"), ids=True))
        events, answer = await read(agent)
        requests = agent.find_requests(STREAM)
    assert (chunks(events), answer.text) == (["one"], "one")
    first, second = (request.params["message"]["messageId"] for request in requests)
    assert first == second
    assert requests[0].headers["a2a-extensions"] == RESUME_EXTENSION


async def test_an_expired_cursor_falls_back_to_a_snapshot() -> None:
    async with scripted_agent(resumes=RESUME_EXTENSION) as agent:
        known = task("COMPLETED", artifacts=[artifact("one two")])
        agent.on("SubscribeToTask", error(-32602, "events are gone"), error(-32004))
        agent.on("GetTask", result(known["task"]))
        async with Client(agent.url) as client:
            events = [event async for event in client.resume("t-1", after="3.0")]
    texts = [(event.text, event.replaces) for event in events if isinstance(event, TextChunk)]
    assert texts == [("one two", True)]
    assert isinstance(events[-1], ClientAnswer)


async def test_a_silent_agent_ends_the_turn(scripted: ScriptedAgent) -> None:
    scripted.on(STREAM, stream(task(), then=asyncio.Event()))
    with pytest.raises(PeerTimeoutError, match=r"nothing came for 0\.2 s; task t-1 may still run"):
        await read(scripted, idle_s=0.2)


async def test_a_turn_is_given_up_after_its_timeout(
    scripted: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_turn, "_TIMEOUT_GRACE_S", 0.1)
    scripted.on(STREAM, silence)
    async with Client(scripted.url) as client:
        with pytest.raises(PeerTimeoutError, match=r"did not end within 0\.1 s"):
            await client.ask("hello", timeout_s=0.1)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (http("401 Unauthorized"), PeerRefusedError, "pass `token`, `key` or `certificate`"),
        (error(-32001), TaskNotFoundError, "no task"),
        (error(-32603, "broken"), PeerRefusedError, "broken"),
        (http("200 OK", "hello"), PeerProtocolError, "broke the protocol"),
    ],
)
async def test_refusals_are_errors_of_the_taxonomy(
    scripted: ScriptedAgent, answer: Any, kind: type[Exception], text: str
) -> None:
    scripted.on("GetTask", answer)
    async with Client(scripted.url, token="t", headers={"X-Team": "blue"}) as client:
        with pytest.raises(kind, match=text):
            await client.get("t-1")
    headers = scripted.find_requests("GetTask")[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer t", "blue")


async def test_a_full_agent_is_asked_again_unless_it_takes_too_long(
    scripted: ScriptedAgent,
) -> None:
    limit = {"limit": "the budget is used up", "retryAfterS": "50"}
    body = json.dumps({"error": {"code": -32000, "data": [{"metadata": limit}]}})
    busy = http("429 Too Many Requests", body, more="retry-after: 0\r\n")
    spent = http("429 Too Many Requests", body, more="retry-after: 50\r\n")
    answers = stream(task(), chunk("one"), status("COMPLETED"))
    scripted.on(STREAM, busy, answers, spent)
    async with Client(scripted.url) as client:
        assert (await client.ask("hello")).text == "one"
        with pytest.raises(LimitExceededError, match="used up; try again in 50 s"):
            await client.ask("hello")


async def test_a_read_is_tried_again_when_its_connection_breaks(scripted: ScriptedAgent) -> None:
    broken = raw(head("application/json", more="content-length: 999\r\n"), b"{")
    scripted.on("GetTask", broken, result(task("COMPLETED")["task"]))
    async with Client(scripted.url) as client:
        assert (await client.get("t-1")).state is TaskState.COMPLETED
    assert len(scripted.find_requests("GetTask")) == 2


async def test_a_task_of_a_list_that_cannot_be_used_costs_only_itself(
    scripted: ScriptedAgent, caplog: pytest.LogCaptureFixture
) -> None:
    good = task("COMPLETED")["task"]
    bad = [None, 7, {}, {"id": "x"}, {"id": "x", "status": {"state": "ASLEEP"}}]
    scripted.on("ListTasks", result({"tasks": [*bad, good], "totalSize": 6}))
    async with Client(scripted.url) as client:
        assert [found.task_id async for found in client.list()] == ["t-1"]
    left_out = [each.__dict__ for each in caplog.records if each.message == "remote.left_out"]
    assert {record["member"] for record in left_out} <= {f"tasks[{n}]" for n in range(5)}
    assert {record["problem"] for record in left_out} == {
        "it is no object",
        "it has no id",
        "it has no status.state",
        "A2A has no state 'ASLEEP'",
    }
