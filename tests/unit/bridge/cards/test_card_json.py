"""A card as JSON, for clients of every version at once."""

import copy
from typing import Any

from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v0_3
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import AgentCard
from google.protobuf import json_format

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.versions.card_json import (
    merged_card_json,
    parse_card,
    v0_1_card_json,
    v0_3_card_json,
)
from trunkline_bridge.versions.json_values import dumps

SKILL: dict[str, Any] = {
    "id": "s",
    "name": "S",
    "description": "Says.",
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
    "scopes": {"say": "Says."},
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


def test_it_is_the_reference_sdks_merge_but_for_what_that_leaves_out() -> None:
    theirs = agent_card_to_dict(json_format.ParseDict(CARD, AgentCard()))
    ours = merged_card_json(card())
    # Theirs says "0.3", and lists what is not first.
    assert (theirs.pop("protocolVersion"), ours.pop("protocolVersion")) == ("0.3", "0.3.0")
    older = [
        {"url": "http://h/", "transport": "JSONRPC"},
        {"url": "http://h", "transport": "HTTP+JSON"},
    ]
    assert (theirs.pop("additionalInterfaces"), ours.pop("additionalInterfaces")) == (
        older[1:],
        older,
    )
    # Theirs leaves empty lists of scopes out.
    for one in (theirs, ours, theirs["skills"][0], ours["skills"][0]):
        for requirement in one["securityRequirements"]:
            for scopes in requirement["schemes"].values():
                scopes.setdefault("list", [])
    assert ours == theirs


def test_clients_of_v1_0_read_all_of_it() -> None:
    received = parse_agent_card(copy.deepcopy(merged_card_json(card())))
    assert json_format.MessageToDict(received) == json_format.MessageToDict(card())
    assert parse_card(dumps(merged_card_json(card()))) == card()


def test_clients_of_v0_3_read_all_of_theirs() -> None:
    for form in (merged_card_json(card()), v0_3_card_json(card()), v0_1_card_json(card())):
        received = v0_3.AgentCard.model_validate(form)
        assert received.url == "http://h/"
        assert received.protocol_version == "0.3.0"
        assert received.supports_authenticated_extended_card is True
        assert received.security == [{"oauth": ["say"]}, {"tls": []}]
        assert received.skills[0].security == [{"key": [], "oauth": ["say"]}]
        schemes = {name: one.root for name, one in (received.security_schemes or {}).items()}
        assert {name: one.type for name, one in schemes.items()} == {
            "key": "apiKey",
            "http": "http",
            "oauth": "oauth2",
            "oidc": "openIdConnect",
            "tls": "mutualTLS",
        }
        oauth = schemes["oauth"]
        assert isinstance(oauth, v0_3.OAuth2SecurityScheme)
        assert oauth.flows.authorization_code is not None
        assert oauth.flows.authorization_code.scopes == {"say": "Says."}


def test_v0_3_gets_nothing_that_it_does_not_know() -> None:
    def known(model: Any, given: dict[str, Any]) -> set[str]:
        names = {field.alias or name for name, field in model.model_fields.items()}
        return set(given) - names

    form = v0_3_card_json(card())
    assert known(v0_3.AgentCard, form) == set()
    assert known(v0_3.AgentCapabilities, form["capabilities"]) == set()
    assert known(v0_3.AgentSkill, form["skills"][0]) == set()


def test_a_card_that_v0_3_cannot_reach_has_no_address_for_it() -> None:
    newer = card()
    del newer.supported_interfaces[2:]
    form = merged_card_json(newer)
    assert not {"url", "preferredTransport", "protocolVersion"} & set(form)


def test_what_v0_3_cannot_say_of_oauth_is_left_out_of_its_own_form_alone() -> None:
    newer = card()
    flows = newer.security_schemes["oauth"].oauth2_security_scheme.flows
    flows.authorization_code.pkce_required = True
    older = v0_3_card_json(newer)["securitySchemes"]["oauth"]["flows"]
    assert older == {"authorizationCode": FLOW}
    # The reference SDK reads v1.0 cards by their older fields where there are both.
    received = parse_agent_card(merged_card_json(newer)).security_schemes["oauth"]
    assert received.oauth2_security_scheme.flows.authorization_code.pkce_required
    flows.device_code.token_url = "https://t"
    assert v0_3_card_json(newer)["securitySchemes"]["oauth"]["flows"] == {}
    received = parse_agent_card(merged_card_json(newer)).security_schemes["oauth"]
    assert received.oauth2_security_scheme.flows.device_code.token_url == "https://t"


def test_the_original_form_has_the_original_words() -> None:
    form = v0_1_card_json(card())
    assert form["defaultInputModes"] == ["text/plain", "text"]
    assert form["authentication"] == {"schemes": ["Bearer"]}
    assert form["capabilities"]["stateTransitionHistory"] is False
