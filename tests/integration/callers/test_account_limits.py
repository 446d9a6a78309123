"""A caller beyond a limit gets the same error in each binding, and other accounts get through."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, collect, open_bridge_grpc, refusal, send_request
from harness.a2a.protocol_variants import SPOKEN, Spoken, find_variant, name_of
from harness.a2a.rest_client import user_message
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import write_api_keys
from trunkline.core.settings import LimitSettings, Settings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODES = {"JSON-RPC": -32000, "HTTP+JSON": 429, "gRPC": "RESOURCE_EXHAUSTED"}
SLOW = (
    *(name_of(spoken) for spoken in SPOKEN),
    *("header of JSON-RPC", "header of HTTP+JSON", "detail of gRPC"),
)
LIMITS = LimitSettings(
    account={
        # The second request is refused, however long the test takes.
        **{name: AccountLimitSettings(rate=0.001) for name in SLOW},
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


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_the_second_request_is_refused_and_those_of_others_are_not(
    limited: GrpcMesh, spoken: Spoken
) -> None:
    account = name_of(spoken)
    wire = find_variant(limited, spoken, headers(account))
    assert (await wire.refusal("get", task="unknown")).reason == "TASK_NOT_FOUND"
    refused = await wire.refusal("stream", text="hello")
    assert (refused.reason, refused.code) == ("RESOURCE_EXHAUSTED", CODES[wire.binding])
    wait_s = int(refused.metadata["retryAfterS"])
    assert 900 <= wait_s <= 1000
    text = f"account {account!r} may send one request in 1000 seconds, and 1 at once"
    assert str(refused).endswith(f"{text}; try again in {wait_s} s")
    other = find_variant(limited, spoken, headers("other"))
    assert (await other.refusal("get", task="unknown")).reason == "TASK_NOT_FOUND"


async def test_a_refusal_says_when_to_try_again_in_the_way_of_its_protocol(
    limited: GrpcMesh,
) -> None:
    for account, path, content in (
        ("header of JSON-RPC", "/", limited.bridged.at("/").body("ListTasks", {})),
        ("header of HTTP+JSON", "/message:send", {"message": user_message("hello")}),
    ):
        for _ in range(2):
            refused = await limited.bridged.client.post(
                limited.bridged.url + path, json=content, headers=headers(account)
            )
        assert refused.status_code == 429
        error = refused.json()["error"]
        (retry,) = (error.get("data") or error["details"])[1:]
        assert retry["retryDelay"] == f"{refused.headers['retry-after']}s"
        assert 900 <= int(refused.headers["retry-after"]) <= 1000
    caller = metadata("detail of gRPC")
    await limited.v1.ListTasks(a2a_pb2.ListTasksRequest(), metadata=caller)
    over_grpc = await refusal(limited.v1.SendMessage(send_request("hello"), metadata=caller))
    assert 900 <= over_grpc.retry_after_s <= 1000


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
