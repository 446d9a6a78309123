"""HTTP+JSON of both versions: its routes, media types and errors, with and without a tenant."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.rest_client import RestCaller, content, reason, user_message
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKING = {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))
    async with open_bridged_mesh(tmp_path_factory.mktemp("rest"), settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


# Each address of the agent, and each address with the agent's tenant.
@pytest.fixture(params=["", "/agents/echo", "/echo", "/agents/echo/echo"])
def rest(bridged: BridgedMesh, request: pytest.FixtureRequest) -> RestCaller:
    return RestCaller(bridged.client, bridged.url + request.param)


@pytest.fixture
def at_echo(bridged: BridgedMesh) -> RestCaller:
    return RestCaller(bridged.client, bridged.url + "/agents/echo")


async def test_a_task_is_sent_read_listed_and_canceled(rest: RestCaller) -> None:
    task = await rest.send("count 3")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "1 2 3 "}]
    assert await rest.get(f"/tasks/{task['id']}") == task
    assert "history" not in await rest.get(f"/tasks/{task['id']}", historyLength="0")
    filters = {"contextId": task["contextId"], "pageSize": "1", "includeArtifacts": "true"}
    page = await rest.get("/tasks", historyLength="9", **filters)
    assert page == {"tasks": [task], "nextPageToken": "", "pageSize": 1, "totalSize": 1}
    waiting = await rest.send("wait 3600", now=True)
    assert waiting["status"]["state"] in WORKING
    canceled = await rest.post(f"/tasks/{waiting['id']}:cancel")
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.parametrize("body", [b"null", b" null\n", b"{}", b""])
async def test_a_request_without_members_may_be_null(at_echo: RestCaller, body: bytes) -> None:
    task = await at_echo.send("ask what?")
    headers = {"content-type": "application/json"}
    url = f"{at_echo.url}/tasks/{task['id']}"
    stream = at_echo.client.stream("POST", f"{url}:subscribe", content=body, headers=headers)
    async with stream as subscribed:
        assert subscribed.status_code == 200
    canceled = await at_echo.client.post(f"{url}:cancel", content=body, headers=headers)
    assert content(canceled)["status"]["state"] == "TASK_STATE_CANCELED"
    missing = await at_echo.client.post(
        f"{at_echo.url}/message:send", content=body, headers=headers
    )
    assert reason(missing) == "INVALID_PARAMS"


async def test_answers_have_a2as_media_type(at_echo: RestCaller) -> None:
    found_task = await at_echo.request("GET", "/tasks")
    missing = await at_echo.request("GET", "/tasks/nope")
    types = {answer.headers["content-type"] for answer in (found_task, missing)}
    assert types == {"application/a2a+json"}
    body = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"done"}]}}'
    for kind in ("application/a2a+json", "application/json; charset=utf-8"):
        sent = await post_bytes(at_echo, body, {"content-type": kind})
        assert content(sent)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        refused = await post_bytes(at_echo, body, {"content-type": kind})
        assert (refused.status_code, reason(refused)) == (415, "INVALID_REQUEST")


async def post_bytes(rest: RestCaller, body: bytes, headers: dict[str, str]) -> httpx2.Response:
    return await rest.client.post(rest.url + "/message:send", content=body, headers=headers)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/message:send", "POST, OPTIONS"),
        ("/tasks", "GET, OPTIONS, HEAD"),
        ("/tasks/t", "GET, OPTIONS, HEAD"),
        ("/tasks/t:cancel", "POST, OPTIONS"),
        ("/tasks/t:subscribe", "GET, POST, OPTIONS"),
        ("/tasks/t/pushNotificationConfigs", "GET, POST, OPTIONS, HEAD"),
        ("/tasks/t/pushNotificationConfigs/c", "GET, DELETE, OPTIONS, HEAD"),
    ],
)
async def test_a_path_lists_its_methods(at_echo: RestCaller, path: str, allowed: str) -> None:
    refused = await at_echo.request("PUT", path)
    assert (refused.status_code, reason(refused)) == (405, "METHOD_NOT_FOUND")
    assert refused.headers["allow"] == allowed
    options = await at_echo.request("OPTIONS", path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")


async def test_head_returns_the_headers_of_get(at_echo: RestCaller) -> None:
    get, head = [await at_echo.request(method, "/tasks?pageSize=1") for method in ("GET", "HEAD")]
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert (await at_echo.request("HEAD", "/tasks/nope")).status_code == 404


@pytest.mark.parametrize("path", ["/nothing", "/agents/echo/task", "/agents/echo/v1/nothing"])
async def test_the_error_of_an_unknown_path_lists_the_routes(
    bridged: BridgedMesh, path: str
) -> None:
    refused = await bridged.client.get(bridged.url + path)
    assert (refused.status_code, reason(refused)) == (404, "METHOD_NOT_FOUND")
    assert "/message:send" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        *("/agents/", "/agents//tasks", "/foo", "/foo/bar", "/tasks//pushNotificationConfigs"),
        *("/tasks/t/pushNotificationConfigs/", "/message:send/tasks", "/.well-known/tasks"),
        *("/v1/tasks", "/v1/extendedAgentCard", "/agents/echo/blue/green/tasks", "/tasks/a/b"),
        *("/agents/echo/card", "/agents/echo/echo/v1/tasks/t"),
    ],
)
async def test_other_paths_are_not_served(bridged: BridgedMesh, path: str) -> None:
    refused = await bridged.client.get(bridged.url + path)
    assert (refused.status_code, reason(refused)) == (404, "METHOD_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "task"),
    [
        ("//tasks/t", "t"),
        ("/agents/echo//tasks/t", "t"),
        ("/tasks/a:b:c", "a:b:c"),
        ("/tasks/a%2Fb%3Fc%23d%25", "a/b?c#d%"),
        ("/tasks/%20%F0%9F%9A%80%3A", " \N{ROCKET}:"),
        ("/tasks/t%3Asubscribe", "t"),
        ("/v1/tasks/a:b%20c", "a:b c"),
    ],
)
async def test_a_path_names_any_task(bridged: BridgedMesh, path: str, task: str) -> None:
    missing = await bridged.client.get(bridged.url + path)
    assert (missing.status_code, reason(missing)) == (404, "TASK_NOT_FOUND")
    assert missing.json()["error"]["details"][0]["metadata"] == {"taskId": task}


async def test_path_and_body_must_agree(at_echo: RestCaller) -> None:
    waiting = await at_echo.send("ask what?")
    path = f"/tasks/{waiting['id']}:cancel"
    for body, field in (({"id": "other"}, "id"), ({"tenant": "other"}, "tenant")):
        refused = await at_echo.request("POST", path, body)
        assert reason(refused) == "INVALID_PARAMS"
        violations = refused.json()["error"]["details"][1]["fieldViolations"]
        assert [violation["field"] for violation in violations] == [field]
    other_agent = RestCaller(at_echo.client, at_echo.url + "/other")
    assert reason(await other_agent.request("GET", "/tasks")) == "INVALID_PARAMS"
    matching = {"id": waiting["id"], "tenant": "echo"}
    assert (await at_echo.post(path, matching))["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_tenant_names_the_agent_at_the_root(bridged: BridgedMesh) -> None:
    root = RestCaller(bridged.client, bridged.url)
    listed = await root.get("/tasks", tenant="echo", pageSize="1")
    assert listed["pageSize"] == 1
    unknown = await root.request("GET", "/tasks", query={"tenant": "nobody"})
    assert (unknown.status_code, reason(unknown)) == (404, "AGENT_NOT_FOUND")


async def test_a_stream_that_is_cut_ends_with_the_error(
    bridged: BridgedMesh, at_echo: RestCaller
) -> None:
    body = {"message": user_message("wait 3600")}
    async with at_echo.stream("POST", "/message:stream", body) as events:
        task_id = (await anext(events)).data["task"]["id"]
        bridged.bridge.abort_requests()
        last = [event async for event in events][-1]
    assert last.kind == "error"
    assert (last.data["error"]["code"], last.data["error"]["status"]) == (503, "UNAVAILABLE")
    await at_echo.post(f"/tasks/{task_id}:cancel")


@pytest.mark.parametrize(
    ("body", "status", "error_text"),
    [
        (b"{", 400, "INVALID_REQUEST"),
        (b"\xff", 400, "INVALID_REQUEST"),
        (b"[" * 5000, 400, "INVALID_REQUEST"),
        (b'{"message":1,"message":2}', 400, "INVALID_REQUEST"),
        (b'{"message":"\\ud800"}', 400, "INVALID_REQUEST"),
        (b"[]", 400, "INVALID_PARAMS"),
        (b" " * (4 * 1024 * 1024 + 1), 413, "INVALID_REQUEST"),
    ],
    ids=["cut", "not UTF-8", "deep", "twice", "half a character", "array", "large"],
)
async def test_bad_bodies_are_refused(
    at_echo: RestCaller, body: bytes, status: int, error_text: str
) -> None:
    refused = await post_bytes(at_echo, body, {"content-type": "application/json"})
    assert (refused.status_code, reason(refused)) == (status, error_text)


# Version 0.3.


@pytest.fixture
def older(bridged: BridgedMesh) -> RestCaller:
    return RestCaller(bridged.client, bridged.url + "/agents/echo/v1")


async def test_protobuf_field_names_are_accepted(older: RestCaller) -> None:
    body = {
        "request": {
            "message_id": "m-1",
            "role": "ROLE_USER",
            "content": [{"text": "message hello"}],
        },
        "configuration": {"accepted_output_modes": ["text/plain"], "blocking": True},
    }
    sent = await older.post("/message:send", body)
    assert sent["message"]["content"] == [{"text": "hello"}]
    (event,) = await older.events("POST", "/message:stream", body)
    assert event.data["message"]["content"] == [{"text": "hello"}]


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
    older: RestCaller, method: str, path: str, body: object, status: int, name: str
) -> None:
    refused = await older.request(method, path, body)
    assert (refused.status_code, refused.json()["type"]) == (status, name)
    assert refused.headers["content-type"] == "application/json"


async def test_a_json_rpc_style_message_gets_a_json_rpc_style_answer(older: RestCaller) -> None:
    sent = {"kind": "message", "messageId": "m", "role": "user"}
    body = {"message": {**sent, "parts": [{"kind": "text", "text": "count 3"}]}}
    task = await older.post("/message:send", body)
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    events = await older.events("POST", "/message:stream", body)
    kinds = {event.data["kind"] for event in events}
    assert kinds == {"task", "artifact-update", "status-update"}
    assert (events[-1].data["status"]["state"], events[-1].data["final"]) == ("completed", True)
    refused = await older.request("POST", "/message:send", {"message": {**sent, "parts": []}})
    assert (refused.status_code, refused.json()["type"]) == (400, "InvalidParamsError")


async def test_errors_name_the_fields_of_v0_3(older: RestCaller) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"metadata": {}}]}
    for invalid, field in (({**message, "content": []}, "content"), (message, "content[0]")):
        refused = await older.request("POST", "/message:send", {"message": invalid})
        violations = refused.json()["error"]["details"][1]["fieldViolations"]
        assert [violation["field"] for violation in violations] == [f"message.{field}"]
    assert "give text, file or data" in refused.json()["message"]
