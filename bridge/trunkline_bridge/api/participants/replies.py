"""Reads the answers of participants: envelopes, payloads, or nothing."""

from typing import Final

from google.protobuf.json_format import ParseError

from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import parse_dict
from trunkline.errors import PeerProtocolError
from trunkline.messages.store import Envelope
from trunkline_bridge.http.json_decoder import decode_json

_MAX_REPLIES: Final = 100
# The fields of a reply that a participant sets. The mesh sets the other fields.
_FIELDS: Final = ("recipient", "room", "type", "type_version", "priority")


def decode_replies(peer: str, body: bytes, *, default_type: str) -> list[Envelope]:
    """Return the replies in a JSON text. An empty text has no replies.

    Raises:
        PeerProtocolError: it is not an answer to a message.
    """
    if not body.strip():
        return []
    try:
        value = decode_json(body)
    except ValueError as error:
        raise PeerProtocolError(peer, f"its answer is not JSON: {error}") from None
    return read_replies(peer, value, default_type=default_type)


def read_replies(peer: str, value: JsonValue, *, default_type: str) -> list[Envelope]:
    """Return the replies in a JSON value: one, a list of them, or None.

    Raises:
        PeerProtocolError: it is not an answer to a message.
    """
    values = value if isinstance(value, list) else [] if value is None else [value]
    if len(values) > _MAX_REPLIES:
        raise PeerProtocolError(peer, f"it answers with more than {_MAX_REPLIES} messages")
    return [_read_reply(peer, item, default_type) for item in values]


def _read_reply(peer: str, value: object, default_type: str) -> Envelope:
    if isinstance(value, str):
        return Envelope(type="answer", text=value)
    if not isinstance(value, dict):
        problem = "its answer is neither a message, a JSON object, a text nor a list of these"
        raise PeerProtocolError(peer, problem)
    is_envelope = "type" in value and ("text" in value or "data" in value)
    fields = value if is_envelope else {"type": default_type, "data": value}
    try:
        parsed = parse_dict(fields, Envelope(), ignore_unknown_fields=True)
    # Some values make the parser raise other errors than its own.
    except (ParseError, RecursionError, TypeError, ValueError):
        raise PeerProtocolError(peer, "its answer is no message of the mesh") from None
    reply = Envelope()
    for name in _FIELDS:
        setattr(reply, name, getattr(parsed, name))
    if parsed.WhichOneof("payload") == "data":
        reply.data.CopyFrom(parsed.data)
    else:
        reply.text = parsed.text
    if parsed.HasField("metadata"):
        reply.metadata.CopyFrom(parsed.metadata)
    return reply
