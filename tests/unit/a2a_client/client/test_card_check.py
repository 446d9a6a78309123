"""Problems of agent cards: each names a field and what would be right."""

import copy
from typing import Any

import pytest

from trunkline.a2a_client.card_check import find_card_problems
from trunkline.a2a_wire.card_json import merged_card_json, v0_3_card_json
from trunkline.v1 import agent_card_pb2

Json = dict[str, Any]


@pytest.fixture
def card() -> Json:
    """Return a card for v1.0 and v0.3."""
    message = agent_card_pb2.AgentCard(
        name="a",
        description="d",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[agent_card_pb2.AgentSkill(id="s", name="s", description="s", tags=["t"])],
    )
    message.capabilities.streaming = True
    for version in ("1.0", "0.3"):
        message.supported_interfaces.add(
            url="https://example.com/", protocol_binding="JSONRPC", protocol_version=version
        )
    scheme = message.security_schemes["key"].api_key_security_scheme
    scheme.location, scheme.name = "header", "X-API-Key"
    # Reading an entry adds it.
    _ = message.security_requirements.add().schemes["key"]
    value = merged_card_json(message)
    value["older"] = v0_3_card_json(message)
    return value


def fields(card: Json) -> list[str]:
    return [problem.field for problem in find_card_problems(card)]


def test_cards_that_we_serve_have_no_problems(card: Json) -> None:
    older = card.pop("older")
    assert find_card_problems(card) == []
    assert find_card_problems(older) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("name",), None, "name"),
        (("name",), 5, "name"),
        (("skills",), {}, "skills"),
        (("skills", 0, "tags"), "t", "skills[0].tags"),
        (("skills", 0, "tags"), [1], "skills[0].tags[0]"),
        (("skills", 0), "s", "skills[0]"),
        (("skills", 0, "id"), None, "skills[0].id"),
        (("capabilities",), [], "capabilities"),
        (("capabilities", "extensions"), [{"uri": 1}], "capabilities.extensions[0].uri"),
        (("supportedInterfaces",), [], "supportedInterfaces"),
        (
            ("supportedInterfaces", 0, "protocolVersion"),
            "one",
            "supportedInterfaces[0].protocolVersion",
        ),
        (("supportedInterfaces", 0, "url"), "http://[", "supportedInterfaces[0].url"),
        (("securityRequirements",), [{"schemes": {"x": {}}}], "securityRequirements[0].schemes.x"),
        (("securitySchemes",), [], "securitySchemes"),
    ],
)
def test_a_wrong_field_of_v1_0_is_named(
    card: Json, path: tuple[str | int, ...], value: object, field: str
) -> None:
    del card["older"]
    _change(card, path, value)
    assert fields(card) == [field]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("url",), None, "url"),
        (("url",), "/rpc", "url"),
        (("protocolVersion",), None, "protocolVersion"),
        (("preferredTransport",), 1, "preferredTransport"),
        (("additionalInterfaces", 0, "transport"), None, "additionalInterfaces[0].transport"),
        (("additionalInterfaces", 0), "x", "additionalInterfaces[0]"),
        (("skills", 0, "tags"), None, "skills[0].tags"),
        (("defaultInputModes",), ["text"], "defaultInputModes[0]"),
    ],
)
def test_a_wrong_field_of_v0_3_is_named(
    card: Json, path: tuple[str | int, ...], value: object, field: str
) -> None:
    older = card["older"]
    _change(older, path, value)
    assert fields(older) == [field]


def test_a_card_of_no_version_lacks_interfaces_and_problems_are_bounded() -> None:
    assert "supportedInterfaces" in fields({"name": "a"})
    assert len(fields({"name": "a", "skills": [1] * 1000})) == 100
    skill = {"id": "s", "name": "s", "description": "s", "tags": []}
    assert "skills" in fields({"skills": [skill, copy.copy(skill)]})


def _change(value: Any, path: tuple[str | int, ...], new: object) -> None:
    *parents, last = path
    for part in parents:
        value = value[part]
    if new is None:
        del value[last]
    else:
        value[last] = new
