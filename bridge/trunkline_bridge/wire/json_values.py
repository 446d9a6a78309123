"""JSON as all versions of A2A have it: compact, not ASCII but Unicode, and exact."""

import json
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf import struct_pb2, timestamp_pb2

Json: TypeAlias = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Whole numbers up to here are exact as doubles.
_EXACT = 2**53
# They end a line for some readers of event streams (Python's str.splitlines among them), though
# not by the standard; JSON's own encoder leaves them as they are.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_LINE_END = re.compile("[\x85\u2028\u2029]")
_ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def dumps(value: object) -> str:
    """Return JSON on one line, as compact as can be, not ASCII but Unicode."""
    return on_one_line(_ENCODE(value))


def on_one_line(text: str) -> str:
    """Return JSON with what any reader may take for the end of a line escaped."""
    # In this order because nearly all text is ASCII, and nearly all other has none of these.
    if text.isascii() or _LINE_END.search(text) is None:
        return text
    return text.translate(_LINE_ENDS)


def timestamp(time: timestamp_pb2.Timestamp) -> str:
    """Return a time in UTC with milliseconds."""
    return f"{_second(time.seconds)}.{time.nanos // 1_000_000:03d}Z"


# Most times are of the last few seconds.
@lru_cache(maxsize=128)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def value(content: struct_pb2.Value) -> Any:  # noqa: ANN401  any JSON value
    """Return a JSON value; whole numbers come out as they went in."""
    match content.WhichOneof("kind"):
        case "number_value":
            return _number(content.number_value)
        case "string_value":
            return content.string_value
        case "bool_value":
            return content.bool_value
        case "struct_value":
            return struct(content.struct_value)
        case "list_value":
            return [value(one) for one in content.list_value.values]
        case _:
            return None


def struct(content: struct_pb2.Struct) -> Json:
    """Return a JSON object."""
    return {name: value(one) for name, one in content.fields.items()}


def _number(number: float) -> float | int:
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number
