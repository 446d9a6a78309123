"""What A2A's operations promise, the same in every version and over every binding."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.grpc_client import GrpcMesh
from harness.a2a.protocol_variants import (
    SPOKEN,
    ProtocolVariant,
    RefusedError,
    SeenTask,
    find_variant,
    open_variants,
)
from harness.agents.partner_agent import partner
from harness.mesh.small_mesh import PATIENCE_S
from trunkline_bridge.protocol import RESUME_EXTENSION

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESUME = {"A2A-Extensions": RESUME_EXTENSION}
NEWEST = [spoken for spoken in SPOKEN if spoken[0] == "1.0"]
# Those whose messages have ids.
WITH_IDS = [spoken for spoken in SPOKEN if spoken[0] != "0.1"]
PDF = {
    "1.0": {"raw": "AAEC", "mediaType": "application/pdf"},
    "0.3": {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "application/pdf"}},
    "0.3 proto": {"file": {"fileWithBytes": "AAEC", "mimeType": "application/pdf"}},
    "0.1": {"type": "file", "file": {"bytes": "AAEC", "mimeType": "application/pdf"}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    async with open_variants(tmp_path_factory.mktemp("semantics"), partner) as mesh:
        yield mesh


def name_of(spoken: tuple[str, type[ProtocolVariant]]) -> str:
    return f"{spoken[0]} {spoken[1].binding}"


@pytest.fixture(params=SPOKEN, ids=name_of)
def wire(mesh: GrpcMesh, request: pytest.FixtureRequest) -> ProtocolVariant:
    return find_variant(mesh, request.param)


def only(*spoken: tuple[str, type[ProtocolVariant]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wire", spoken, indirect=True, ids=name_of)


async def rest(events: AsyncIterator[SeenTask]) -> list[SeenTask]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in events]


async def until_state(events: AsyncIterator[SeenTask], state: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if event.state == state:
                return
    raise AssertionError(f"it ended without {state}")


def at_login(wire: ProtocolVariant) -> str:
    """The state of a task that needs credentials; v0.1 has none for that."""
    return "input-required" if wire.version == "0.1" else "auth-required"


# Turns.


async def test_a_blocking_message_is_answered_at_a_question_and_at_a_login(
    wire: ProtocolVariant,
) -> None:
    asked = await wire.send("ask who?")
    assert (asked.state, asked.said) == ("input-required", "who?")
    login = await wire.send("login first", task=asked.task)
    assert (login.task, login.state, login.said) == (asked.task, at_login(wire), "first")
    again = await wire.send("login again", task=asked.task)
    assert (again.state, again.said) == (at_login(wire), "again")
    done = await wire.send("done", task=asked.task, history=10)
    assert (done.state, done.text) == ("completed", "turn 4: done")
    assert [said for said in done.history if said.startswith(("ask", "login", "done"))] == [
        "ask who?",
        "login first",
        "login again",
        "done",
    ]


async def test_a_stream_ends_at_a_question(wire: ProtocolVariant) -> None:
    events = await wire.streamed("ask who?")
    assert (events[-1].state, events[-1].said) == ("input-required", "who?")
    task = events[0].task
    events = await wire.streamed("Ada", task=task)
    assert (events[0].task, events[-1].state) == (task, "completed")


@only(*WITH_IDS)
async def test_a_stream_stays_open_at_a_login_and_sees_the_next_turn(wire: ProtocolVariant) -> None:
    async with wire.stream("login first") as events:
        task = (await anext(events)).task
        await until_state(events, "auth-required")
        done = await wire.send("done", task=task)
        assert done.state == "completed"
        seen = await rest(events)
    assert "".join(event.text for event in seen if event.kind == "artifact") == "turn 2: done"
    assert seen[-1].state == "completed"


@only(*NEWEST)
async def test_a_subscription_stays_open_at_a_question(wire: ProtocolVariant) -> None:
    asked = await wire.send("ask who?")
    async with wire.subscribe(asked.task) as events:
        assert (await anext(events)).state == "input-required"
        await wire.send("Ada", task=asked.task)
        assert (await rest(events))[-1].state == "completed"


@only(*(spoken for spoken in SPOKEN if spoken not in NEWEST))
async def test_before_v1_0_a_subscription_ends_with_the_turn(wire: ProtocolVariant) -> None:
    asked = await wire.send("ask who?")
    async with wire.subscribe(asked.task) as events:
        last = (await rest(events))[-1]
    assert (last.state, last.is_final) == ("input-required", True)
    await wire.send("Ada", task=asked.task)
    async with wire.subscribe(asked.task) as events:
        last = (await rest(events))[-1]
    assert (last.state, last.is_final) == ("completed", True)


async def test_readers_over_all_wires_see_the_same_in_the_same_order(mesh: GrpcMesh) -> None:
    waiting = await find_variant(mesh, SPOKEN[0]).send("login first")
    seen: dict[str, list[str]] = {}

    async def read(wire: ProtocolVariant, is_there: asyncio.Event) -> None:
        async with wire.subscribe(waiting.task) as events:
            assert (await anext(events)).state == "auth-required"
            is_there.set()
            updates = await rest(events)
        texts = "".join(event.text for event in updates if event.kind == "artifact")
        states = [event.state for event in updates if event.kind == "status"]
        seen[f"{wire.version} {wire.binding}"] = [texts, *states]

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        # To v0.1 a login is a question, where its streams end.
        for spoken in WITH_IDS:
            is_there = asyncio.Event()
            group.create_task(read(find_variant(mesh, spoken), is_there))
            await is_there.wait()
        await find_variant(mesh, SPOKEN[0]).send("count 30", task=waiting.task)
    whole = ["".join(f"{number} " for number in range(1, 31)), "working", "completed"]
    assert seen == {name_of(spoken): whole for spoken in WITH_IDS}


# Ids.


async def test_a_task_alone_is_enough_and_another_context_is_refused(wire: ProtocolVariant) -> None:
    asked = await wire.send("ask who?")
    with pytest.raises(RefusedError) as refused:
        await wire.send("Ada", task=asked.task, context="another")
    assert refused.value.reason == "INVALID_PARAMS"
    done = await wire.send("Ada", task=asked.task)
    assert (done.task, done.context, done.state) == (asked.task, asked.context, "completed")


async def test_a_context_alone_starts_another_task_in_it(wire: ProtocolVariant) -> None:
    first = await wire.send("ask who?", context=f"c-{uuid.uuid4()}")
    second = await wire.send("count 1", context=first.context)
    assert (second.context, second.state) == (first.context, "completed")
    assert second.task != first.task


@only(*WITH_IDS)
async def test_a_task_that_nobody_knows_is_not_found(wire: ProtocolVariant) -> None:
    more: dict[str, dict[str, str]] = {
        "send": {"text": "x"},
        "stream": {"text": "x"},
        "get_push": {"config": "c"},
        "set_push": {"config": "c", "url": "http://127.0.0.1:9/x"},
    }
    for operation in (*more, "get", "cancel", "subscribe"):
        given = {"task": "nope", **more.get(operation, {})}
        assert await reason_of(wire, operation, given) == "TASK_NOT_FOUND", operation


async def reason_of(wire: ProtocolVariant, operation: str, given: dict[str, Any]) -> str:
    is_stream = operation in ("stream", "subscribe")
    call = rest(wire.watch(operation, **given)) if is_stream else wire.ask(operation, **given)
    with pytest.raises(RefusedError) as refused:
        await call
    return refused.value.reason


# Tasks that can't go on.


@only(*WITH_IDS)
async def test_an_ended_task_takes_no_message(wire: ProtocolVariant) -> None:
    done = await wire.send("count 1")
    for operation in ("send", "stream"):
        given = {"text": "more", "task": done.task, "hook": "http://127.0.0.1:9/x"}
        assert await reason_of(wire, operation, given) == "UNSUPPORTED_OPERATION"
    if wire.version == "1.0":
        assert await reason_of(wire, "subscribe", {"task": done.task}) == "UNSUPPORTED_OPERATION"
    assert (await wire.get(done.task)).state == "completed"


async def test_a_working_task_takes_no_message(wire: ProtocolVariant) -> None:
    async with wire.stream("wait") as events:
        task = (await anext(events)).task
        await until_state(events, "working")
        given = {"text": "more", "task": task}
        assert await reason_of(wire, "send", given) == "UNSUPPORTED_OPERATION"
        canceled = await wire.cancel(task)
        assert canceled.state == "canceled"
        assert (await rest(events))[-1].state == "canceled"


async def test_a_task_is_canceled_once(wire: ProtocolVariant) -> None:
    waiting = await wire.send("ask who?")
    assert (await wire.cancel(waiting.task)).state == "canceled"
    assert await reason_of(wire, "cancel", {"task": waiting.task}) == "TASK_NOT_CANCELABLE"
    done = await wire.send("count 1")
    assert await reason_of(wire, "cancel", {"task": done.task}) == "TASK_NOT_CANCELABLE"


# What is sent along.


async def test_history_is_as_long_as_its_version_means(wire: ProtocolVariant) -> None:
    asked = await wire.send("ask who?")
    task = (await wire.send("ask again?", task=asked.task)).task
    whole = ("ask who?", "who?", "ask again?", "again?")
    seen = {length: (await wire.get(task, history=length)).history for length in (None, 0, 1, 9)}
    assert seen[9] == whole or seen[9] == whole[:3]
    assert seen[1] == seen[9][-1:]
    assert seen[None] == (() if wire.version == "0.1" else seen[9])
    # 0 is no limit where v0.3 is concerned.
    assert seen[0] == (seen[9] if wire.version == "0.3" else ())
    assert await reason_of(wire, "get", {"task": task, "history": -1}) == "INVALID_PARAMS"


async def test_a_media_type_that_the_agent_does_not_take_is_refused(wire: ProtocolVariant) -> None:
    is_proto = wire.version == "0.3" and wire.binding != "JSON-RPC"
    part = PDF[f"{wire.version} proto" if is_proto else wire.version]
    for operation in ("send", "stream"):
        given = {"text": "", "part": part}
        assert await reason_of(wire, operation, given) == "CONTENT_TYPE_NOT_SUPPORTED"


# The extension.


@only(*WITH_IDS)
async def test_a_repeated_message_attaches_to_its_task(wire: ProtocolVariant) -> None:
    given: dict[str, Any] = {"message_id": f"once-{uuid.uuid4()}", "headers": RESUME}
    first = await wire.streamed("ask who?", **given)
    again = await wire.streamed("ask who?", **given)
    assert (again[0].task, again[-1].state) == (first[0].task, "input-required")
    assert (await wire.send("ask who?", **given)).task == first[0].task
    answer: dict[str, Any] = {
        "message_id": f"answer-{uuid.uuid4()}",
        "headers": RESUME,
        "task": first[0].task,
    }
    done = await wire.streamed("Ada", **answer)
    assert done[-1].state == "completed"
    # When it has ended, all of it again.
    for text, repeated in (("ask who?", given), ("Ada", answer)):
        events = await wire.streamed(text, **repeated)
        shown = next(event for event in events if event.kind == "task")
        assert (shown.task, shown.text) == (first[0].task, "turn 2: Ada")
        assert events[-1].state == "completed"
        assert (await wire.send(text, **repeated)).text == "turn 2: Ada"


@only(*WITH_IDS)
async def test_a_repeated_answer_to_a_running_turn_follows_it(wire: ProtocolVariant) -> None:
    asked = await wire.send("login first")
    answer: dict[str, Any] = {
        "message_id": f"login-{uuid.uuid4()}",
        "headers": RESUME,
        "task": asked.task,
    }
    login = await wire.send("login again", **answer)
    assert (login.state, login.said) == ("auth-required", "again")
    again = await wire.send("login again", **answer)
    assert (again.task, again.state, again.history) == (asked.task, "auth-required", login.history)
    with pytest.raises(RefusedError) as refused:
        await wire.send("something else", **answer)
    assert refused.value.reason == "INVALID_PARAMS"


async def test_a_subscription_goes_on_behind_any_event(wire: ProtocolVariant) -> None:
    whole = await wire.streamed("count 5", headers=RESUME)
    ids = [event.id for event in whole if event.id]
    assert len(ids) >= 5
    for number, event_id in enumerate(ids):
        resumed = {**RESUME, "Last-Event-ID": event_id}
        async with wire.subscribe(whole[0].task, headers=resumed) as events:
            seen = await rest(events)
        assert [event.id for event in seen if event.id] == ids[number + 1 :]
        assert seen == whole[len(whole) - len(seen) :]


@only(*WITH_IDS)
async def test_a_repeated_message_goes_on_behind_any_event(wire: ProtocolVariant) -> None:
    given: dict[str, Any] = {"message_id": f"again-{uuid.uuid4()}"}
    whole = await wire.streamed("ask who?", headers=RESUME, **given)
    await check_resumed(wire, "ask who?", whole, **given)
    answer: dict[str, Any] = {"message_id": f"reply-{uuid.uuid4()}", "task": whole[0].task}
    whole = await wire.streamed("count 5", headers=RESUME, **answer)
    await check_resumed(wire, "count 5", whole, **answer)


async def check_resumed(
    wire: ProtocolVariant, text: str, whole: list[SeenTask], **given: Any
) -> None:
    assert all(event.id for event in whole)
    for number, event in enumerate(whole):
        resumed = {**RESUME, "Last-Event-ID": event.id}
        assert await wire.streamed(text, headers=resumed, **given) == whole[number + 1 :]


# What is sent along, and lists.


async def test_an_agent_is_told_what_its_caller_can_take(wire: ProtocolVariant) -> None:
    done = await wire.send("modes", modes=["text/plain", "image/png"])
    assert done.text == "text/plain image/png"


@only(*NEWEST)
async def test_a_message_is_kept_as_it_was_sent(wire: ProtocolVariant) -> None:
    more = {
        "metadata": {"note": "x", "deep": {"a": [1, None, "b"]}},
        "extensions": ["https://example.org/ext"],
        "referenceTaskIds": ["t-1", "t-2"],
    }
    asked = await wire.send("ask who?", more=more)
    sent = (await wire.ask("get", task=asked.task))["history"][0]
    assert {name: sent[name] for name in more} == more
    assert (sent["role"], sent["taskId"], sent["contextId"]) == (
        "ROLE_USER",
        asked.task,
        asked.context,
    )


@only(*NEWEST)
async def test_lists_are_filtered_ordered_and_paged(wire: ProtocolVariant) -> None:
    context = f"list-{uuid.uuid4()}"
    asked = [(await wire.send(f"ask {n}?", context=context)).task for n in range(3)]
    ended = [(await wire.send("count 1", context=context)).task for _ in range(2)]
    newest_first = [*reversed(ended), *reversed(asked)]

    async def listed(**filters: Any) -> tuple[list[str], int, str]:
        page = await wire.ask("list", contextId=context, **filters)
        ids = [one["id"] for one in page.get("tasks", ())]
        return ids, page.get("totalSize", 0), page.get("nextPageToken", "")

    assert await listed() == (newest_first, 5, "")
    assert await listed(status="TASK_STATE_INPUT_REQUIRED") == (newest_first[2:], 3, "")
    found, token = [], ""
    for _ in range(3):
        ids, total, token = await listed(pageSize=2, **({"pageToken": token} if token else {}))
        assert total == 5
        found += ids
    assert (found, token) == (newest_first, "")
    # A task that changes moves to the front.
    await wire.send("done", task=asked[0])
    assert (await listed(pageSize=1))[0] == [asked[0]]
    times = await wire.ask("list", contextId=context, pageSize=2)
    since = times["tasks"][1]["status"]["timestamp"]
    # The time itself is within, though it is called after.
    assert (await listed(statusTimestampAfter=since))[0][:2] == [asked[0], newest_first[0]]
    for wrong in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "made-up"}):
        given = {"contextId": context, **wrong}
        assert await reason_of(wire, "list", given) == "INVALID_PARAMS", wrong


@only(*NEWEST)
async def test_lists_show_artifacts_and_history_to_those_who_ask(wire: ProtocolVariant) -> None:
    done = await wire.send("count 2")
    context = done.context
    (row,) = (await wire.ask("list", contextId=context))["tasks"]
    assert "artifacts" not in row
    # In a query it is a word.
    artifacts = "true" if wire.binding == "HTTP+JSON" else True
    shown: dict[str, Any] = {"includeArtifacts": artifacts, "historyLength": 1}
    (row,) = (await wire.ask("list", contextId=context, **shown))["tasks"]
    assert row["artifacts"][0]["parts"][0]["text"] == "1 2 "
    assert row["history"][0]["parts"] == [{"text": "count 2"}]
