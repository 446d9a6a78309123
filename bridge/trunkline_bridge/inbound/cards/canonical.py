"""The bytes of a card that its signature is over (A2A v1.0, 8.4; RFC 8785).

The specification has one form. `a2a-sdk` leaves more out, and some sign a card as it was sent; so
there are three by which a signature may be meant.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import rfc8785
from google.protobuf import json_format, struct_pb2
from google.protobuf.message import Message

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.wire.json_values import Json, struct

SPECIFIED, PRUNED, AS_SENT = "specified", "pruned", "as sent"

# Fields that A2A requires: they are there even if they are empty.
_REQUIRED: Mapping[str, frozenset[str]] = {
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
_NONE: frozenset[str] = frozenset()
# Beyond this, a whole number isn't the same number for everybody.
_EXACT = 2**53 - 1
# Cards nest a dozen levels; what agents put into parameters of extensions may nest further.
_DEPTH = 100


class NoCanonicalFormError(ValueError):
    """A card has no such form: it nests too deep, or has a number that JSON can't hold."""


def specified_form(card: agent_card_pb2.AgentCard) -> bytes:
    """Return the form of the specification.

    Required fields are always there, those with presence if they are set, others unless they have
    their default.
    """
    return _canonical(lambda: _present(card, leave_out="signatures"))


def pruned_form(card: agent_card_pb2.AgentCard) -> bytes:
    """Return the form of `a2a-sdk` 1.x: without anything that is empty, required or not."""

    def prune() -> Any:  # noqa: ANN401  any JSON value
        value = json_format.MessageToDict(card)
        value.pop("signatures", None)
        return _without_empty(value)

    return _canonical(prune)


def form_as_sent(text: str | bytes) -> bytes:
    """Return the form of those that sign whatever they send, also what v1.0 doesn't know."""

    def read() -> Json:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("is no card")
        return {name: one for name, one in value.items() if name != "signatures"}

    return _canonical(read)


def _canonical(make: Callable[[], Any]) -> bytes:
    try:
        return rfc8785.dumps(_exact(make(), _DEPTH))
    except (ValueError, RecursionError) as error:
        raise NoCanonicalFormError(str(error) or "it nests too deep") from error


def _present(message: Message, *, leave_out: str = "") -> Json:
    required = _REQUIRED.get(message.DESCRIPTOR.name, _NONE)
    found: Json = {}
    for field in message.DESCRIPTOR.fields:
        if field.name == leave_out:
            continue
        if field.name in required or _is_set(message, field):
            found[field.json_name] = _value(message, field)
    return found


def _is_set(message: Message, field: Any) -> bool:  # noqa: ANN401  descriptors have two types
    if field.has_presence:
        return message.HasField(field.name)
    return bool(getattr(message, field.name))


def _value(message: Message, field: Any) -> Any:  # noqa: ANN401  any JSON value
    value = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return {name: _message(value[name]) for name in value}
    if field.is_repeated:
        return [_message(one) for one in value]
    return _message(value)


def _message(value: Any) -> Any:  # noqa: ANN401  what a map holds may be a text
    if isinstance(value, struct_pb2.Struct):
        return struct(value)
    return _present(value) if isinstance(value, Message) else value


def _without_empty(value: Any) -> Any:  # noqa: ANN401  any JSON value
    pairs: Iterator[tuple[Any, Any]]
    if isinstance(value, dict):
        pairs = ((name, _without_empty(one)) for name, one in value.items())
        return {name: one for name, one in pairs if one is not None} or None
    if isinstance(value, list):
        return [one for one in map(_without_empty, value) if one is not None] or None
    return None if value == "" else value


def _exact(value: Any, depth: int) -> Any:  # noqa: ANN401  any JSON value
    """Return a value whose large whole numbers are doubles, as they are for JSON's readers."""
    if not depth:
        raise NoCanonicalFormError("it nests too deep")
    if isinstance(value, dict):
        return {name: _exact(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_exact(one, depth - 1) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return float(value)
    return value
