"""Limits on JSON from MCP servers, checked before anything else walks or converts it.

A message of 16 MB may hold millions of values, and each costs microseconds on the event loop that
all servers share.
"""

import sys
from collections.abc import Collection, Mapping
from typing import Final

RESULT_LIMIT_VALUES: Final = 100_000
"""The number of values in the structured content of a result."""
# Every level of JSON is three of a protobuf message, whose decoders accept 100.
DEPTH_LIMIT: Final = 28
# The numbers of our messages are doubles.
_LARGEST_NUMBER: Final = sys.float_info.max


def find_json_problem(value: object, *, limit_values: int) -> str:
    """Return the reason why JSON is refused, as a predicate, or "".

    The time that it takes is bounded by `limit_values`.
    """
    values = 1
    level = [value]
    for _ in range(DEPTH_LIMIT):
        below: list[object] = []
        for item in level:
            # NaN is in no range.
            if isinstance(item, int | float) and not -_LARGEST_NUMBER <= item <= _LARGEST_NUMBER:
                return "has a number that is out of range"
            members = _members(item)
            values += len(members)
            if values > limit_values:
                return f"has more than {limit_values} values"
            below += members
        if not below:
            return ""
        level = below
    return "is nested too deeply"


def _members(value: object) -> Collection[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
