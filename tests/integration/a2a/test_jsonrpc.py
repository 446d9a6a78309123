"""JSON-RPC of A2A v0.3 and v0.2, and what JSON-RPC has in all versions."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, Event, open_bridged_mesh
from harness.a2a.curl import curl
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.settings import Settings
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


async def test_extensions_are_confirmed_in_the_requesting_header(echoes: Caller) -> None:
    named = f"https://unknown.example/x, {RESUME_EXTENSION}"
    requests = (
        ("message/send", send_params("hi")),
        ("SendMessage", {"message": echoes.message("hi")}),
    )
    for method, params in requests:
        for name in ("A2A-Extensions", "X-A2A-Extensions"):
            answer = await echoes.post(method, params, {name: named})
            assert answer.headers[name] == RESUME_EXTENSION
        answer = await echoes.post(method, params, {"A2A-Extensions": "https://x.example"})
        assert "a2a-extensions" not in answer.headers


async def test_without_the_extension_every_message_of_an_anonymous_caller_is_new(
    echoes: Caller,
) -> None:
    params = {"message": echoes.message("twice")}
    tasks = [(await echoes.call("SendMessage", params))["task"]["id"] for _ in range(2)]
    assert tasks[0] != tasks[1]


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
