"""Checks values in requests that protobuf reads although they make no sense.

Timestamps and durations may hold numbers that Python's conversions refuse, and a Struct may hold
numbers that JSON lacks. Handlers use such values deep in the mesh, so they are refused at the door.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trunkline.errors import InvalidArgumentError

# The ranges that protobuf documents: the years 1 to 9999, and 10 000 years.
_TIMESTAMP_S: Final = (-62135596800, 253402300799)
_MAX_DURATION_S: Final = 315576000000
_MAX_NANOS: Final = 999_999_999

# Called with a value and the path of its field.
_Check: TypeAlias = Callable[[Any, str], None]


def check_values(message: Message, path: str = "") -> None:
    """Check all times and JSON values in a message.

    Raises:
        InvalidArgumentError: one has a value that it can't have; the error names its field.
    """
    for field, check in _plan(message.DESCRIPTOR):
        name = f"{path}{field.name}"
        if not field.is_repeated:
            if message.HasField(field.name):
                check(getattr(message, field.name), name)
            continue
        values = getattr(message, field.name)
        kind = field.message_type
        is_map = kind is not None and kind.GetOptions().map_entry
        for value in values.values() if is_map else values:
            check(value, name)


@cache
def _plan(message_type: Descriptor) -> tuple[tuple[FieldDescriptor, _Check], ...]:
    """Return the fields of a message that have something to check. Most messages have none."""
    checks = ((field, _find_check(field, frozenset())) for field in message_type.fields)
    return tuple((field, check) for field, check in checks if check is not None)


def _find_check(field: FieldDescriptor, seen: frozenset[str]) -> _Check | None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        kind = kind.fields_by_name["value"].message_type
    if kind is None or kind.full_name in seen:
        return None
    if (check := _CHECKS.get(kind.full_name)) is not None:
        return check
    deeper = seen | {kind.full_name}
    if any(_find_check(inner, deeper) is not None for inner in kind.fields):
        return lambda value, path: check_values(value, f"{path}.")
    return None


def _check_timestamp(value: Any, path: str) -> None:  # noqa: ANN401  protobuf's own types
    first_s, last_s = _TIMESTAMP_S
    if not (first_s <= value.seconds <= last_s and 0 <= value.nanos <= _MAX_NANOS):
        raise InvalidArgumentError(path, "must be a time in the years 1 to 9999")


def _check_duration(value: Any, path: str) -> None:  # noqa: ANN401
    if not (0 <= value.seconds <= _MAX_DURATION_S and 0 <= value.nanos <= _MAX_NANOS):
        raise InvalidArgumentError(path, "must be a duration of 0 s to 10000 years")


def _check_struct(value: Any, path: str) -> None:  # noqa: ANN401
    for member in value.fields.values():
        _check_json_value(member, path)


def _check_list(value: Any, path: str) -> None:  # noqa: ANN401
    for member in value.values:
        _check_json_value(member, path)


def _check_json_value(value: Any, path: str) -> None:  # noqa: ANN401
    match value.WhichOneof("kind"):
        case "number_value":
            if not math.isfinite(value.number_value):
                raise InvalidArgumentError(path, "holds a number that JSON lacks (NaN, Infinity)")
        case "struct_value":
            _check_struct(value.struct_value, path)
        case "list_value":
            _check_list(value.list_value, path)
        case None:
            raise InvalidArgumentError(path, "holds a value without a kind; use null_value")


_CHECKS: Final[dict[str, _Check]] = {
    "google.protobuf.Timestamp": _check_timestamp,
    "google.protobuf.Duration": _check_duration,
    "google.protobuf.Struct": _check_struct,
    "google.protobuf.ListValue": _check_list,
    "google.protobuf.Value": _check_json_value,
}
