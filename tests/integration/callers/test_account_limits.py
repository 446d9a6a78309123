"""A caller beyond a limit gets the same error in each binding, and other accounts get through."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, collect, open_bridge_grpc, refusal, send_request
from harness.a2a.rest_client import user_message
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import write_api_keys
from trunkline.core.settings import LimitSettings, Settings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

BINDINGS = ("jsonrpc", "jsonrpc-v0.3", "stream", "rest", "grpc", "grpc-v0.3")
LIMITS = LimitSettings(
    account={
        # The second request is refused, however long the test takes.
        **{name: AccountLimitSettings(rate=0.001) for name in BINDINGS},
        "streamer": AccountLimitSettings(streams=1),
        "worker": AccountLimitSettings(tasks=1),
    }
)
ACCOUNTS = (*LIMITS.account, "other")


def headers(account: str) -> dict[str, str]:
    return {"X-API-Key": f"key of {account}"}


def metadata(account: str) -> list[tuple[str, str]]:
    return [("x-api-key", f"key of {account}")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    folder = tmp_path_factory.mktemp("limited")
    keys = [(name, name, f"key of {name}") for name in ACCOUNTS]
    settings = Settings(
        default_agent="echo",
        api_keys_file=write_api_keys(folder / "keys.toml", keys),
        limits=LIMITS,
    )
    async with open_bridged_mesh(folder, settings) as bridged:
        await bridged.mesh.join(echo, limits=LIMITS)
        async with open_bridge_grpc(bridged) as mesh:
            yield mesh


async def post(mesh: GrpcMesh, account: str, method: str, params: object) -> httpx2.Response:
    return await mesh.bridged.at("/").post(method, params, headers(account))


def check_refusal(account: str, response: httpx2.Response, error: dict[str, Any]) -> None:
    """Check a refusal over HTTP, and that its details have the same time as its header."""
    assert response.status_code == 429
    wait_s = int(response.headers["retry-after"])
    assert 900 <= wait_s <= 1000
    text = f"account {account!r} may send one request in 1000 seconds, and 1 at once"
    assert error["message"] == f"{text}; try again in {wait_s} s"
    info, retry = error.get("data") or error["details"]
    assert (info["reason"], retry["retryDelay"]) == ("RESOURCE_EXHAUSTED", f"{wait_s}s")
    assert info["metadata"]["retryAfterS"] == str(wait_s)


@pytest.mark.parametrize(
    ("account", "methods"),
    [
        ("jsonrpc", ("ListTasks", "ListTasks")),
        ("jsonrpc-v0.3", ("tasks/get", "tasks/get")),
        ("stream", ("ListTasks", "SendStreamingMessage")),
    ],
)
async def test_over_json_rpc(limited: GrpcMesh, account: str, methods: tuple[str, str]) -> None:
    caller = limited.bridged.at("/")
    body = caller.body(methods[0], {"id": "unknown"} if "/" in methods[0] else {})
    first = await caller.client.post(caller.url, json=body, headers=headers(account))
    assert first.status_code == 200
    body = caller.body(methods[1], {"message": caller.message("hello")})
    second = await caller.client.post(caller.url, json=body, headers=headers(account))
    answer = second.json()
    assert (answer["id"], answer["error"]["code"]) == (body["id"], -32000)
    check_refusal(account, second, answer["error"])
    assert (await post(limited, "other", "ListTasks", {})).status_code == 200


async def test_over_rest(limited: GrpcMesh) -> None:
    client, url = limited.bridged.client, limited.bridged.url
    assert (await client.get(f"{url}/tasks", headers=headers("rest"))).status_code == 200
    body = {"message": user_message("hello")}
    refused = await client.post(f"{url}/message:send", json=body, headers=headers("rest"))
    error = refused.json()["error"]
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    check_refusal("rest", refused, error)
    assert (await client.get(f"{url}/tasks", headers=headers("other"))).status_code == 200


async def test_over_grpc(limited: GrpcMesh) -> None:
    await limited.v1.ListTasks(a2a_pb2.ListTasksRequest(), metadata=metadata("grpc"))
    refused = await refusal(
        limited.v1.SendMessage(send_request("hello"), metadata=metadata("grpc"))
    )
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED")
    assert 900 <= refused.retry_after_s <= 1000
    assert refused.text.startswith("account 'grpc' may send one request in 1000 seconds")
    old = a2a_v0_3_pb2.GetTaskRequest(name="tasks/unknown")
    unknown = await refusal(limited.v0_3.GetTask(old, metadata=metadata("grpc-v0.3")))
    assert unknown.code == "NOT_FOUND"
    refused = await refusal(limited.v0_3.GetTask(old, metadata=metadata("grpc-v0.3")))
    assert refused.code == "RESOURCE_EXHAUSTED"
    assert refused.retry_after_s >= 900


async def test_streams_of_all_bindings_count_together(limited: GrpcMesh) -> None:
    caller = limited.bridged.at("/")
    text = "account 'streamer' has 1 open streams, and may have no more"
    message = {"message": caller.message("wait 600")}
    async with caller.stream("SendStreamingMessage", message, headers("streamer")) as stream:
        task_id = (await anext(stream)).result["task"]["id"]
        again = await post(limited, "streamer", "SubscribeToTask", {"id": task_id})
        assert (again.status_code, again.headers["retry-after"]) == (429, "1")
        assert again.json()["error"]["message"].startswith(text)
        request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
        call = limited.v1.SubscribeToTask(request, metadata=metadata("streamer"))
        refused = await refusal(collect(call))
        assert (refused.code, refused.retry_after_s) == ("RESOURCE_EXHAUSTED", 1)
        # What is no stream is not limited.
        assert (await post(limited, "streamer", "GetTask", {"id": task_id})).status_code == 200
    # The bridge sees the end of the connection a little later.
    call = None
    async with asyncio.timeout(PATIENCE_S):
        while call is None:
            call = limited.v1.SubscribeToTask(request, metadata=metadata("streamer"))
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                call = None
    call.cancel()
    await post(limited, "streamer", "CancelTask", {"id": task_id})


async def test_running_tasks_are_limited_at_the_host(limited: GrpcMesh) -> None:
    caller = limited.bridged.at("/")

    def params() -> dict[str, Any]:
        return {
            "message": caller.message("wait 600"),
            "configuration": {"returnImmediately": True},
        }

    first = await post(limited, "worker", "SendMessage", params())
    task_id = first.json()["result"]["task"]["id"]
    refused = await post(limited, "worker", "SendMessage", params())
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    error = refused.json()["error"]
    assert error["message"].startswith("account 'worker' has 1 running tasks")
    assert error["data"][0]["reason"] == "RESOURCE_EXHAUSTED"
    other = (await post(limited, "other", "SendMessage", params())).json()["result"]["task"]["id"]
    for account, running in (("worker", task_id), ("other", other)):
        canceled = await post(limited, account, "CancelTask", {"id": running})
        assert canceled.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert "result" in (await post(limited, "worker", "SendMessage", params())).json()
