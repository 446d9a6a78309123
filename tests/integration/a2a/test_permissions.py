"""Scopes, expiry and throttling of credentials, over every binding and version."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc, refusal, send_request
from harness.a2a.protocol_variants import (
    MISSING_TASK,
    SPOKEN,
    ProtocolVariant,
    RefusedError,
    RestVariant,
    Spoken,
    example_fields,
    find_variant,
    name_of,
    operations_of,
)
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import SigningKey, key_set, token_settings
from trunkline import TaskContext, agent
from trunkline.settings import ScopeSettings, Settings
from trunkline.v1 import part_pb2
from trunkline_agents.echo.agent import echo
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys

pytestmark = pytest.mark.asyncio(loop_scope="module")

ISSUER = SigningKey("issuer")
NOW = datetime.now(UTC)
CHANGES = {"send", "stream", "cancel", "set_push", "delete_push"}
HOOK = {"url": "https://example.com/hook"}

Json = dict[str, Any]


@agent(name="writer", description="Writes a file.")
async def writer(task: TaskContext) -> None:
    artifact = task.artifact(name="file")
    part = part_pb2.Part(raw=bytes(500_000), filename="a.bin", media_type="application/x-test")
    await artifact.append(part)
    await artifact.close()


def headers(key: str) -> dict[str, str]:
    return {"X-API-Key": f"key-of-{key}"}


def bearer(**claims: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {ISSUER.token({'org': 'acme', **claims})}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    """A mesh with keys of several scopes, and tokens with scopes."""
    folder = tmp_path_factory.mktemp("limited")
    (folder / "jwks.json").write_bytes(key_set(ISSUER))
    hour = timedelta(hours=1)

    def key(name: str, **limits: Any) -> ApiKey:
        return ApiKey(name, "acme", hash_key(f"key-of-{name}"), **limits)

    save_keys(
        folder / "keys.toml",
        [
            key("ann"),
            key("reader", methods=("read",)),
            key("sender", methods=("SendMessage", "SendStreamingMessage")),
            key("nobody", agents=("another",)),
            key("wild", agents=("ech*",)),
            key("old", expires=NOW - hour),
            key("rotated", expires=NOW - hour),
            ApiKey("rotated", "acme", hash_key("key-of-rotated-2"), NOW + hour),
        ],
    )
    settings = Settings(
        default_agent="echo",
        api_keys_file=folder / "keys.toml",
        **token_settings(
            folder / "jwks.json",
            account_claim="org",
            scopes={
                "tasks:read": ScopeSettings(methods=("read",)),
                "echo:all": ScopeSettings(agents=("echo",)),
            },
        ),
        allow_webhook=("127.0.0.1", "example.com"),
        failed_credentials_per_minute=0,
    )
    async with open_bridged_mesh(folder, settings) as bridged:
        await bridged.mesh.join(echo, writer)
        async with open_bridge_grpc(bridged) as mesh:
            yield mesh


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_the_scopes_of_a_key_hold_for_every_operation(
    limited: GrpcMesh, spoken: Spoken
) -> None:
    operations = operations_of(spoken[0])
    refused: dict[str, set[str]] = {}
    for name in ("ann", "reader", "nobody", "sender"):
        wire = find_variant(limited, spoken, headers(name))
        refused[name] = set()
        for operation in operations:
            task = "" if operation in ("send", "stream", "list", "extended_card") else MISSING_TASK
            error = await wire.attempt(operation, **example_fields(operation, task))
            if error is not None and error.reason == "PERMISSION_DENIED":
                refused[name].add(operation)
    assert refused["ann"] == set()
    assert refused["reader"] == CHANGES & operations
    assert refused["nobody"] == operations
    assert refused["sender"] == operations - {"send", "stream"}


async def test_a_refusal_says_what_is_missing_in_each_binding(limited: GrpcMesh) -> None:
    bridged = limited.bridged
    params = {"message": bridged.at("/").message("hi")}
    challenge = 'Bearer realm="trunkline", error="insufficient_scope", scope="SendMessage"'
    problem = "the API key lacks this method"
    text = f"these credentials are not for SendMessage at agent 'echo': {problem}"
    for method, version in (("SendMessage", "1.0"), ("message/send", "0.3"), ("tasks/send", "0.1")):
        named = {"A2A-Version": version, **headers("reader")}
        response = await bridged.at("/").post(method, params, named)
        assert response.status_code == 403, method
        assert response.headers["www-authenticate"] == challenge
        error = response.json()["error"]
        assert error["code"] == -32000
        assert error["message"].endswith(problem)
    for path in ("/message:send", "/v1/message:send"):
        response = await bridged.client.post(
            bridged.url + path, json=params, headers=headers("reader")
        )
        assert response.status_code == 403
        assert response.headers["www-authenticate"] == challenge
        assert response.json()["error"]["status"] == "PERMISSION_DENIED"
        assert response.json()["error"]["message"] == text
    call = limited.v1.SendMessage(send_request("hi"), metadata=[("x-api-key", "key-of-reader")])
    refused = await refusal(call)
    assert (refused.code, refused.text) == ("PERMISSION_DENIED", text)
    assert refused.metadata == {"agent": "echo", "method": "SendMessage", "scope": "SendMessage"}


async def test_notifications_and_old_paths_are_no_way_around(limited: GrpcMesh) -> None:
    bridged = limited.bridged
    body = bridged.at("/").body("SendMessage", {"message": bridged.at("/").message("hi")})
    del body["id"]
    response = await bridged.client.post(bridged.url, json=body, headers=headers("reader"))
    assert response.status_code == 403
    for path in ("/agent/authenticatedExtendedCard", "/v1/card", "/extendedAgentCard"):
        url = bridged.url + path
        assert (await bridged.client.get(url, headers=headers("sender"))).status_code == 403
        assert (await bridged.client.get(url, headers=headers("reader"))).status_code == 200
    # The message's own webhook needs the permission for webhooks.
    params = {
        "message": bridged.at("/").message("hi"),
        "configuration": {"taskPushNotificationConfig": HOOK},
    }
    response = await bridged.at("/").post("SendMessage", params, headers("sender"))
    assert response.status_code == 403
    assert "CreateTaskPushNotificationConfig" in response.json()["error"]["message"]


async def test_a_pattern_names_agents(limited: GrpcMesh) -> None:
    bridged = limited.bridged
    params = {"message": bridged.at("/").message("hi")}
    assert (await bridged.at("/").call("SendMessage", params, headers("wild")))["task"]
    response = await bridged.at("/agents/writer").post("SendMessage", params, headers("wild"))
    assert response.status_code == 403
    assert 'scope="agent:writer"' in response.headers["www-authenticate"]


async def test_files_belong_to_the_agent_of_their_task(limited: GrpcMesh) -> None:
    bridged = limited.bridged
    params = {"message": bridged.at("/").message("hi")}
    result = await bridged.at("/agents/writer").call("SendMessage", params, headers("ann"))
    (url,) = [part["url"] for item in result["task"]["artifacts"] for part in item["parts"]]
    statuses = {
        name: (await bridged.client.get(url, headers=headers(name))).status_code
        for name in ("ann", "reader", "sender", "wild", "nobody")
    }
    assert statuses == {"ann": 200, "reader": 200, "sender": 403, "wild": 403, "nobody": 403}


async def test_tokens_have_the_scopes_of_their_claims(limited: GrpcMesh) -> None:
    caller = limited.bridged.at("/")
    message = {"message": caller.message("hi")}
    for claims, reads, writes in (
        ({}, 403, 403),
        ({"scope": "tasks:read email"}, 200, 403),
        ({"scp": ["echo:all"]}, 200, 200),
    ):
        named = bearer(**claims)
        assert (await caller.post("ListTasks", {}, named)).status_code == reads
        assert (await caller.post("SendMessage", message, named)).status_code == writes
    refused = await caller.post("SendMessage", message, bearer())
    assert 'scope="echo:all"' in refused.headers["www-authenticate"]
    refused = await limited.bridged.at("/agents/writer").post("ListTasks", {}, bearer())
    assert 'scope="tasks:read"' in refused.headers["www-authenticate"]
    assert "the token lacks the scope 'tasks:read'" in refused.json()["error"]["message"]


async def test_a_token_never_has_the_account_of_a_key_by_its_name(limited: GrpcMesh) -> None:
    caller = limited.bridged.at("/")
    params = {"message": caller.message("hi")}
    task = (await caller.call("SendMessage", params, headers("ann")))["task"]
    named = bearer(scope="echo:all")
    assert (await caller.error("GetTask", {"id": task["id"]}, named))["code"] == -32001
    own = (await caller.call("ListTasks", {}, named))["tasks"]
    assert task["id"] not in [item["id"] for item in own]


async def test_an_expired_key_is_refused_and_its_successor_works(limited: GrpcMesh) -> None:
    caller = limited.bridged.at("/")
    for name in ("old", "rotated"):
        response = await caller.post("ListTasks", {}, headers(name))
        assert response.status_code == 401
        assert response.json()["error"]["message"] == "the API key has expired"
        assert response.headers["www-authenticate"].endswith('error="invalid_token"')
    assert "tasks" in await caller.call("ListTasks", {}, headers("rotated-2"))


async def test_streams_of_a_removed_key_end_and_the_task_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_INTERVAL_S", 0.01)
    may_end = asyncio.Event()

    @agent(name="waiter", description="Waits.")
    async def waiter(task: TaskContext) -> str:
        await task.working("waiting")
        await may_end.wait()
        return "done"

    keys = [ApiKey(name, "acme", hash_key(f"key-of-{name}")) for name in ("ann", "ben")]
    save_keys(tmp_path / "keys.toml", keys)
    settings = Settings(default_agent="waiter", api_keys_file=tmp_path / "keys.toml")
    ends: dict[str, str] = {}

    async def follow(wire: ProtocolVariant, task: str, first: asyncio.Event) -> None:
        try:
            async for _ in wire.watch("subscribe", task=task):
                first.set()
        except RefusedError as error:
            ends[f"{wire.binding} {wire.version}"] = str(error)

    async with open_bridged_mesh(tmp_path / "data", settings) as bridged:
        await bridged.mesh.join(waiter)
        async with open_bridge_grpc(bridged) as mesh, asyncio.timeout(PATIENCE_S):
            remaining = RestVariant(mesh, "1.0", headers("ann"))
            task = (await remaining.send("hi", now=True)).task
            spoken = [variant(mesh, version, headers("ben")) for version, variant in SPOKEN]
            async with remaining.subscribe(task) as events:
                await anext(events)
                async with asyncio.TaskGroup() as streams:
                    for wire in spoken:
                        first = asyncio.Event()
                        streams.create_task(follow(wire, task, first))
                        await first.wait()
                    save_keys(tmp_path / "keys.toml", keys[:1])
                assert len(ends) == len(spoken)
                assert set(ends.values()) == {"UNAUTHENTICATED: the API key is no longer accepted"}
                may_end.set()
                assert [event.state async for event in events][-1] == "completed"


async def throttle_address(bridged: BridgedMesh, count: int) -> None:
    for number in range(count):
        response = await bridged.at("/").post("ListTasks", {}, headers(f"wrong-{number}"))
        assert response.status_code == 401


async def test_wrong_credentials_are_throttled_in_each_binding(tmp_path: Path) -> None:
    expired = ApiKey("old", "acme", hash_key("key-of-old"), NOW - timedelta(hours=1))
    others = [ApiKey(name, "acme", hash_key(f"key-of-{name}")) for name in ("ann", "ben")]
    save_keys(tmp_path / "keys.toml", [expired, *others])
    settings = Settings(
        default_agent="echo",
        api_keys_file=tmp_path / "keys.toml",
        failed_credentials_per_minute=5,
    )
    async with open_bridged_mesh(tmp_path / "data", settings) as bridged:
        await bridged.mesh.join(echo)
        async with open_bridge_grpc(bridged) as mesh:
            await bridged.at("/").call("ListTasks", {}, headers("ann"))
            # Expired keys count for their name, and not for the address.
            statuses = [
                (await bridged.at("/").post("ListTasks", {}, headers("old"))).status_code
                for _ in range(7)
            ]
            assert statuses == [401] * 5 + [429] * 2
            await throttle_address(bridged, 5)
            for method, version in (
                ("ListTasks", "1.0"),
                ("message/send", "0.3"),
                ("tasks/send", "0.1"),
            ):
                response = await bridged.at("/").post(
                    method, {}, {"A2A-Version": version, **headers("ben")}
                )
                assert response.status_code == 429
                assert 1 <= int(response.headers["retry-after"]) <= 12
                assert response.json()["error"]["code"] == -32000
            response = await bridged.client.get(f"{bridged.url}/tasks", headers=headers("ben"))
            assert response.status_code == 429
            assert response.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
            call = mesh.v1.ListTasks(
                a2a_pb2.ListTasksRequest(), metadata=[("x-api-key", "key-of-ben")]
            )
            refused = await refusal(call)
            assert refused.code == grpc.StatusCode.RESOURCE_EXHAUSTED.name
            assert 1 <= refused.retry_after_s <= 12
            # Keys that this address used before are accepted, and so are keys from other addresses.
            assert "tasks" in await bridged.at("/").call("ListTasks", {}, headers("ann"))
            elsewhere = {"X-Forwarded-For": "203.0.113.9", **headers("ben")}
            assert "tasks" in await bridged.at("/").call("ListTasks", {}, elsewhere)
            # Requests without credentials are no attempts.
            assert (await bridged.at("/").post("ListTasks", {})).status_code == 401
