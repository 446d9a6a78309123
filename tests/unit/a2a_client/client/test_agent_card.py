"""Cards of all versions are found and parsed, and the local agent's card is derived from them."""

import json
from typing import Any

import pytest

from trunkline.a2a_client.agent_card import (
    build_local_card,
    card_url_candidates,
    derive_agent_name,
    parse_remote_card,
)
from trunkline.a2a_client.interfaces import InterfaceSelector, ProtocolBinding
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.v1.agent_card_pb2 import AgentCard

URL = "https://a.example/.well-known/agent-card.json"
SKILL = {"id": "weigh", "name": "Weigh", "description": "Returns kg", "tags": ["mass"]}
V1: dict[str, Any] = {
    "name": "The Scale, No. 1!",
    "description": "Weighs things",
    "version": "2.1.0",
    "supportedInterfaces": [
        {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True, "extensions": [{"uri": RESUME_EXTENSION}]},
    "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}},
    "securityRequirements": [{"schemes": {"k": {}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{**SKILL, "securityRequirements": [{"schemes": {"k": {}}}]}],
    "signatures": [{"protected": "a", "signature": "b"}],
    "unheardOf": {"x": 1},
}
V0_3: dict[str, Any] = {
    "protocolVersion": "0.3.0",
    "name": "scale",
    "description": "Weighs things",
    "url": "https://a.example/rpc",
    "preferredTransport": "GRPC",
    "additionalInterfaces": [{"url": "https://a.example/rest", "transport": "HTTP+JSON"}, 7],
    "version": "1",
    "capabilities": {"streaming": False, "stateTransitionHistory": True},
    "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X"}},
    "security": [{"k": []}],
    "defaultInputModes": ["text"],
    "defaultOutputModes": [],
    "skills": [{**SKILL, "security": [{"k": []}]}],
    "supportsAuthenticatedExtendedCard": True,
}


def parse(card: object, **options: Any) -> Any:
    return parse_remote_card(json.dumps(card).encode(), InterfaceSelector(URL, **options))


def test_a_v0_3_card_has_its_main_and_additional_interfaces() -> None:
    assert parse(V0_3).interface.binding == ProtocolBinding.GRPC
    other = parse(V0_3, bindings=("HTTP+JSON",))
    assert (other.interface.url, other.interface.version) == ("https://a.example/rest", "0.3")
    assert not other.supports_streaming
    assert not other.supports_resume


def test_a_minimal_old_card_is_accepted() -> None:
    remote = parse({"name": "old"})
    assert (remote.interface.binding, remote.interface.url) == (
        ProtocolBinding.JSONRPC,
        "https://a.example",
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "no agent card"),
        (b"{}", "no agent card"),
        (b'{"name":7}', "no agent card"),
        (b'{"name":"x","skills":7}', "no agent card"),
        (b'{"name":"x","capabilities":{"extensions":[{"uri":"u","required":true}]}}', "requires"),
        (b'{"name":"x","url":"mailto:x"}', "no interface that we speak"),
    ],
)
def test_an_invalid_card_is_refused_with_the_reason(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_remote_card(body, InterfaceSelector(URL))


def test_the_local_card_omits_addresses_security_and_signatures() -> None:
    local_card = build_local_card(parse(V1).card, "scale")
    assert (local_card.name, local_card.description, local_card.version) == (
        "scale",
        "Weighs things",
        "2.1.0",
    )
    assert [skill.id for skill in local_card.skills] == ["weigh"]
    for field in (
        "supported_interfaces",
        "security_schemes",
        "security_requirements",
        "signatures",
    ):
        assert not getattr(local_card, field)
    assert not local_card.HasField("capabilities")
    assert not local_card.skills[0].security_requirements


def test_v0_1_content_kinds_become_media_types() -> None:
    local_card = build_local_card(parse(V0_3).card, "scale")
    assert list(local_card.default_input_modes) == ["text/plain"]
    assert list(local_card.default_output_modes) == ["text/plain"]


def test_an_agent_without_skills_gets_a_default_skill() -> None:
    (skill,) = build_local_card(AgentCard(name="x", description="does"), "far").skills
    assert (skill.name, list(skill.tags)) == ("far", ["far"])


@pytest.mark.parametrize(
    ("card_name", "name"),
    [("The Scale, No. 1!", "the-scale-no-1"), ("--x--", "x"), ("Ünï", "n"), ("秤", ""), ("", "")],
)
def test_a_name_is_derived_from_the_cards_name(card_name: str, name: str) -> None:
    assert derive_agent_name(AgentCard(name=card_name)) == name


def test_candidate_urls_of_a_card() -> None:
    assert card_url_candidates("https://a.example/x/card.json") == (
        "https://a.example/x/card.json",
    )
    assert card_url_candidates("https://a.example/x/?q#f") == (
        "https://a.example/x/.well-known/agent-card.json",
        "https://a.example/x/.well-known/agent.json",
        "https://a.example/.well-known/agent-card.json",
        "https://a.example/.well-known/agent.json",
    )
    assert len(card_url_candidates("https://a.example")) == 2
