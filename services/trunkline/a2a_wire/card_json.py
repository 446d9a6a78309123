"""Agent cards as JSON, with the members of v1.0 and of older versions together."""

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.json_format import ParseError

from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v1_0.json_writer import agent_card_json
from trunkline.json_values import parse_dict
from trunkline.v1 import agent_card_pb2, security_scheme_pb2

_LEGACY_MAJOR = "0."
# Cards of v0.3 have a version of three numbers.
_PATCH = ".0"
# Security schemes: the member name in v1.0, and the `type` in v0.3.
_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}

REQUIRED_CARD_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "AgentCard": (
            "name description supported_interfaces version capabilities default_input_modes "
            "default_output_modes skills"
        ),
        "AgentInterface": "url protocol_binding protocol_version",
        "AgentProvider": "url organization",
        "AgentSkill": "id name description tags",
        "APIKeySecurityScheme": "location name",
        "HTTPAuthSecurityScheme": "scheme",
        "OAuth2SecurityScheme": "flows",
        "OpenIdConnectSecurityScheme": "open_id_connect_url",
        "AuthorizationCodeOAuthFlow": "authorization_url token_url scopes",
        "ClientCredentialsOAuthFlow": "token_url scopes",
        "DeviceCodeOAuthFlow": "device_authorization_url token_url scopes",
    }.items()
}
"""The fields that A2A requires, by message. The canonical form of a card has them even if they are
empty."""


def merged_card_json(card: agent_card_pb2.AgentCard) -> Json:
    """Return a card that clients of v0.2, v0.3 and v1.0 can read.

    A member that exists in several versions has the same meaning in all. A security scheme has the
    members of both versions, because `a2a-sdk` 1.x reads the older ones. Signatures cover only the
    members of v1.0.
    """
    result = agent_card_json(card)
    result |= _addresses(card)
    if card.security_requirements:
        result["security"] = [
            _requirement(requirement) for requirement in card.security_requirements
        ]
    # Some readers of v0.3 need `type` before the other members.
    for name, scheme in result.get("securitySchemes", {}).items():
        result["securitySchemes"][name] = {**_flat_scheme(scheme), **scheme}
    for skill, members in zip(card.skills, result["skills"], strict=True):
        if skill.security_requirements:
            members["security"] = [
                _requirement(requirement) for requirement in skill.security_requirements
            ]
    if card.capabilities.extended_agent_card:
        result["supportsAuthenticatedExtendedCard"] = True
    return result


def v0_3_card_json(card: agent_card_pb2.AgentCard) -> Json:
    """Return a card with only the members of v0.3."""
    result = merged_card_json(card)
    for name in ("supportedInterfaces", "securityRequirements"):
        result.pop(name, None)
    # They cover the card of v1.0, which clients can't derive from this one.
    result.pop("signatures", None)
    result["capabilities"].pop("extendedAgentCard", None)
    for skill in result["skills"]:
        skill.pop("securityRequirements", None)
    for scheme in result.get("securitySchemes", {}).values():
        for name in _TYPES:
            scheme.pop(name, None)
        if "flows" in scheme:
            scheme["flows"] = _older_flows(scheme["flows"])
    return result


def v0_1_card_json(card: agent_card_pb2.AgentCard) -> Json:
    """Return the card for v0.1 and v0.2, which fetch it from the same path.

    v0.1 has other names for media types and for authentication.
    """
    result = v0_3_card_json(card)
    result["capabilities"].setdefault("stateTransitionHistory", False)
    for modes in (result["defaultInputModes"], result["defaultOutputModes"]):
        if "text/plain" in modes:
            modes.append("text")
    if schemes := _authentication(card):
        result["authentication"] = {"schemes": schemes}
    return result


def _addresses(card: agent_card_pb2.AgentCard) -> Json:
    """Return the card's URL, which is the first older interface, and the list of all older ones."""
    older = [
        interface
        for interface in card.supported_interfaces
        if interface.protocol_version.startswith(_LEGACY_MAJOR)
    ]
    if not older:
        return {}
    return {
        "protocolVersion": older[0].protocol_version + _PATCH,
        "url": older[0].url,
        "preferredTransport": older[0].protocol_binding,
        "additionalInterfaces": [
            {"url": interface.url, "transport": interface.protocol_binding} for interface in older
        ],
    }


def _requirement(requirement: security_scheme_pb2.SecurityRequirement) -> dict[str, list[str]]:
    return {name: list(scopes.list) for name, scopes in requirement.schemes.items()}


def _flat_scheme(scheme: Json) -> Json:
    """Convert a scheme of v1.0 to the form of OpenAPI and v0.3."""
    for member, kind in _TYPES.items():
        if member in scheme:
            flat = dict(scheme[member])
            if "location" in flat:
                flat["in"] = flat.pop("location")
            if "flows" in flat:
                flat["flows"] = {
                    # v0.3 requires them in every flow.
                    name: {"scopes": {}, **flow}
                    for name, flow in flat["flows"].items()
                }
            return {"type": kind, **flat}
    return {}


def _older_flows(flows: dict[str, Any]) -> dict[str, Any]:
    """Return the OAuth flows without the device code flow and PKCE, which v0.3 does not have."""
    return {
        name: {key: value for key, value in flow.items() if key != "pkceRequired"}
        for name, flow in flows.items()
        if name != "deviceCode"
    }


def _authentication(card: agent_card_pb2.AgentCard) -> list[str]:
    """Return the names of the card's HTTP schemes; v0.1 has no other kind."""
    names = [
        scheme.http_auth_security_scheme.scheme
        for scheme in card.security_schemes.values()
        if scheme.HasField("http_auth_security_scheme")
    ]
    return sorted(set(names))


def parse_card(text: str | bytes) -> agent_card_pb2.AgentCard:
    """Parse the v1.0 fields of a card's JSON and ignore other fields.

    Raises:
        ValueError: The text is not an agent card.
    """
    try:
        value = json.loads(text, object_pairs_hook=_build_object)
        return parse_dict(value, agent_card_pb2.AgentCard(), ignore_unknown_fields=True)
    except (ParseError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"is no agent card: {error}") from error


def _build_object(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a member twice")
    return members
