"""Agent cards as JSON for clients of all versions at once."""

from typing import Any

from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v0_3
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard

from trunkline.a2a_wire.card_json import (
    merged_card_json,
    parse_card,
    v0_1_card_json,
    v0_3_card_json,
)
from trunkline.a2a_wire.json_values import dumps
from trunkline.core.json_values import parse_dict
from trunkline.v1 import agent_card_pb2

SKILL: dict[str, Any] = {
    "id": "s",
    "name": "S",
    "description": "Speaks.",
    "tags": ["t"],
    "examples": ["e"],
    "inputModes": ["a/b"],
    "outputModes": ["c/d"],
    "securityRequirements": [{"schemes": {"key": {"list": []}, "oauth": {"list": ["say"]}}}],
}
FLOW = {
    "authorizationUrl": "https://a",
    "tokenUrl": "https://t",
    "refreshUrl": "https://r",
    "scopes": {"say": "Speaks."},
}
CARD: dict[str, Any] = {
    "name": "rich",
    "description": "Has everything.",
    "version": "1.2.3",
    "provider": {"organization": "o", "url": "https://o"},
    "documentationUrl": "https://d",
    "iconUrl": "https://i",
    "supportedInterfaces": [
        {"url": "http://h/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "h:1", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "rich"},
        {"url": "http://h/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": "http://h", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
    ],
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [{"uri": "e", "description": "d", "required": True, "params": {"a": 1}}],
    },
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "cookie", "name": "k", "description": "d"}},
        "http": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {"authorizationCode": FLOW},
                "oauth2MetadataUrl": "https://m",
            }
        },
        "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://c"}},
        "tls": {"mtlsSecurityScheme": {"description": "d"}},
    },
    "securityRequirements": [
        {"schemes": {"oauth": {"list": ["say"]}}},
        {"schemes": {"tls": {"list": []}}},
    ],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "image/png"],
    "skills": [SKILL],
}


def card() -> agent_card_pb2.AgentCard:
    return parse_card(dumps(CARD))


def test_merged_json_equals_the_reference_sdks_except_for_its_omissions() -> None:
    expected = agent_card_to_dict(parse_dict(CARD, AgentCard()))
    actual = merged_card_json(card())
    # The SDK writes "0.3", and lists all interfaces but the first.
    assert (expected.pop("protocolVersion"), actual.pop("protocolVersion")) == ("0.3", "0.3.0")
    older_interfaces = [
        {"url": "http://h/", "transport": "JSONRPC"},
        {"url": "http://h", "transport": "HTTP+JSON"},
    ]
    assert (expected.pop("additionalInterfaces"), actual.pop("additionalInterfaces")) == (
        older_interfaces[1:],
        older_interfaces,
    )
    # The SDK omits empty lists of scopes.
    for item in (expected, actual, expected["skills"][0], actual["skills"][0]):
        for requirement in item["securityRequirements"]:
            for scopes in requirement["schemes"].values():
                scopes.setdefault("list", [])
    assert actual == expected


def test_v0_3_clients_read_every_field_of_their_version() -> None:
    for card_json in (merged_card_json(card()), v0_3_card_json(card()), v0_1_card_json(card())):
        received = v0_3.AgentCard.model_validate(card_json)
        assert received.url == "http://h/"
        assert received.protocol_version == "0.3.0"
        assert received.supports_authenticated_extended_card is True
        assert received.security == [{"oauth": ["say"]}, {"tls": []}]
        assert received.skills[0].security == [{"key": [], "oauth": ["say"]}]
        schemes = {name: scheme.root for name, scheme in (received.security_schemes or {}).items()}
        assert {name: scheme.type for name, scheme in schemes.items()} == {
            "key": "apiKey",
            "http": "http",
            "oauth": "oauth2",
            "oidc": "openIdConnect",
            "tls": "mutualTLS",
        }
        oauth = schemes["oauth"]
        assert isinstance(oauth, v0_3.OAuth2SecurityScheme)
        assert oauth.flows.authorization_code is not None
        assert oauth.flows.authorization_code.scopes == {"say": "Speaks."}


def test_a_card_without_v0_3_interfaces_has_no_v0_3_address() -> None:
    newer_card = card()
    del newer_card.supported_interfaces[2:]
    card_json = merged_card_json(newer_card)
    assert not {"url", "preferredTransport", "protocolVersion"} & set(card_json)


def test_newer_oauth_flows_are_omitted_from_v0_3_json_only() -> None:
    newer_card = card()
    flows = newer_card.security_schemes["oauth"].oauth2_security_scheme.flows
    flows.authorization_code.pkce_required = True
    older_interfaces = v0_3_card_json(newer_card)["securitySchemes"]["oauth"]["flows"]
    assert older_interfaces == {"authorizationCode": FLOW}
    # The reference SDK reads v1.0 cards by their older fields where both are present.
    received = parse_agent_card(merged_card_json(newer_card)).security_schemes["oauth"]
    assert received.oauth2_security_scheme.flows.authorization_code.pkce_required
    flows.device_code.token_url = "https://t"
    assert v0_3_card_json(newer_card)["securitySchemes"]["oauth"]["flows"] == {}
    received = parse_agent_card(merged_card_json(newer_card)).security_schemes["oauth"]
    assert received.oauth2_security_scheme.flows.device_code.token_url == "https://t"


def test_v0_1_json_has_the_v0_1_fields() -> None:
    card_json = v0_1_card_json(card())
    assert card_json["defaultInputModes"] == ["text/plain", "text"]
    assert card_json["authentication"] == {"schemes": ["Bearer"]}
    assert card_json["capabilities"]["stateTransitionHistory"] is False
