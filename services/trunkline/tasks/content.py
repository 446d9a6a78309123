"""Converts between the values of authors (text, parts, mappings) and the contract's messages."""

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypeAlias

from google.protobuf import json_format, struct_pb2

from trunkline.errors import InvalidAgentResponseError, InvalidArgumentError
from trunkline.v1 import message_pb2, part_pb2

# The nesting limit of JSON values: protobuf parses messages 100 deep, and each JSON level takes 3.
_MAX_DEPTH: Final = 24
# A Struct stores numbers as doubles, which round integers from this number on.
_ROUNDED_FROM: Final = 2**53

ENVELOPE_KEY: Final = "trunkline/envelope"
"""The metadata of an artifact that is a reply to a message between agents: the fields of the reply
as JSON, without the payload."""
INPUT_RESPONSES: Final = "inputResponses"
"""The key of MCP's answers in the data part that answers a question of a tool."""

_DATA_TYPE: Final = "application/json"

Piece: TypeAlias = str | part_pb2.Part | Mapping[str, Any]
"""A piece of an artifact: a text, a part, or a JSON object."""
Content: TypeAlias = Piece | message_pb2.Message
"""The content of a message, or a whole message."""
PIECE_TYPES: Final = (str, Mapping, part_pb2.Part)
"""`Piece` for checks at run time."""
CONTENT_TYPES: Final = (*PIECE_TYPES, message_pb2.Message)
"""The types of a message; `Content` for checks at run time."""
RESULT_TYPES: Final = (*CONTENT_TYPES, NoneType)
"""The types of the result of an agent's function."""

_TYPE_NAMES: Final = {
    str: "a text (str)",
    Mapping: "a JSON object (dict)",
    part_pb2.Part: "a Part",
    message_pb2.Message: "a Message",
    NoneType: "None",
}


def invalid_content(
    agent: str, action: str, value: object, allowed: Sequence[type]
) -> InvalidAgentResponseError:
    """Return the error for a value that an agent can't answer with; it lists the allowed types.

    `action` is what the agent did with the value, `it appended` for example.
    """
    return InvalidAgentResponseError(agent, f"{action} {describe_type(value, allowed)}")


def describe_type(value: object, allowed: Sequence[type]) -> str:
    """Return the type of a value and those that are allowed instead, for an error."""
    *names, last = (_TYPE_NAMES[each] for each in allowed)
    types = f"{', '.join(names)} or {last}" if names else last
    return f"a value of type {type(value).__name__}, not {types}"


def to_part(content: Piece) -> part_pb2.Part:
    """Return a piece as a part. A JSON object becomes a data part.

    Raises:
        InvalidArgumentError: it is no JSON, or is not exact as a data part.
    """
    if isinstance(content, part_pb2.Part):
        return content
    if isinstance(content, str):
        return part_pb2.Part(text=content)
    part = part_pb2.Part(media_type=_DATA_TYPE)
    try:
        part.data.struct_value.CopyFrom(to_struct(content) or struct_pb2.Struct())
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError("content", f"is no JSON object: {error}") from None
    if exact_json(content):
        raise InvalidArgumentError("content", "has a number over 2**53, which would be rounded")
    return part


def build_agent_message(content: Content, *, task_id: str, context_id: str) -> message_pb2.Message:
    """Return an agent's message with its ids filled in; other content becomes one part."""
    message = message_pb2.Message()
    if isinstance(content, message_pb2.Message):
        message.CopyFrom(content)
    else:
        message.parts.append(to_part(content))
    message.role = message_pb2.ROLE_AGENT
    message.message_id = message.message_id or str(uuid.uuid4())
    message.task_id = task_id
    message.context_id = context_id
    return message


def message_text(message: message_pb2.Message) -> str:
    """Return the message's text parts, joined by a space."""
    return " ".join(part.text for part in message.parts if part.HasField("text"))


def to_struct(values: Mapping[str, Any] | None) -> struct_pb2.Struct | None:
    """Return a Struct of JSON values, or None for None.

    Raises:
        ValueError: it is not JSON (a key is not a text, NaN, infinity), or protobuf can't store
            it (a lone surrogate, more than 24 levels).
    """
    if values is None:
        return None
    if not _fits_struct(values, _MAX_DEPTH):
        raise ValueError("a key is not a text, a number is not finite, or the nesting is too deep")
    result = struct_pb2.Struct()
    result.update(dict(values))
    return result


def exact_json(values: Mapping[str, Any]) -> str:
    """Return JSON values as JSON text if a Struct would round a number of them, else ""."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False) if _is_rounded(values) else ""


def _is_rounded(value: object) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(_is_rounded(item) for item in value)
    return isinstance(value, int) and abs(value) >= _ROUNDED_FROM


def _fits_struct(value: object, depth: int) -> bool:
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return False
        value = list(value.values())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_fits_struct(item, depth - 1) for item in value)
    # False for NaN, infinity, and integers beyond a double.
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


def to_json(value: struct_pb2.Struct | struct_pb2.Value) -> Any:  # noqa: ANN401  a JSON value
    """Convert to a JSON value. Doubles that are whole numbers become integers."""
    text = json_format.MessageToJson(value, indent=None, ensure_ascii=False)
    return json.loads(text, parse_float=_number)


def is_tool_answer(part: part_pb2.Part) -> bool:
    """Return whether a data part answers a question of a tool."""
    return part.HasField("data") and INPUT_RESPONSES in part.data.struct_value.fields


def part_content(part: part_pb2.Part) -> bytes:
    """Return the inline content of a part: its bytes, its text, or its data as JSON."""
    if part.HasField("data"):
        return json.dumps(to_json(part.data), ensure_ascii=False).encode()
    return part.raw or part.text.encode()


def _number(digits: str) -> float:
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < _ROUNDED_FROM else number
