"""Agent cards for clients of every version, from a bridge on a real socket."""

from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3 import types as v0_3

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.workflows.building import build
from trunkline import TaskContext, agent, from_workflow
from trunkline.a2a_wire.protocol import PLAIN_EXTENSION, RESUME_EXTENSION
from trunkline.v1 import agent_card_pb2, security_scheme_pb2
from trunkline_agents.echo.agent import echo
from trunkline_bridge.callers.caller import CallerIdentity, SecurityRequirements, ServiceParameters

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARD = "/.well-known/agent-card.json"
ORIGINAL = "/.well-known/agent.json"


async def read(bridged: BridgedMesh, path: str, **headers: str) -> dict[str, Any]:
    response = await bridged.client.get(bridged.url + path, headers=headers)
    assert response.status_code == 200, response.text
    card: dict[str, Any] = response.json()
    return card


def addresses(card: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (interface["protocolVersion"], interface["protocolBinding"], interface["url"])
        for interface in card["supportedInterfaces"]
    ]


async def test_cards_have_the_agent_s_addresses_and_capabilities(bridged: BridgedMesh) -> None:
    root = await read(bridged, CARD)
    named = await read(bridged, f"/agents/echo{CARD}")
    assert addresses(root) == [
        ("1.0", "JSONRPC", f"{bridged.url}/"),
        ("1.0", "HTTP+JSON", bridged.url),
        ("0.3", "JSONRPC", f"{bridged.url}/"),
        ("0.3", "HTTP+JSON", bridged.url),
    ]
    assert {url for _, _, url in addresses(named)} == {f"{bridged.url}/agents/echo"}
    extensions = [extension["uri"] for extension in named["capabilities"]["extensions"]]
    assert extensions == [RESUME_EXTENSION, PLAIN_EXTENSION]


async def test_a_name_is_a_part_of_addresses_as_it_is(bridged: BridgedMesh) -> None:
    names = ("student_teacher_review", "Reviewer-2.v1", "_")
    workflows = [build(name, {"id": "end", "output": "hi"}, edges="start > end") for name in names]
    await bridged.mesh.join(*map(from_workflow, workflows))
    await bridged.mesh.supervise()
    for name in names:
        card = await read(bridged, f"/agents/{name}{CARD}")
        assert {url for _, _, url in addresses(card)} == {f"{bridged.url}/agents/{name}"}
        task = await bridged.at(f"/agents/{name}").send("go")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        asked = await bridged.at("/agents/supervisor").send(f"@{name.upper()}. Go")
        assert asked["metadata"]["trunkline/route"]["agent"] == name


async def test_the_original_path_has_the_original_fields(bridged: BridgedMesh) -> None:
    card = await read(bridged, ORIGINAL)
    assert card == await read(bridged, ORIGINAL, Accept="*/*")
    assert card["url"] == f"{bridged.url}/"
    assert "text" in card["defaultInputModes"] or "*/*" in card["defaultInputModes"]
    assert card["capabilities"]["stateTransitionHistory"] is False
    assert "supportedInterfaces" not in card
    assert v0_3.AgentCard.model_validate(card).name == "echo"
    assert (await read(bridged, f"/agents/echo{ORIGINAL}"))["url"].endswith("/agents/echo")


async def test_a_v0_3_card_names_grpc_only_where_its_agent_answers(
    bridged: BridgedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bridged.mesh.join(advisor)
    addresses_ = bridged.bridge.addresses
    monkeypatch.setattr(addresses_, "grpc", "127.0.0.1:50052")

    async def v0_3_grpc(path: str) -> list[str]:
        card = v0_3.AgentCard.model_validate(await read(bridged, path + CARD))
        interfaces = card.additional_interfaces or ()
        return [entry.url for entry in interfaces if entry.transport == "GRPC"]

    # At the address of all agents, v0.3 reaches only the default one.
    assert await v0_3_grpc("/agents/echo") == await v0_3_grpc("") == ["127.0.0.1:50052"]
    assert await v0_3_grpc("/agents/advisor") == []
    monkeypatch.setitem(addresses_.agent_grpc, "advisor", "0.0.0.0:50061")
    assert await v0_3_grpc("/agents/advisor") == ["127.0.0.1:50061"]
    # v1.0 names the agent by the tenant.
    card = await read(bridged, f"/agents/advisor{CARD}")
    (newer,) = (
        entry
        for entry in card["supportedInterfaces"]
        if (entry["protocolBinding"], entry["protocolVersion"]) == ("GRPC", "1.0")
    )
    assert (newer["url"], newer["tenant"]) == ("127.0.0.1:50052", "advisor")


async def test_a_card_is_sent_again_only_when_it_has_changed(bridged: BridgedMesh) -> None:
    url = f"{bridged.url}/agents/echo{CARD}"

    async def status(**headers: str) -> int:
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await bridged.client.get(url, headers=header_fields)).status_code

    first = await bridged.client.get(url)
    etag, modified = first.headers["etag"], first.headers["last-modified"]
    assert first.headers["cache-control"] == "private, no-cache, max-age=0"
    for header in (etag, etag.removeprefix("W/"), f'"x", {etag}', "*"):
        assert await status(If_None_Match=header) == 304
    assert await status(If_None_Match='"x"') == 200
    assert await status(If_Modified_Since=modified) == 304
    assert await status(If_Modified_Since="Wed, 01 Jan 2020 00:00:00 GMT") == 200
    assert await status(If_Modified_Since="yesterday") == 200
    # If both headers are present, the tag decides.
    assert await status(If_None_Match='"x"', If_Modified_Since=modified) == 200


async def test_not_modified_and_head_have_the_headers_of_get(bridged: BridgedMesh) -> None:
    url = bridged.url + CARD
    answer = await bridged.client.get(url)
    head = await bridged.client.head(url)
    assert (head.status_code, head.content) == (200, b"")
    unchanged = await bridged.client.get(url, headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    for name in ("etag", "last-modified", "cache-control"):
        assert head.headers[name] == unchanged.headers[name] == answer.headers[name]
    assert head.headers["content-length"] == answer.headers["content-length"]


class SecretAuthenticator:
    """Authenticates callers that send `secret`."""

    security = SecurityRequirements(
        schemes={
            "key": security_scheme_pb2.SecurityScheme(
                api_key_security_scheme=security_scheme_pb2.APIKeySecurityScheme(
                    location="header", name="X-API-Key"
                )
            )
        },
        requirements=[
            security_scheme_pb2.SecurityRequirement(
                schemes={"key": security_scheme_pb2.StringList()}
            )
        ],
        challenge='Bearer realm="test"',
    )

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        return parameters.get(b"x-api-key") is not None

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        is_known = parameters.get(b"x-api-key") == "secret"
        return (
            CallerIdentity("acme", "ann", is_authenticated=True) if is_known else CallerIdentity()
        )


@agent(
    name="advisor",
    description="Advises.",
    extended_skills=[agent_card_pb2.AgentSkill(id="inside", name="Inside", description="Knows.")],
)
async def advisor(task: TaskContext) -> str:
    return task.text


async def test_the_extended_card_is_for_authenticated_callers(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path, access=SecretAuthenticator()) as bridged:
        await bridged.mesh.join(advisor, echo)
        public = await read(bridged, f"/agents/advisor{CARD}")
        assert public["capabilities"]["extendedAgentCard"] is True
        assert [skill["id"] for skill in public["skills"]] == ["advisor"]

        caller = bridged.at("/agents/advisor")
        refused = await caller.post("GetExtendedAgentCard", {})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (
            401,
            'Bearer realm="test"',
        )
        known = {"X-API-Key": "secret"}
        card = await caller.call("GetExtendedAgentCard", {}, known)
        assert [skill["id"] for skill in card["skills"]] == ["advisor", "inside"]
        assert card["supportedInterfaces"] == public["supportedInterfaces"]

        older = f"{bridged.url}/agents/advisor/agent/authenticatedExtendedCard"
        assert (await bridged.client.get(older)).status_code == 401
        answer = await bridged.client.get(older, headers=known)
        assert [skill["id"] for skill in answer.json()["skills"]] == ["advisor", "inside"]
        assert answer.headers["cache-control"] == "private, no-store"
