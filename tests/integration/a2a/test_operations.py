"""The semantics of A2A's operations, the same in every version and over every binding."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from a2a.types import a2a_pb2
from google.rpc.code_pb2 import Code

from harness.a2a.grpc_client import GrpcMesh
from harness.a2a.protocol_variants import (
    SPOKEN,
    WEBHOOK_URL,
    ProtocolVariant,
    RefusedError,
    Spoken,
    TaskView,
    example_fields,
    find_variant,
    name_of,
    open_variants,
    operations_of,
)
from harness.agents.partner_agent import partner
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.errors import ERROR_KINDS
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.json_values import parse_dict

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESUME = {"A2A-Extensions": RESUME_EXTENSION}
NEWEST = [spoken for spoken in SPOKEN if spoken[0] == "1.0"]
# The variants whose messages have ids.
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


@pytest.fixture(params=SPOKEN, ids=name_of)
def wire(mesh: GrpcMesh, request: pytest.FixtureRequest) -> ProtocolVariant:
    return find_variant(mesh, request.param)


def only(*spoken: Spoken) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wire", spoken, indirect=True, ids=name_of)


async def rest(events: AsyncIterator[TaskView]) -> list[TaskView]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in events]


async def until_state(events: AsyncIterator[TaskView], state: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if event.state == state:
                return
    raise AssertionError(f"it ended without {state}")


def at_login(wire: ProtocolVariant) -> str:
    """Return the state of a task that needs credentials; v0.1 has no own state for that."""
    return "input-required" if wire.version == "0.1" else "auth-required"


# Turns.


async def test_a_blocking_message_is_answered_at_a_question_and_at_a_login(
    wire: ProtocolVariant,
) -> None:
    waiting = await wire.send("ask who?")
    assert (waiting.state, waiting.status_text) == ("input-required", "who?")
    login = await wire.send("login first", task=waiting.task)
    assert (login.task, login.state, login.status_text) == (waiting.task, at_login(wire), "first")
    again = await wire.send("login again", task=waiting.task)
    assert (again.state, again.status_text) == (at_login(wire), "again")
    completed = await wire.send("done", task=waiting.task, history=10)
    assert (completed.state, completed.text) == ("completed", "turn 4: done")
    assert [
        history_text
        for history_text in completed.history
        if history_text.startswith(("ask", "login", "done"))
    ] == [
        "ask who?",
        "login first",
        "login again",
        "done",
    ]


@only(*WITH_IDS)
async def test_a_direct_reply_is_a_message_without_a_task(wire: ProtocolVariant) -> None:
    context = f"c-{uuid.uuid4()}"
    reply = await wire.send("message hello", context=context)
    (event,) = await wire.streamed("message hello", headers=RESUME)
    # Nothing can be resumed after it, so it has no id.
    assert reply == event == TaskView("message", text="hello")
    if wire.version == "1.0":
        assert not (await wire.ask("list", contextId=context)).get("tasks")


async def test_a_stream_ends_at_a_question(wire: ProtocolVariant) -> None:
    events = await wire.streamed("ask who?")
    assert (events[-1].state, events[-1].status_text) == ("input-required", "who?")
    task = events[0].task
    events = await wire.streamed("Ada", task=task)
    assert (events[0].task, events[-1].state) == (task, "completed")


@only(*WITH_IDS)
async def test_a_stream_stays_open_at_a_login_and_sees_the_next_turn(wire: ProtocolVariant) -> None:
    async with wire.stream("login first") as events:
        task = (await anext(events)).task
        await until_state(events, "auth-required")
        completed = await wire.send("done", task=task)
        assert completed.state == "completed"
        seen = await rest(events)
    assert "".join(event.text for event in seen if event.kind == "artifact") == "turn 2: done"
    assert seen[-1].state == "completed"


@only(*NEWEST)
async def test_a_subscription_stays_open_at_a_question(wire: ProtocolVariant) -> None:
    waiting = await wire.send("ask who?")
    async with wire.subscribe(waiting.task) as events:
        assert (await anext(events)).state == "input-required"
        await wire.send("Ada", task=waiting.task)
        assert (await rest(events))[-1].state == "completed"


@only(*(spoken for spoken in SPOKEN if spoken not in NEWEST))
async def test_before_v1_0_a_subscription_ends_with_the_turn(wire: ProtocolVariant) -> None:
    waiting = await wire.send("ask who?")
    async with wire.subscribe(waiting.task) as events:
        last = (await rest(events))[-1]
    assert (last.state, last.is_final) == ("input-required", True)
    await wire.send("Ada", task=waiting.task)
    async with wire.subscribe(waiting.task) as events:
        last = (await rest(events))[-1]
    assert (last.state, last.is_final) == ("completed", True)


async def test_readers_over_all_wires_see_the_same_events_in_the_same_order(mesh: GrpcMesh) -> None:
    waiting = await find_variant(mesh, SPOKEN[0]).send("login first")
    seen: dict[str, list[str]] = {}

    async def read(wire: ProtocolVariant, is_subscribed: asyncio.Event) -> None:
        async with wire.subscribe(waiting.task) as events:
            assert (await anext(events)).state == "auth-required"
            is_subscribed.set()
            updates = await rest(events)
        texts = "".join(event.text for event in updates if event.kind == "artifact")
        states = [event.state for event in updates if event.kind == "status"]
        seen[f"{wire.version} {wire.binding}"] = [texts, *states]

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        # In v0.1 a login is a question, and ends the stream.
        for spoken in WITH_IDS:
            is_subscribed = asyncio.Event()
            group.create_task(read(find_variant(mesh, spoken), is_subscribed))
            await is_subscribed.wait()
        await find_variant(mesh, SPOKEN[0]).send("count 30", task=waiting.task)
    whole = ["".join(f"{number} " for number in range(1, 31)), "working", "completed"]
    assert seen == {name_of(spoken): whole for spoken in WITH_IDS}


async def test_each_binding_shows_the_same_task(mesh: GrpcMesh) -> None:
    wires = [find_variant(mesh, spoken) for spoken in NEWEST]
    for wire in wires:
        waiting = await wire.send("ask who?", more={"metadata": {"deep": [1, {"x": None}, 0.5]}})
        tasks = [parse_dict(await w.ask("get", task=waiting.task), a2a_pb2.Task()) for w in wires]
        for task in tasks:
            # JSON has only milliseconds.
            task.status.timestamp.nanos -= task.status.timestamp.nanos % 1_000_000
        assert tasks[0] == tasks[1] == tasks[2]
        page = await wire.ask("list", contextId=waiting.context)
        assert [row["id"] for row in page["tasks"]] == [waiting.task]


async def test_the_timeout_of_a_message_ends_its_task(wire: ProtocolVariant) -> None:
    ended = await wire.send("wait", headers={"Trunkline-Timeout": "0.2"})
    assert ended.state == "failed"
    refused = await wire.refusal("send", {"Trunkline-Timeout": "soon"}, text="hi")
    assert (refused.reason, list(refused.violations)) == ("INVALID_PARAMS", ["Trunkline-Timeout"])


@only(*WITH_IDS)
async def test_the_extended_card_has_more_skills_and_the_agent_s_address(
    wire: ProtocolVariant,
) -> None:
    card = await wire.ask("extended_card")
    assert [skill["id"] for skill in card["skills"]] == ["partner", "secret"]
    if wire.version == "1.0":
        # Over gRPC the request does not have the name by which the client found us.
        assert card["supportedInterfaces"][0]["url"] == f"{wire.mesh.bridged.url}/"


# Refusals.

REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    *(("get", {"task": task}, "TASK_NOT_FOUND") for task in ("nope", "é/:")),
    ("get", {"task": "nope", "history": -1}, "INVALID_PARAMS"),
    ("cancel", {"task": "nope"}, "TASK_NOT_FOUND"),
    ("subscribe", {"task": "nope"}, "TASK_NOT_FOUND"),
    ("send", {"text": "x", "task": "nope"}, "TASK_NOT_FOUND"),
    ("send", {"text": "x", "history": -1}, "INVALID_PARAMS"),
    ("send", {"text": "x", "more": {"role": "ROLE_AGENT"}}, "INVALID_PARAMS"),
    ("stream", {"text": "x", "part": {}}, "INVALID_PARAMS"),
    ("list", {"pageSize": 0}, "INVALID_PARAMS"),
    ("list", {"pageToken": "?"}, "INVALID_PARAMS"),
    ("set_push", {"task": "nope", "url": WEBHOOK_URL}, "TASK_NOT_FOUND"),
    ("set_push", {"task": "nope"}, "INVALID_PARAMS"),
    ("get_push", {"task": "nope", "config": "c"}, "TASK_NOT_FOUND"),
    ("list_push", {"task": "nope"}, "TASK_NOT_FOUND"),
]


@pytest.mark.parametrize(("operation", "fields", "reason"), REFUSALS)
async def test_each_binding_refuses_with_the_same_text_and_details(
    mesh: GrpcMesh, operation: str, fields: dict[str, Any], reason: str
) -> None:
    refusals = [await find_variant(mesh, spoken).refusal(operation, **fields) for spoken in NEWEST]
    first = refusals[0]
    assert first.reason == reason
    assert bool(first.violations) == (reason == "INVALID_PARAMS")
    for refused in refusals:
        assert (str(refused), refused.metadata, refused.violations) == (
            str(first),
            first.metadata,
            first.violations,
        )
    kind = next(kind for kind in ERROR_KINDS.values() if kind.reason == reason)
    codes = [kind.rpc_code, kind.http_status, Code.Name(kind.grpc_code)]
    assert [refused.code for refused in refusals] == codes


# Ids.


async def test_a_task_id_alone_is_enough_and_another_context_is_refused(
    wire: ProtocolVariant,
) -> None:
    waiting = await wire.send("ask who?")
    with pytest.raises(RefusedError) as refused:
        await wire.send("Ada", task=waiting.task, context="another")
    assert refused.value.reason == "INVALID_PARAMS"
    completed = await wire.send("Ada", task=waiting.task)
    assert (completed.task, completed.context, completed.state) == (
        waiting.task,
        waiting.context,
        "completed",
    )


async def test_a_context_alone_starts_another_task_in_it(wire: ProtocolVariant) -> None:
    first = await wire.send("ask who?", context=f"c-{uuid.uuid4()}")
    second = await wire.send("count 1", context=first.context)
    assert (second.context, second.state) == (first.context, "completed")
    assert second.task != first.task


@only(*WITH_IDS)
@pytest.mark.parametrize("task", ["nope", "é"])
async def test_an_unknown_task_is_not_found(wire: ProtocolVariant, task: str) -> None:
    for operation in operations_of(wire.version, on_tasks=True) - {"delete_push"}:
        fields = example_fields(operation, task)
        assert await reason_of(wire, operation, fields) == "TASK_NOT_FOUND", operation


async def reason_of(wire: ProtocolVariant, operation: str, fields: dict[str, Any]) -> str:
    return (await wire.refusal(operation, **fields)).reason


# Ended and working tasks.


@only(*WITH_IDS)
async def test_an_ended_task_accepts_no_message(wire: ProtocolVariant) -> None:
    completed = await wire.send("count 1")
    for operation in ("send", "stream"):
        fields = {"text": "more", "task": completed.task, "hook": "http://127.0.0.1:9/x"}
        assert await reason_of(wire, operation, fields) == "UNSUPPORTED_OPERATION"
    if wire.version == "1.0":
        assert (
            await reason_of(wire, "subscribe", {"task": completed.task}) == "UNSUPPORTED_OPERATION"
        )
    assert (await wire.get(completed.task)).state == "completed"


async def test_a_working_task_accepts_no_message(wire: ProtocolVariant) -> None:
    async with wire.stream("wait") as events:
        task = (await anext(events)).task
        await until_state(events, "working")
        fields = {"text": "more", "task": task}
        assert await reason_of(wire, "send", fields) == "UNSUPPORTED_OPERATION"
        canceled = await wire.cancel(task)
        assert canceled.state == "canceled"
        assert (await rest(events))[-1].state == "canceled"


async def test_a_task_is_canceled_once(wire: ProtocolVariant) -> None:
    waiting = await wire.send("ask who?")
    assert (await wire.cancel(waiting.task)).state == "canceled"
    assert await reason_of(wire, "cancel", {"task": waiting.task}) == "TASK_NOT_CANCELABLE"
    completed = await wire.send("count 1")
    assert await reason_of(wire, "cancel", {"task": completed.task}) == "TASK_NOT_CANCELABLE"


# Optional fields.


async def test_the_history_length_follows_the_version(wire: ProtocolVariant) -> None:
    waiting = await wire.send("ask who?")
    task = (await wire.send("ask again?", task=waiting.task)).task
    whole = ("ask who?", "who?", "ask again?", "again?")
    seen = {length: (await wire.get(task, history=length)).history for length in (None, 0, 1, 9)}
    assert seen[9] == whole or seen[9] == whole[:3]
    assert seen[1] == seen[9][-1:]
    assert seen[None] == (() if wire.version == "0.1" else seen[9])
    # In v0.3, 0 means no limit.
    assert seen[0] == (seen[9] if wire.version == "0.3" else ())
    assert await reason_of(wire, "get", {"task": task, "history": -1}) == "INVALID_PARAMS"


async def test_a_media_type_that_the_agent_does_not_accept_is_refused(
    wire: ProtocolVariant,
) -> None:
    is_proto = wire.version == "0.3" and wire.binding != "JSON-RPC"
    part = PDF[f"{wire.version} proto" if is_proto else wire.version]
    for operation in ("send", "stream"):
        fields = {"text": "", "part": part}
        assert await reason_of(wire, operation, fields) == "CONTENT_TYPE_NOT_SUPPORTED"


# The extension.


@only(*WITH_IDS)
async def test_a_repeated_message_attaches_to_its_task(wire: ProtocolVariant) -> None:
    fields: dict[str, Any] = {"message_id": f"once-{uuid.uuid4()}", "headers": RESUME}
    first = await wire.streamed("ask who?", **fields)
    again = await wire.streamed("ask who?", **fields)
    assert (again[0].task, again[-1].state) == (first[0].task, "input-required")
    assert (await wire.send("ask who?", **fields)).task == first[0].task
    answer: dict[str, Any] = {
        "message_id": f"answer-{uuid.uuid4()}",
        "headers": RESUME,
        "task": first[0].task,
    }
    completed = await wire.streamed("Ada", **answer)
    assert completed[-1].state == "completed"
    # After the end, all its events are returned again.
    for text, repeated in (("ask who?", fields), ("Ada", answer)):
        events = await wire.streamed(text, **repeated)
        shown = next(event for event in events if event.kind == "task")
        assert (shown.task, shown.text) == (first[0].task, "turn 2: Ada")
        assert events[-1].state == "completed"
        assert (await wire.send(text, **repeated)).text == "turn 2: Ada"


@only(*WITH_IDS)
async def test_a_repeated_answer_to_a_running_turn_follows_it(wire: ProtocolVariant) -> None:
    waiting = await wire.send("login first")
    answer: dict[str, Any] = {
        "message_id": f"login-{uuid.uuid4()}",
        "headers": RESUME,
        "task": waiting.task,
    }
    login = await wire.send("login again", **answer)
    assert (login.state, login.status_text) == ("auth-required", "again")
    again = await wire.send("login again", **answer)
    assert (again.task, again.state, again.history) == (
        waiting.task,
        "auth-required",
        login.history,
    )
    with pytest.raises(RefusedError) as refused:
        await wire.send("something else", **answer)
    assert refused.value.reason == "INVALID_PARAMS"


async def test_a_subscription_resumes_after_any_event(wire: ProtocolVariant) -> None:
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
async def test_a_repeated_message_resumes_after_any_event(wire: ProtocolVariant) -> None:
    fields: dict[str, Any] = {"message_id": f"again-{uuid.uuid4()}"}
    whole = await wire.streamed("ask who?", headers=RESUME, **fields)
    await check_resumed(wire, "ask who?", whole, **fields)
    answer: dict[str, Any] = {"message_id": f"reply-{uuid.uuid4()}", "task": whole[0].task}
    whole = await wire.streamed("count 5", headers=RESUME, **answer)
    await check_resumed(wire, "count 5", whole, **answer)


async def check_resumed(
    wire: ProtocolVariant, text: str, whole: list[TaskView], **fields: Any
) -> None:
    assert all(event.id for event in whole)
    for number, event in enumerate(whole):
        resumed = {**RESUME, "Last-Event-ID": event.id}
        assert await wire.streamed(text, headers=resumed, **fields) == whole[number + 1 :]


# Fields of messages, and lists.


async def test_an_agent_sees_the_output_modes_of_its_caller(wire: ProtocolVariant) -> None:
    completed = await wire.send("modes", modes=["text/plain", "image/png"])
    assert completed.text == "text/plain image/png"


@only(*NEWEST)
async def test_a_message_is_stored_unchanged(wire: ProtocolVariant) -> None:
    more = {
        "metadata": {"note": "x", "deep": {"a": [1, None, "b"]}},
        "extensions": ["https://example.org/ext"],
        "referenceTaskIds": ["t-1", "t-2"],
    }
    waiting = await wire.send("ask who?", more=more)
    stored = (await wire.ask("get", task=waiting.task))["history"][0]
    assert {name: stored[name] for name in more} == more
    assert (stored["role"], stored["taskId"], stored["contextId"]) == (
        "ROLE_USER",
        waiting.task,
        waiting.context,
    )


@only(*NEWEST)
async def test_lists_are_filtered_ordered_and_paged(wire: ProtocolVariant) -> None:
    context = f"list-{uuid.uuid4()}"
    task_ids = [(await wire.send(f"ask {n}?", context=context)).task for n in range(3)]
    ended = [(await wire.send("count 1", context=context)).task for _ in range(2)]
    newest_first = [*reversed(ended), *reversed(task_ids)]

    async def listed(**filters: Any) -> tuple[list[str], int, str]:
        page = await wire.ask("list", contextId=context, **filters)
        ids = [task["id"] for task in page.get("tasks", ())]
        return ids, page.get("totalSize", 0), page.get("nextPageToken", "")

    assert await listed() == (newest_first, 5, "")
    assert await listed(status="TASK_STATE_INPUT_REQUIRED") == (newest_first[2:], 3, "")
    listed_ids, token = [], ""
    for _ in range(3):
        ids, total, token = await listed(pageSize=2, **({"pageToken": token} if token else {}))
        assert total == 5
        listed_ids += ids
    assert (listed_ids, token) == (newest_first, "")
    # A changed task moves to the front.
    await wire.send("done", task=task_ids[0])
    assert (await listed(pageSize=1))[0] == [task_ids[0]]
    times = await wire.ask("list", contextId=context, pageSize=2)
    since = times["tasks"][1]["status"]["timestamp"]
    # The limit itself is included, in spite of the field's name.
    assert (await listed(statusTimestampAfter=since))[0][:2] == [task_ids[0], newest_first[0]]
    for invalid in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "made-up"}):
        fields = {"contextId": context, **invalid}
        assert await reason_of(wire, "list", fields) == "INVALID_PARAMS", invalid


@only(*NEWEST)
async def test_lists_include_artifacts_and_history_on_request(wire: ProtocolVariant) -> None:
    completed = await wire.send("count 2")
    context = completed.context
    (row,) = (await wire.ask("list", contextId=context))["tasks"]
    assert "artifacts" not in row
    # In a query, a boolean is a word.
    artifacts = "true" if wire.binding == "HTTP+JSON" else True
    shown: dict[str, Any] = {"includeArtifacts": artifacts, "historyLength": 1}
    (row,) = (await wire.ask("list", contextId=context, **shown))["tasks"]
    assert row["artifacts"][0]["parts"][0]["text"] == "1 2 "
    assert row["history"][0]["parts"] == [{"text": "count 2"}]


# Webhooks.


async def list_hooks(wire: ProtocolVariant, task: str) -> list[str]:
    """Return the webhooks of a task by their ids and URLs, flattened to text."""
    if wire.version == "0.1":
        return [str(await wire.ask("get_push", task=task))]
    page = await wire.ask("list_push", task=task)
    return [str(hook) for hook in (page if isinstance(page, list) else page.get("configs", ()))]


async def test_webhooks_without_an_id_are_several_in_v1_0_and_one_before(
    wire: ProtocolVariant,
) -> None:
    """In v0.3 only an id that the client sets allows several; the original wire has one."""
    waiting = await wire.send("ask what?")
    urls = [f"http://127.0.0.1:9/{number}" for number in (1, 2, 2)]
    for url in urls:
        await wire.ask("set_push", task=waiting.task, url=url)
    hooks = await list_hooks(wire, waiting.task)
    expected = urls if wire.version == "1.0" else urls[-1:]
    assert [url in hook for url, hook in zip(expected, hooks, strict=True)] == [True] * len(hooks)
    assert len(set(hooks)) == len(hooks)


SECRETS: dict[str, dict[str, Any]] = {
    "1.0": {"authentication": {"scheme": "Bearer", "credentials": "opaque-1"}},
    "0.3": {"authentication": {"schemes": ["Bearer"], "credentials": "opaque-1"}},
}


@only(*WITH_IDS)
async def test_webhooks_are_stored_shown_and_removed_without_their_secrets(
    wire: ProtocolVariant,
) -> None:
    waiting = await wire.send("ask what?")
    named: dict[str, Any] = {"task": waiting.task, "config": "mine"}
    secrets = {"token": "opaque-2", **SECRETS[wire.version]}
    created = await wire.ask("set_push", url=WEBHOOK_URL, secrets=secrets, **named)
    for shown in ("mine", WEBHOOK_URL, "Bearer"):
        assert shown in str(created)
    assert "opaque" not in str(created)
    assert await wire.ask("get_push", **named) == created
    assert await list_hooks(wire, waiting.task) == [str(created)]
    for _ in range(2):
        assert not await wire.ask("delete_push", **named)
    assert await list_hooks(wire, waiting.task) == []
    assert await reason_of(wire, "get_push", named) == "TASK_NOT_FOUND"


@only(*WITH_IDS)
async def test_the_webhook_of_a_message_replaces_that_of_an_earlier_message(
    wire: ProtocolVariant,
) -> None:
    hook = "http://127.0.0.1:9/message"
    waiting = await wire.send("ask what?", hook=hook)
    for url in (hook, f"{hook}/other"):
        await wire.send("ask again?", task=waiting.task, hook=url)
        (registered,) = await list_hooks(wire, waiting.task)
        assert url in registered
    # One that was registered by its own call stays.
    own = "http://127.0.0.1:9/own"
    await wire.ask("set_push", task=waiting.task, url=own)
    await wire.send("ask again?", task=waiting.task, hook=hook)
    hooks = await list_hooks(wire, waiting.task)
    assert sum(own in registered for registered in hooks) == (wire.version == "1.0")
    assert sum(hook in registered for registered in hooks) == 1
