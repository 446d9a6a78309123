"""HTTP+JSON of A2A v0.3 through a real bridge to a real host."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from harness.a2a.rest_client import Json, RestCaller, RestEvent, content, user_message
from trunkline.settings import Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    async with open_bridged_mesh(tmp_path_factory.mktemp("rest"), settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest.fixture(params=["", "/agents/echo"])
def rest(bridged: BridgedMesh, request: pytest.FixtureRequest) -> RestCaller:
    return RestCaller(bridged.client, f"{bridged.url}{request.param}/v1")


@pytest.fixture
def at_echo(bridged: BridgedMesh) -> RestCaller:
    return RestCaller(bridged.client, bridged.url + "/agents/echo/v1")


@pytest.fixture
def rpc(bridged: BridgedMesh) -> Caller:
    return bridged.at("/agents/echo")


def message(text: str, **fields: str) -> Json:
    return user_message(text, parts="content", **fields)


async def send(rest: RestCaller, text: str, **fields: str) -> Json:
    task: Json = (await rest.post("/message:send", {"message": message(text, **fields)}))["task"]
    return task


def texts(events: list[RestEvent]) -> str:
    updates = [event.data["artifactUpdate"] for event in events if "artifactUpdate" in event.data]
    return "".join(part["text"] for update in updates for part in update["artifact"]["parts"])


async def test_a_task_is_sent_read_and_canceled(rest: RestCaller) -> None:
    task = await send(rest, "count 3")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "1 2 3 "}]
    assert task["history"][0]["content"] == [{"text": "count 3"}]
    # In v0.3, a missing history length means all of it.
    for length in ("", "0", "5"):
        assert await rest.get(f"/tasks/{task['id']}", historyLength=length) == task
    body = {"message": message("wait 3600"), "configuration": {"blocking": False}}
    waiting = (await rest.post("/message:send", body))["task"]
    for cancel in (None, {}, {"name": f"tasks/{waiting['id']}"}):
        answer = await rest.request("POST", f"/tasks/{waiting['id']}:cancel", cancel)
        if cancel is None:
            assert content(answer)["status"]["state"] == "TASK_STATE_CANCELLED"
        else:
            assert answer.json()["type"] == "TaskNotCancelableError"


async def test_protobuf_field_names_are_accepted(at_echo: RestCaller) -> None:
    body = {
        "request": {
            "message_id": "m-1",
            "role": "ROLE_USER",
            "content": [{"text": "message hello"}],
        },
        "configuration": {"accepted_output_modes": ["text/plain"], "blocking": True},
    }
    sent = await at_echo.post("/message:send", body)
    assert sent["message"]["content"] == [{"text": "hello"}]
    (event,) = await at_echo.events("POST", "/message:stream", body)
    assert event.data["message"]["content"] == [{"text": "hello"}]


async def test_a_turn_is_streamed_to_its_final_status(rest: RestCaller) -> None:
    events = await rest.events("POST", "/message:stream", {"message": message("count 5")})
    assert texts(events) == "1 2 3 4 5 "
    assert events[-1].data["statusUpdate"]["final"] is True
    asked = await rest.events("POST", "/message:stream", {"message": message("ask what?")})
    last = asked[-1].data["statusUpdate"]
    assert (last["status"]["state"], last["final"]) == ("TASK_STATE_INPUT_REQUIRED", True)
    assert last["status"]["message"]["content"] == [{"text": "what?"}]
    completed = await send(rest, "this", taskId=asked[0].data["task"]["id"])
    assert completed["artifacts"][0]["parts"] == [{"text": "answer: this"}]


async def test_webhooks_are_stored_shown_and_deleted(rest: RestCaller) -> None:
    task = await send(rest, "ask what?")
    path = f"/tasks/{task['id']}/pushNotificationConfigs"
    name = f"tasks/{task['id']}/pushNotificationConfigs/mine"
    webhook = {"url": "http://127.0.0.1:9/hook"}
    whole = {
        "parent": f"tasks/{task['id']}",
        "config_id": "mine",
        "config": {"push_notification_config": webhook},
    }
    stored = await rest.post(path, whole)
    assert stored == {"name": name, "pushNotificationConfig": webhook | {"id": "mine"}}
    # In the format of the proto's annotation.
    assert await rest.post(path, stored) == stored
    assert await rest.get(f"{path}/mine") == stored
    assert (await rest.get(path))["configs"] == [stored]
    for _ in range(2):
        assert content(await rest.request("DELETE", f"{path}/mine")) == {}
    missing = await rest.request("GET", f"{path}/mine")
    assert (missing.status_code, missing.json()["type"]) == (404, "TaskNotFoundError")
    await rest.post(f"/tasks/{task['id']}:cancel")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_stream_resumes_after_its_last_event(at_echo: RestCaller, method: str) -> None:
    whole = await at_echo.events("POST", "/message:stream", {"message": message("count 20")})
    path = f"/tasks/{whole[0].data['task']['id']}:subscribe"
    index = len(whole) // 2
    rest = await at_echo.events(method, path, headers={"Last-Event-ID": whole[index].id})
    assert texts(whole[: index + 1] + rest) == texts(whole)
    assert rest[-1] == whole[-1]


async def test_a_subscription_to_an_ended_task_returns_it(at_echo: RestCaller) -> None:
    task = await send(at_echo, "done")
    first, last = await at_echo.events("POST", f"/tasks/{task['id']}:subscribe")
    assert first.data["task"]["id"] == task["id"]
    assert last.data["statusUpdate"]["final"] is True


async def test_both_versions_see_the_same_task(at_echo: RestCaller, rpc: Caller) -> None:
    task = await send(at_echo, "count 2")
    newer = await rpc.call("GetTask", {"id": task["id"]})
    assert newer["artifacts"] == task["artifacts"]
    assert newer["status"] == task["status"]
    assert newer["history"][0]["parts"] == task["history"][0]["content"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("GET", "/tasks/nope", None, 404, "TaskNotFoundError"),
        ("POST", "/tasks/nope:cancel", None, 404, "TaskNotFoundError"),
        ("POST", "/tasks/nope:subscribe", None, 404, "TaskNotFoundError"),
        ("POST", "/tasks/x:cancel", {"name": "tasks/y"}, 400, "InvalidParamsError"),
        ("POST", "/message:send", {}, 400, "InvalidParamsError"),
        ("POST", "/message:stream", {"message": 1}, 400, "InvalidParamsError"),
        ("GET", "/tasks/x?historyLength=all", None, 400, "InvalidParamsError"),
        ("GET", "/card", None, 400, "UnsupportedOperationError"),
    ],
)
async def test_errors_have_their_names(
    at_echo: RestCaller, method: str, path: str, body: object, status: int, name: str
) -> None:
    refused = await at_echo.request(method, path, body)
    assert (refused.status_code, refused.json()["type"]) == (status, name)
    assert refused.headers["content-type"] == "application/json"


@pytest.mark.parametrize("version", ["0.3", "0.3.0", ""])
async def test_versions_that_are_served(at_echo: RestCaller, version: str) -> None:
    task = await send(at_echo, "done")
    path = f"/tasks/{task['id']}"
    response = await at_echo.request("GET", path, headers={"A2A-Version": version})
    assert response.status_code == 200


@pytest.mark.parametrize("version", ["1.0", "0.1", "latest"])
async def test_other_versions_are_refused(at_echo: RestCaller, version: str) -> None:
    refused = await at_echo.request("GET", "/tasks/x", headers={"A2A-Version": version})
    assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert refused.json()["error"]["details"][0]["metadata"]["supportedVersions"] == "0.3"


async def test_a_json_rpc_style_message_gets_a_json_rpc_style_answer(at_echo: RestCaller) -> None:
    sent = {"kind": "message", "messageId": "m", "role": "user"}
    body = {"message": {**sent, "parts": [{"kind": "text", "text": "count 3"}]}}
    task = await at_echo.post("/message:send", body)
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    events = await at_echo.events("POST", "/message:stream", body)
    kinds = {event.data["kind"] for event in events}
    assert kinds == {"task", "artifact-update", "status-update"}
    assert (events[-1].data["status"]["state"], events[-1].data["final"]) == ("completed", True)
    refused = await at_echo.request("POST", "/message:send", {"message": {**sent, "parts": []}})
    assert (refused.status_code, refused.json()["type"]) == (400, "InvalidParamsError")


async def test_errors_name_the_fields_of_v0_3(at_echo: RestCaller) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"metadata": {}}]}
    for invalid, field in (({**message, "content": []}, "content"), (message, "content[0]")):
        refused = await at_echo.request("POST", "/message:send", {"message": invalid})
        violations = refused.json()["error"]["details"][1]["fieldViolations"]
        assert [violation["field"] for violation in violations] == [f"message.{field}"]
    assert "give text, file or data" in refused.json()["message"]
