"""Converts between the values of authors (text, parts, mappings) and the contract's messages."""

import json
import uuid
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypeAlias

from trunkline.core.json_values import build_value, has_member, value_json
from trunkline.errors import InvalidAgentResponseError, InvalidArgumentError
from trunkline.v1 import message_pb2, part_pb2

ENVELOPE_KEY: Final = "trunkline/envelope"
"""The metadata of an artifact that is a reply to a message between agents: the fields of the reply
as JSON, without the payload."""
INPUT_RESPONSES: Final = "inputResponses"
"""The key of MCP's answers in the data part that answers a question of a tool."""

DATA_TYPE: Final = "application/json"

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
    """Return the type of a value and the types that are allowed, for an error."""
    *names, last = (_TYPE_NAMES[each] for each in allowed)
    types = f"{', '.join(names)} or {last}" if names else last
    return f"a value of type {type(value).__name__}, not {types}"


def to_part(content: Piece) -> part_pb2.Part:
    """Return a piece as a part. A JSON object becomes a data part.

    Raises:
        InvalidArgumentError: it is no JSON.
    """
    if isinstance(content, part_pb2.Part):
        return content
    if isinstance(content, str):
        return part_pb2.Part(text=content)
    return data_part(content)


def data_part(value: object) -> part_pb2.Part:
    """Return a part that holds a JSON value: its integers stay exact, its members in order.

    Args:
        value: any JSON value: text, number, bool, None, or a mapping or sequence of them.

    Raises:
        InvalidArgumentError: it is no JSON (NaN or a datetime, for example), a number is beyond the
            range of a double, or it is nested deeper than 24 levels.
    """
    try:
        return part_pb2.Part(data=build_value(value), media_type=DATA_TYPE)
    except ValueError as error:
        raise InvalidArgumentError("content", f"is no JSON: {error}") from None


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


def is_tool_answer(part: part_pb2.Part) -> bool:
    """Return whether a data part answers a question of a tool."""
    return part.HasField("data") and has_member(part.data.struct_value, INPUT_RESPONSES)


def part_content(part: part_pb2.Part) -> bytes:
    """Return the inline content of a part: its bytes, its text, or its data as JSON."""
    if part.HasField("data"):
        return json.dumps(value_json(part.data), ensure_ascii=False).encode()
    return part.raw or part.text.encode()
