"""Turns what authors write (text, parts, mappings) into the contract's messages."""

import json
import sys
import uuid
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from google.protobuf import json_format, struct_pb2

from trunkline.v1 import message_pb2, part_pb2

# Of values within each other: protobuf reads a hundred messages deep, and each takes three.
_LEVELS: Final = 24
# A Struct's numbers are floats.
_ROUNDED_FROM: Final = 2**53

Content: TypeAlias = str | part_pb2.Part | message_pb2.Message


def build_agent_message(content: Content, *, task_id: str, context_id: str) -> message_pb2.Message:
    """Return an agent's message with its ids filled in; text becomes one text part."""
    message = message_pb2.Message()
    if isinstance(content, message_pb2.Message):
        message.CopyFrom(content)
    elif isinstance(content, part_pb2.Part):
        message.parts.append(content)
    else:
        message.parts.add(text=content)
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
        ValueError: a value isn't a JSON value, or none that a message can carry: no number, half a
            character, or within too many others.
    """
    if values is None:
        return None
    if not _may_be_carried(values, _LEVELS):
        raise ValueError("a value is no finite number, or lies too deep")
    result = struct_pb2.Struct()
    result.update(dict(values))
    return result


def exact_json(values: Mapping[str, Any]) -> str:
    """Return JSON values as JSON text if a Struct would round them; else empty."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False) if _is_rounded(values) else ""


def _is_rounded(value: object) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(_is_rounded(one) for one in value)
    return isinstance(value, int) and abs(value) >= _ROUNDED_FROM


def _may_be_carried(value: object, levels: int) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return levels > 0 and all(_may_be_carried(one, levels - 1) for one in value)
    # All numbers of JSON are doubles to protobuf.
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


def to_json(value: struct_pb2.Struct | struct_pb2.Value) -> Any:  # noqa: ANN401  a JSON value
    """Return a JSON value as people write it: protobuf knows no whole numbers."""
    text = json_format.MessageToJson(value, indent=None, ensure_ascii=False)
    return json.loads(text, parse_float=_number)


def _number(digits: str) -> float:
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
