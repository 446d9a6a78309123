"""A2A v0.3 and v0.2 over JSON-RPC, through a real bridge to a real host."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, Event, open_bridged_mesh
from harness.a2a.curl import curl
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.settings import Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json: TypeAlias = dict[str, Any]

HOOK = {"url": "https://127.0.0.1/hook", "token": "opaque-77", "id": "mine"}


@pytest.fixture(scope="module")
def gate() -> SteppedAgent:
    return SteppedAgent()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(
    tmp_path_factory: pytest.TempPathFactory, gate: SteppedAgent
) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    async with open_bridged_mesh(tmp_path_factory.mktemp("v0_3"), settings) as mesh:
        await mesh.mesh.join(echo, gate.agent())
        yield mesh


@pytest_asyncio.fixture(params=["/", "/agents/echo"], loop_scope="module")
async def caller(bridged: BridgedMesh, request: pytest.FixtureRequest) -> Caller:
    return bridged.at(request.param)


@pytest_asyncio.fixture(loop_scope="module")
async def echoes(bridged: BridgedMesh) -> Caller:
    return bridged.at("/")


def send_params(text: str, **fields: object) -> Json:
    part = {"kind": "text", "text": text}
    return {"message": {"role": "user", "messageId": "m-1", "parts": [part], **fields}}


async def send(caller: Caller, text: str, **fields: object) -> Json:
    return await caller.call("message/send", send_params(text, **fields))


async def streamed(caller: Caller, method: str, params: Json, **headers: str) -> list[Event]:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(PATIENCE_S), caller.stream(method, params, header_fields) as stream:
        return await stream.rest()


async def result(caller: Caller, method: str, params: Json) -> object:
    """Return a result that is not an object."""
    return (await caller.post(method, params)).json()["result"]


def kinds(events: list[Event]) -> list[str]:
    return [event.result["kind"] for event in events]


def finals(events: list[Event]) -> list[bool]:
    return [event.result.get("final", False) for event in events]


@pytest.mark.parametrize("path", ["/", "/agents/echo"])
async def test_the_documented_curl_command_works(bridged: BridgedMesh, path: str) -> None:
    responses = await curl(bridged.url + path)
    assert {response["id"] for response in responses} == {"test-1"}
    results = [response["result"] for response in responses]
    assert results[0]["kind"] == "task"
    texts = [item["artifact"]["parts"][0] for item in results if item["kind"] == "artifact-update"]
    assert texts == [{"kind": "text", "text": "what is 1+2"}]
    assert results[-1]["status"]["state"] == "completed"
    assert [item.get("final", False) for item in results][-2:] == [False, True]


async def test_a_message_is_answered_by_its_task(caller: Caller) -> None:
    task = await send(caller, "count 3")
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "1 2 3 "}]
    (waiting,) = task["history"]
    assert (waiting["kind"], waiting["role"], waiting["taskId"]) == ("message", "user", task["id"])
    assert await caller.call("tasks/get", {"id": task["id"]}) == task


async def test_a_direct_reply_is_a_message(echoes: Caller) -> None:
    reply = await send(echoes, "message hello")
    assert (reply["kind"], reply["role"]) == ("message", "agent")
    assert reply["parts"] == [{"kind": "text", "text": "hello"}]
    (event,) = await streamed(echoes, "message/stream", send_params("message hello"))
    assert event.result["parts"] == reply["parts"]


async def test_every_kind_of_part_comes_back(echoes: Caller) -> None:
    parts: list[Json] = [
        {"kind": "file", "file": {"bytes": "AAEC/w==", "name": "a.bin", "mimeType": "x/y"}},
        {"kind": "file", "file": {"uri": "https://example.org/x.png"}},
        {"kind": "data", "data": {"crate": 7, "list": [None, "é"]}},
    ]
    message = {"role": "user", "messageId": "m-1", "parts": parts}
    task = await echoes.call("message/send", {"message": message})
    assert task["artifacts"][0]["parts"] == parts


async def test_v0_2_omits_kinds_or_calls_them_types(echoes: Caller) -> None:
    parts: list[Json] = [{"type": "text", "text": "a "}, {"text": "b"}, {"data": {"n": 1}}]
    message = {"role": "user", "messageId": "m-1", "parts": parts}
    task = await echoes.call("message/send", {"message": message})
    assert task["status"]["state"] == "completed"
    assert {"kind": "data", "data": {"n": 1}} in task["artifacts"][0]["parts"]


async def test_blocking_false_answers_at_once(echoes: Caller) -> None:
    params = {**send_params("wait 3600"), "configuration": {"blocking": False}}
    task = await echoes.call("message/send", params)
    assert task["status"]["state"] in ("submitted", "working")
    canceled = await echoes.call("tasks/cancel", {"id": task["id"]})
    assert canceled["status"]["state"] == "canceled"
    error = await echoes.error("tasks/cancel", {"id": task["id"]})
    assert error["code"] == -32002


async def test_history_is_complete_unless_a_length_is_requested(echoes: Caller) -> None:
    waiting = await send(echoes, "ask colour?")
    task = await send(echoes, "red", taskId=waiting["id"])
    lengths = {
        length: len(
            (await echoes.call("tasks/get", {"id": task["id"], "historyLength": length}))["history"]
        )
        for length in (0, None, 1, 2, 100)
    }
    assert lengths == {0: 3, None: 3, 1: 1, 2: 2, 100: 3}
    error = await echoes.error("tasks/get", {"id": task["id"], "historyLength": -1})
    assert error["code"] == -32602


async def test_a_question_ends_the_stream_and_its_reply_continues_the_task(echoes: Caller) -> None:
    events = await streamed(echoes, "message/stream", send_params("ask colour?"))
    assert finals(events) == [False] * (len(events) - 1) + [True]
    last = events[-1].result
    assert last["status"]["state"] == "input-required"
    assert last["status"]["message"]["parts"] == [{"kind": "text", "text": "colour?"}]
    ids = {"taskId": last["taskId"], "contextId": last["contextId"]}
    # A reader that subscribes meanwhile gets the current state, and its stream ends.
    waiting = await streamed(echoes, "tasks/resubscribe", {"id": last["taskId"]})
    assert kinds(waiting) == ["task", "status-update"]
    assert waiting[-1].result == last
    nothing = await streamed(
        echoes, "tasks/resubscribe", {"id": last["taskId"]}, Last_Event_ID=events[-1].id
    )
    assert nothing == []
    answered = await streamed(echoes, "message/stream", send_params("red", **ids))
    assert finals(answered) == [False] * (len(answered) - 1) + [True]
    assert answered[-1].result["status"]["state"] == "completed"
    task = await echoes.call("tasks/get", {"id": last["taskId"]})
    responses = [message["parts"][0]["text"] for message in task["history"]]
    assert responses == ["ask colour?", "colour?", "red"]


async def test_a_context_alone_starts_another_task_in_the_conversation(echoes: Caller) -> None:
    first = await send(echoes, "echo one")
    second = await send(echoes, "echo two", contextId=first["contextId"])
    assert second["contextId"] == first["contextId"]
    assert second["id"] != first["id"]
    error = await echoes.error("message/send", send_params("x", taskId=first["id"]))
    assert error["code"] == -32004
    error = await echoes.error(
        "message/send", send_params("x", taskId=first["id"], contextId="other")
    )
    assert error["code"] == -32602


async def test_a_subscription_to_an_ended_task_returns_it_and_closes(echoes: Caller) -> None:
    task = await send(echoes, "count 3")
    events = await streamed(echoes, "tasks/resubscribe", {"id": task["id"]})
    assert kinds(events) == ["task", "status-update"]
    assert events[0].result == task
    assert finals(events) == [False, True]
    assert events[-1].result["status"] == task["status"]
    error = await echoes.error("tasks/resubscribe", {"id": "nope"})
    assert error["code"] == -32001


async def test_two_readers_and_a_resumed_one_see_the_same(
    bridged: BridgedMesh, gate: SteppedAgent
) -> None:
    tested = bridged.at("/agents/tested")
    params = {**send_params("go"), "configuration": {"blocking": False}}
    task = await tested.call("message/send", params)
    watch = {"id": task["id"]}
    async with (
        asyncio.timeout(PATIENCE_S),
        tested.stream("tasks/resubscribe", watch) as stream,
        tested.stream("tasks/resubscribe", watch) as other_stream,
    ):
        assert (await anext(stream)).result["kind"] == "task"
        assert (await anext(other_stream)).result["kind"] == "task"
        gate.write("a", "b", "c", "")
        first, second = await stream.rest(), await other_stream.rest()
    texts = [
        event.result["artifact"]["parts"][0]["text"]
        for event in first
        if event.result["kind"] == "artifact-update"
    ]
    assert "".join(texts) == "abc"
    tail = [event.result for event in first][-3:]
    assert [event.result for event in second][-3:] == tail
    last_event_id = first[-3].id
    cursor = {"metadata": {f"{RESUME_EXTENSION}/lastEventId": last_event_id}}
    for again in (
        await streamed(tested, "tasks/resubscribe", watch, Last_Event_ID=last_event_id),
        await streamed(tested, "tasks/resubscribe", {**watch, **cursor}),
    ):
        assert [(event.id, event.result) for event in again] == [
            (event.id, event.result) for event in first[-2:]
        ]


async def test_webhooks_are_stored_listed_and_removed_without_their_secrets(echoes: Caller) -> None:
    task = await send(echoes, "ask which?")
    config_params = {"taskId": task["id"], "pushNotificationConfig": HOOK}
    created = await echoes.call("tasks/pushNotificationConfig/set", config_params)
    expected = {"taskId": task["id"], "pushNotificationConfig": {"id": "mine", "url": HOOK["url"]}}
    assert created == expected
    named = {"id": task["id"], "pushNotificationConfigId": "mine"}
    for params in (named, {"id": task["id"]}):
        assert await echoes.call("tasks/pushNotificationConfig/get", params) == expected
    every = {"id": task["id"]}
    assert await result(echoes, "tasks/pushNotificationConfig/list", every) == [expected]
    assert await result(echoes, "tasks/pushNotificationConfig/delete", named) is None
    assert await result(echoes, "tasks/pushNotificationConfig/list", every) == []
    error = await echoes.error("tasks/pushNotificationConfig/get", named)
    assert error["code"] == -32001


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("set", {"taskId": "t"}, "pushNotificationConfig"),
        ("set", {"taskId": "t", "pushNotificationConfig": {}}, "pushNotificationConfig.url"),
        ("set", {"pushNotificationConfig": HOOK}, "taskId"),
        ("get", {}, "id"),
        ("get", {"id": "t", "pushNotificationConfigId": 5}, "pushNotificationConfigId"),
        ("list", {"id": 5}, "id"),
        ("delete", {"id": "t"}, "pushNotificationConfigId"),
    ],
)
async def test_errors_of_a_webhook_s_parameters_name_the_field(
    echoes: Caller, method: str, params: Json, field: str
) -> None:
    error = await echoes.error(f"tasks/pushNotificationConfig/{method}", params)
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == field


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/resubscribe", {"id": "nope"}, -32001),
        ("message/stream", send_params("hi", taskId="nope"), -32001),
        ("message/stream", {"message": {}}, -32602),
    ],
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Accept": "text/event-stream, application/json"},
        {"Accept": "text/event-stream", "A2A-Version": "0.3"},
    ],
)
async def test_an_error_before_a_stream_is_plain_json(
    echoes: Caller, headers: dict[str, str], method: str, params: Json, code: int
) -> None:
    response = await echoes.post(method, params, headers)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize("accepted", ["text/event-stream", "*/*, text/event-stream"])
async def test_an_error_is_a_plain_event_for_a_client_that_reads_only_events(
    echoes: Caller, accepted: str
) -> None:
    """The SDKs of v0.3 send these headers, and lose the error in a JSON response."""
    headers = {"Accept": accepted}
    (event,) = await streamed(echoes, "tasks/resubscribe", {"id": "nope"}, **headers)
    assert (event.kind, event.response["error"]["code"]) == ("", -32001)


async def test_there_is_no_extended_card_without_authentication(echoes: Caller) -> None:
    error = await echoes.error("agent/getAuthenticatedExtendedCard", None)
    assert error["code"] in (-32004, -32007)


async def test_extensions_are_confirmed_in_the_requesting_header(echoes: Caller) -> None:
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        answer = await echoes.post("message/send", send_params("hi"), {name: RESUME_EXTENSION})
        assert answer.headers[name] == RESUME_EXTENSION
    answer = await echoes.post(
        "message/send", send_params("hi"), {"A2A-Extensions": "https://x.example"}
    )
    assert "a2a-extensions" not in answer.headers


async def test_with_the_extension_a_repeated_message_attaches_to_its_task(echoes: Caller) -> None:
    params = send_params("count 3")
    params["message"]["messageId"] = "m-once"
    headers = {"X_A2A_Extensions": RESUME_EXTENSION}
    first = await streamed(echoes, "message/stream", params, **headers)
    again = await streamed(echoes, "message/stream", params, **headers)
    assert again[0].result["id"] == first[0].result["id"]
    assert finals(again) == [False, True]
    assert again[-1].result["status"] == first[-1].result["status"]


async def test_the_version_may_be_in_the_query(bridged: BridgedMesh) -> None:
    for version in ("0.3", "0.3.0"):
        caller = bridged.at(f"/?A2A-Version={version}")
        assert (await send(caller, "hi"))["kind"] == "task"
        assert (await caller.error("SendMessage", {}))["code"] == -32601


async def test_a_notification_is_executed_and_not_answered(bridged: BridgedMesh) -> None:
    context = "of notifications"
    posts: list[Json] = [
        {"method": "message/send", "params": send_params("echo old", contextId=context)},
        {"method": "message/stream", "params": send_params("echo stream", contextId=context)},
        {"method": "message/send", "params": {}},
        {"method": "DoMagic"},
        {"method": "tasks/cancel", "params": {"id": "nope"}},
    ]
    for post in posts:
        answer = await bridged.client.post(bridged.url, json={"jsonrpc": "2.0", **post})
        assert (answer.status_code, answer.content) == (204, b"")
    listed = await bridged.at("/").call("ListTasks", {"contextId": context})
    assert listed["totalSize"] == 2
    response = await bridged.client.post(
        bridged.url, content=b"{}", headers={"content-type": "text/plain"}
    )
    assert response.status_code == 415


async def test_a_notification_doesn_t_wait_for_the_turn(bridged: BridgedMesh) -> None:
    context = "of a long one"
    post = {"method": "message/send", "params": send_params("wait 3600", contextId=context)}
    answer = await bridged.client.post(bridged.url, json={"jsonrpc": "2.0", **post})
    assert answer.status_code == 204
    caller = bridged.at("/")
    (task,) = (await caller.call("ListTasks", {"contextId": context}))["tasks"]
    await caller.call("CancelTask", {"id": task["id"]})


async def test_a_tenant_names_the_agent_only_at_the_root(
    bridged: BridgedMesh, gate: SteppedAgent
) -> None:
    root = bridged.at("/")
    gate.write("x", "")
    params = {"tenant": "tested", "message": root.message("go")}
    task = (await root.call("SendMessage", params))["task"]
    assert task["artifacts"][0]["name"] == "pieces"
    assert (await root.error("GetTask", {"id": task["id"]}))["code"] == -32001
    assert await root.call("GetTask", {"id": task["id"], "tenant": "tested"}) == task
    other = bridged.at("/agents/echo")
    assert (await other.error("SendMessage", params))["code"] == -32602
    assert (await root.error("ListTasks", {"tenant": "a b"}))["code"] == -32602
    assert (await root.error("ListTasks", {"tenant": 5}))["code"] == -32602
    unknown = await root.error("ListTasks", {"tenant": "nobody"})
    assert unknown["data"][0]["reason"] == "AGENT_NOT_FOUND"


async def test_a_strict_bridge_treats_a_request_without_a_version_as_v0_3(tmp_path: Path) -> None:
    settings = Settings(default_agent="echo", strict_versions=True)
    async with open_bridged_mesh(tmp_path, settings) as strict:
        await strict.mesh.join(echo)
        caller = strict.at("/")
        for headers in ({}, {"A2A-Version": ""}):
            answer = await caller.call("message/send", send_params("hi"), headers)
            assert answer["kind"] == "task"
            error = await caller.error("ListTasks", {}, headers)
            assert error["code"] == -32009
        assert error["data"][0]["metadata"]["supportedVersions"] == "1.0, 0.3, 0.1"
        assert (await caller.call("ListTasks", {}, {"A2A-Version": "1.0"}))["totalSize"] == 2
        assert (await caller.error("tasks/send", {}))["code"] == -32009
