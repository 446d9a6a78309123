"""Authentication: keys and tokens over every binding, and accounts that see only own tasks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import jwt
import pytest
import pytest_asyncio
from a2a.client import ClientCallContext, ClientConfig, create_client
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import a2a_pb2
from a2a.utils.signing import create_signature_verifier

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import (
    GrpcMesh,
    open_bridge_grpc,
    refusal,
    send_request,
)
from harness.a2a.protocol_variants import (
    SPOKEN,
    Spoken,
    example_fields,
    find_variant,
    name_of,
    operations_of,
)
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import SigningKey, key_set, token_settings, write_api_keys
from trunkline import TaskContext, agent
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_A, KEY_B = "key-of-ann", "key-of-bob"
ANN, BOB = {"X-API-Key": KEY_A}, {"X-API-Key": KEY_B}
ISSUER_KEY, CARD_KEY = SigningKey("issuer"), SigningKey("cards")
HOOK = "http://127.0.0.1:9/hook"

Json = dict[str, Any]


@agent(name="asker", description="Asks back.")
async def asker(task: TaskContext) -> None:
    await task.require_input("what else?")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    """A mesh that accepts keys of Ann and Bob, and tokens of others."""
    folder = tmp_path_factory.mktemp("guarded")
    keys = [("ann", "acme", KEY_A), ("bob", "other", KEY_B), ("ben", "acme", "key-of-ben")]
    (folder / "jwks.json").write_bytes(key_set(ISSUER_KEY))
    (folder / "card.pem").touch(mode=0o600)
    (folder / "card.pem").write_bytes(CARD_KEY.pem())
    settings = Settings(
        default_agent="asker",
        api_keys_file=write_api_keys(folder / "keys.toml", keys),
        **token_settings(folder / "jwks.json", account_claim="org", account_prefix=""),
        allow_webhook=("127.0.0.1",),
        card_key=folder / "card.pem",
        card_key_id=CARD_KEY.key_id,
        failed_credentials_per_minute=0,
    )
    async with open_bridged_mesh(folder, settings) as bridged:
        await bridged.mesh.join(asker, echo)
        async with open_bridge_grpc(bridged) as mesh:
            yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def task(guarded: GrpcMesh) -> Json:
    """Ann's task, which waits for input."""
    caller = guarded.bridged.at("/")
    message = caller.message("hello")
    created: Json = (await caller.call("SendMessage", {"message": message}, ANN))["task"]
    assert created["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    return created


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_anothers_task_looks_nonexistent(
    guarded: GrpcMesh, task: Json, spoken: Spoken
) -> None:
    wire = find_variant(guarded, spoken, BOB)
    # An id that no task of this host has.
    missing = task["id"][:-8] + "00000000"
    for operation in operations_of(wire.version, on_tasks=True):
        texts = []
        for task_id in (task["id"], missing):
            error = await wire.refusal(operation, **example_fields(operation, task_id))
            assert error.reason == "TASK_NOT_FOUND", operation
            texts.append(str(error).replace(task_id, "ID"))
        assert texts[0] == texts[1], operation


@pytest.mark.parametrize("spoken", SPOKEN, ids=name_of)
async def test_anonymous_callers_are_refused_first(
    guarded: GrpcMesh, task: Json, spoken: Spoken
) -> None:
    wire = find_variant(guarded, spoken, {})
    for operation in operations_of(wire.version):
        error = await wire.refusal(
            operation, **example_fields(operation, "" if operation == "list" else task["id"])
        )
        assert error.reason == "UNAUTHENTICATED", operation


async def test_an_account_lists_its_own_tasks_and_its_members_share_them(
    guarded: GrpcMesh, task: Json
) -> None:
    caller = guarded.bridged.at("/")

    async def listed(**headers: str) -> list[str]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        page = await caller.call("ListTasks", {"contextId": task["contextId"]}, given)
        assert page["totalSize"] == len(page["tasks"])
        return [item["id"] for item in page["tasks"]]

    assert await listed(X_API_Key=KEY_A) == [task["id"]]
    assert await listed(X_API_Key="key-of-ben") == [task["id"]]
    token = ISSUER_KEY.token({"org": "acme", "sub": "zoe"})
    assert await listed(Authorization=f"Bearer {token}") == [task["id"]]
    # The other account has its own tasks, from another test.
    assert task["id"] not in await listed(X_API_Key=KEY_B)
    metadata = [("x-api-key", KEY_B)]
    answer = await guarded.v1.ListTasks(a2a_pb2.ListTasksRequest(), metadata=metadata)
    assert answer.total_size == len(answer.tasks)
    assert task["id"] not in [item.id for item in answer.tasks]
    url = f"{guarded.bridged.url}/tasks"
    page = (await guarded.bridged.client.get(url, headers=BOB)).json()
    assert page["totalSize"] == len(page["tasks"])
    assert task["id"] not in [item["id"] for item in page["tasks"]]


async def test_a_conversation_of_the_same_name_is_another_one(
    guarded: GrpcMesh, task: Json
) -> None:
    caller = guarded.bridged.at("/")
    message = caller.message("mine", contextId=task["contextId"])
    anns_call = (await caller.call("SendMessage", {"message": message}, BOB))["task"]
    assert anns_call["id"] != task["id"]
    assert [item["messageId"] for item in anns_call["history"] if item["role"] == "ROLE_USER"] == [
        message["messageId"]
    ]
    page = await caller.call("ListTasks", {"contextId": task["contextId"]}, ANN)
    assert [item["id"] for item in page["tasks"]] == [task["id"]]
    await caller.call("CancelTask", {"id": anns_call["id"]}, BOB)


async def test_client_chosen_ids_are_per_account(guarded: GrpcMesh) -> None:
    caller = guarded.bridged.at("/agents/echo")
    version = {"A2A-Version": "0.1"}

    def asked_for(text: str) -> Json:
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        return {"id": "job-1", "sessionId": "s", "message": message}

    await caller.call("tasks/send", asked_for("hers"), {**version, **ANN})
    error = await caller.error("tasks/get", {"id": "job-1"}, {**version, **BOB})
    assert error["code"] == -32001
    await caller.call("tasks/send", asked_for("his"), {**version, **BOB})
    results = [
        await caller.call("tasks/get", {"id": "job-1"}, {**version, **account})
        for account in (ANN, BOB)
    ]
    assert [task["artifacts"][0]["parts"][0]["text"] for task in results] == ["hers", "his"]


async def test_a_repeated_message_of_an_authenticated_caller_is_accepted_once(
    guarded: GrpcMesh,
) -> None:
    caller = guarded.bridged.at("/agents/echo")
    params = {"message": caller.message("once")}
    tasks = [
        (await caller.call("SendMessage", params, account))["task"] for account in (ANN, ANN, BOB)
    ]
    assert tasks[0]["id"] == tasks[1]["id"] != tasks[2]["id"]
    other = {"message": {**params["message"], "parts": [{"text": "other"}]}}
    assert (await caller.error("SendMessage", other, ANN))["code"] == -32602


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": ""},
        {"X-API-Key": "wrong"},
        {"X-API-Key": f"{KEY_A}, {KEY_B}"},
        {"X-API-Key": "wrong", "Authorization": f"Bearer {KEY_A}"},
        {"X-API-Key": KEY_A, "Authorization": "Bearer a.b.c"},
        {"X-API-Key": KEY_A, "Authorization": f"Basic {KEY_A}"},
        {"X-API-Key": KEY_A, "Authorization": f"Bearer {KEY_B}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEY_A}"},
        {"Authorization": KEY_A},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": f"Bearer {SigningKey('issuer').token({'org': 'acme'})}"},
    ],
)
async def test_wrong_credentials_are_refused(guarded: GrpcMesh, headers: dict[str, str]) -> None:
    bridged = guarded.bridged
    for response in (
        await bridged.at("/").post("ListTasks", {}, headers),
        await bridged.client.get(f"{bridged.url}/tasks", headers=headers),
    ):
        assert response.status_code == 401
        assert response.headers["www-authenticate"].endswith('error="invalid_token"')
    metadata = [(name.lower(), value) for name, value in headers.items()]
    call = guarded.v1.ListTasks(a2a_pb2.ListTasksRequest(), metadata=metadata)
    assert (await refusal(call)).code == "UNAUTHENTICATED"


async def test_two_good_credentials_of_one_account_are_one_caller(
    guarded: GrpcMesh, task: Json
) -> None:
    headers = {**ANN, "Authorization": "Bearer key-of-ben"}
    task_found = await guarded.bridged.at("/").call("GetTask", {"id": task["id"]}, headers)
    assert task_found["id"] == task["id"]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_key_may_be_sent_as_a_bearer_token(guarded: GrpcMesh, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {KEY_A}"}
    assert "tasks" in await guarded.bridged.at("/").call("ListTasks", {}, headers)


async def test_cards_and_health_are_public(guarded: GrpcMesh) -> None:
    bridged = guarded.bridged
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/healthz", "/readyz"):
        assert (await bridged.client.get(bridged.url + path)).status_code == 200
    card = (await bridged.client.get(f"{bridged.url}/.well-known/agent-card.json")).json()
    assert card["securityRequirements"] == [
        {"schemes": {"apiKey": {"list": []}}},
        {"schemes": {"bearer": {"list": []}}},
    ]
    assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"] == {
        "scheme": "Bearer",
        "bearerFormat": "JWT",
    }


async def test_only_authenticated_callers_get_detail_of_readiness(guarded: GrpcMesh) -> None:
    bridged = guarded.bridged
    await bridged.at("/agents/echo").call(
        "SendMessage", {"message": bridged.at("/").message("hello")}, ANN
    )

    async def read(path: str, **headers: str) -> tuple[int, Json]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await bridged.client.get(bridged.url + path, headers=named)
        return response.status_code, response.json()

    assert await read("/readyz") == (200, {"status": "ready"})
    assert await read("/healthz") == (200, {"status": "ok"})
    status, body = await read("/readyz", X_API_Key=KEY_A)
    assert (status, body["status"], body["agents"]["echo"]) == (200, "ready", "closed")
    assert set(body["breakers"].values()) == {"closed"}
    assert body["messages"] == "not served"
    # The address of a probe does not matter, credentials do.
    assert (await read("/readyz", X_API_Key=KEY_A, Host="10.1.2.3"))[1] == body
    for wrong in ({"X_API_Key": "wrong"}, {"Authorization": "Bearer wrong"}):
        status, error = await read("/readyz", **wrong)
        assert (status, error["error"]["status"]) == (401, "UNAUTHENTICATED")


class Keys(CredentialService):
    """The credentials of a reference SDK client for each scheme on a card."""

    def __init__(self, **credentials: str) -> None:
        self._credentials = credentials

    async def get_credentials(
        self, security_scheme_name: str, context: ClientCallContext | None
    ) -> str | None:
        return self._credentials.get(security_scheme_name)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("scheme", ["apiKey", "bearer"])
async def test_the_reference_client_authenticates_as_the_card_says(
    guarded: GrpcMesh, binding: str, scheme: str
) -> None:
    credential = KEY_A if scheme == "apiKey" else ISSUER_KEY.token({"org": "acme"})
    asked_for: list[str | None] = []

    def key_of(key_id: str | None, jku: str | None) -> jwt.PyJWK:
        asked_for.append(jku)
        return jwt.PyJWK(CARD_KEY.jwk())

    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        client = await create_client(
            f"{guarded.bridged.url}/agents/echo",
            ClientConfig(
                httpx_client=http,
                supported_protocol_bindings=[binding],
                grpc_channel_factory=grpc.aio.insecure_channel,
            ),
            interceptors=[AuthInterceptor(Keys(**{scheme: credential}))],
            signature_verifier=create_signature_verifier(key_of, ["ES256"]),
        )
        events = [event async for event in client.send_message(send_request("count 2"))]
        assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
        card = await client.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest())
        assert card.name == "echo"
    jwks = await guarded.bridged.client.get(asked_for[0] or "")
    assert jwks.json()["keys"][0]["kid"] == "cards"


async def test_the_etag_of_a_signed_card_is_stable(guarded: GrpcMesh) -> None:
    url = f"{guarded.bridged.url}/.well-known/agent-card.json"
    first = await guarded.bridged.client.get(url)
    again = await guarded.bridged.client.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    # Both forms are signed, since they differ for a card that requires credentials.
    assert len(first.json()["signatures"]) == 2


async def test_another_account_cannot_resume(guarded: GrpcMesh, task: Json) -> None:
    headers = {"Last-Event-ID": "1.0", "A2A-Extensions": RESUME_EXTENSION}
    for method in ("SubscribeToTask", "tasks/resubscribe"):
        caller = guarded.bridged.at("/")
        error = await caller.error(method, {"id": task["id"]}, {**headers, **BOB})
        assert error["code"] == -32001


async def test_anonymous_callers_share_tasks_where_they_are_allowed(tmp_path: Path) -> None:
    settings = Settings(
        default_agent="echo",
        api_keys_file=write_api_keys(tmp_path / "keys.toml", [("ann", "acme", KEY_A)]),
        anonymous=True,
    )
    async with open_bridged_mesh(tmp_path / "data", settings) as bridged:
        await bridged.mesh.join(echo)
        caller = bridged.at("/")
        task = await caller.send("hello")
        assert (await caller.error("GetTask", {"id": task["id"]}, ANN))["code"] == -32001
        assert (await caller.call("GetTask", {"id": task["id"]}))["id"] == task["id"]
        wrong = await caller.post("GetTask", {"id": task["id"]}, BOB)
        assert wrong.status_code == 401
        refused = await caller.post("GetExtendedAgentCard", {})
        assert refused.status_code == 401
        card = (await bridged.client.get(f"{bridged.url}/.well-known/agent-card.json")).json()
        assert card["security"][-1] == {}
