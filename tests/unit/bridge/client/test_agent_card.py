"""Cards of all versions are found and parsed, and the local agent's card is built from them."""

import json
from typing import Any

import pytest

from trunkline.v1.agent_card_pb2 import AgentCard
from trunkline_bridge.client.agent_card import (
    build_local_card,
    card_url_candidates,
    derive_agent_name,
    parse_remote_card,
)
from trunkline_bridge.client.interfaces import InterfaceSelector, ProtocolBinding
from trunkline_bridge.protocol import RESUME_EXTENSION

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


def read(card: object, **choice: Any) -> Any:
    return parse_remote_card(json.dumps(card).encode(), InterfaceSelector(URL, **choice))


def test_a_card_of_v1_0_says_how_its_agent_is_spoken_to() -> None:
    found = read(V1)
    assert (found.interface.binding, found.interface.version) == (ProtocolBinding.JSONRPC, "1.0")
    assert found.supports_streaming
    assert found.supports_resume


def test_a_card_of_v0_3_has_its_own_address_and_others() -> None:
    assert read(V0_3).interface.binding == ProtocolBinding.GRPC
    other = read(V0_3, bindings=("HTTP+JSON",))
    assert (other.interface.url, other.interface.version) == ("https://a.example/rest", "0.3")
    assert not other.supports_streaming
    assert not other.supports_resume


def test_an_older_card_may_say_as_good_as_nothing() -> None:
    found = read({"name": "old"})
    assert (found.interface.binding, found.interface.url) == (
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
def test_what_is_no_card_is_told_so(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_remote_card(body, InterfaceSelector(URL))


def test_our_card_says_what_theirs_does_but_not_where_and_for_whom() -> None:
    ours = build_local_card(read(V1).card, "scale")
    assert (ours.name, ours.description, ours.version) == ("scale", "Weighs things", "2.1.0")
    assert [skill.id for skill in ours.skills] == ["weigh"]
    for field in (
        "supported_interfaces",
        "security_schemes",
        "security_requirements",
        "signatures",
    ):
        assert not getattr(ours, field)
    assert not ours.HasField("capabilities")
    assert not ours.skills[0].security_requirements


def test_kinds_of_content_become_media_types() -> None:
    ours = build_local_card(read(V0_3).card, "scale")
    assert list(ours.default_input_modes) == ["text/plain"]
    assert list(ours.default_output_modes) == ["text/plain"]


def test_an_agent_without_skills_has_one_by_which_it_is_found() -> None:
    (skill,) = build_local_card(AgentCard(name="x", description="does"), "far").skills
    assert (skill.name, list(skill.tags)) == ("far", ["far"])


@pytest.mark.parametrize(
    ("said", "name"),
    [("The Scale, No. 1!", "the-scale-no-1"), ("--x--", "x"), ("Ünï", "n"), ("秤", ""), ("", "")],
)
def test_a_name_is_made_of_the_cards(said: str, name: str) -> None:
    assert derive_agent_name(AgentCard(name=said)) == name


def test_a_card_is_looked_for_where_it_may_be() -> None:
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
