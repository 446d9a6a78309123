"""Arguments of calls that wait for approval, as people read and write them: as JSON."""

import json
import math
from typing import Any, Final

from google.protobuf import struct_pb2

from trunkline.tasks.turn.content import json_of

# What is shown of all arguments, on a line for people.
_SHOWN_CHARS: Final = 1_000
# Of arguments within each other: protobuf reads a hundred messages, and each takes three.
_LEVELS: Final = 16


def plain(values: struct_pb2.Struct) -> dict[str, Any]:
    """Return JSON values as people write them: a Struct knows no whole numbers."""
    found: dict[str, Any] = json_of(values)
    return found


def shown(arguments: struct_pb2.Struct) -> str:
    """Return arguments on a line, for people; of long ones it is said how much is left out.

    What nobody would see, or would turn around what is seen, is written as JSON escapes.
    """
    text = json.dumps(plain(arguments), ensure_ascii=False, sort_keys=True)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    left = len(text) - _SHOWN_CHARS
    return text if left <= 0 else f"{text[:_SHOWN_CHARS]}… ({left:,} more characters)"


def written_arguments(text: str) -> struct_pb2.Struct:
    """Return a call's arguments as a person has written them.

    Raises:
        ValueError: that is no JSON object, or one that no message can carry.
    """
    try:
        found = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_finite)
        if not isinstance(found, dict) or _levels(found) > _LEVELS:
            raise ValueError(text)
    except RecursionError:
        raise ValueError(text) from None
    arguments = struct_pb2.Struct()
    arguments.update(found)
    return arguments


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(digits)
    return number


def _levels(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0
    return 1 + max(map(_levels, inner), default=0)
