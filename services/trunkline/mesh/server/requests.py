"""Reads the requests of calls, and checks values that protobuf reads although they are invalid.

Timestamps and durations may hold numbers that Python's conversions refuse, and a Struct may hold
numbers that JSON lacks. Handlers use such values deep in the mesh, so they are refused first. So
are requests of too many values, since their conversion would delay all other requests.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf import duration_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trunkline.core.json_values import find_number_problem
from trunkline.errors import InvalidArgumentError

# The ranges that protobuf documents: the years 1 to 9999, and 10 000 years.
_TIMESTAMP_S: Final = (-62135596800, 253402300799)
_MAX_DURATION_S: Final = 315576000000
_MAX_NANOS: Final = 999_999_999

_VALUE_LIMIT: Final = 100_000

UNREADABLE: Final = object()
"""Stands for a request that can't be read. grpc would answer it with INTERNAL."""


def make_deserializer(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Return a deserializer that returns UNREADABLE instead of raising an error."""

    def deserialize(serialized: bytes) -> object:
        try:
            return parse(serialized)
        # Third-party services may have any parser.
        except Exception:  # noqa: BLE001
            return UNREADABLE

    return deserialize


def unreadable_request() -> InvalidArgumentError:
    """Return the error for a request that can't be read."""
    return InvalidArgumentError("request", "can't be read as the method's")


class _Counter:
    """Counts the values of a request."""

    def __init__(self) -> None:
        self._remaining = _VALUE_LIMIT

    def add(self, count: int, path: str) -> None:
        """Count the values of a field. InvalidArgumentError: the request has too many."""
        self._remaining -= count
        if self._remaining < 0:
            raise InvalidArgumentError(path, f"the request has more than {_VALUE_LIMIT} values")


# Called with a value, the path of its field and the counter of the request.
_Check: TypeAlias = Callable[[Any, str, _Counter], None]


def check_values(message: Message) -> None:
    """Check all times and JSON values in a message, and how many values it has.

    Raises:
        InvalidArgumentError: a value is invalid, or there are too many; the error names a field.
    """
    _check_message(message, "", _Counter())


def _check_message(message: Message, path: str, counter: _Counter) -> None:
    for field in _plan(message.DESCRIPTOR):
        name = field.name
        if not field.is_repeated:
            if message.HasField(name):
                field.check(getattr(message, name), f"{path}{name}", counter)
        elif values := getattr(message, name):
            name = f"{path}{name}"
            counter.add(len(values), name)
            for value in values.values() if field.is_map else values:
                field.check(value, name, counter)


class _CheckedField(NamedTuple):
    """A field that has something to check. Each call reads it, so it asks no descriptor."""

    name: str
    is_repeated: bool
    is_map: bool
    check: _Check


@cache
def _plan(message_type: Descriptor) -> tuple[_CheckedField, ...]:
    """Return the fields of a message that have something to check. Most messages have none."""
    return tuple(
        _CheckedField(field.name, field.is_repeated, _is_map(field), check)
        for field in message_type.fields
        if (check := _find_check(field, frozenset())) is not None
    )


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _find_check(field: FieldDescriptor, seen: frozenset[str]) -> _Check | None:
    kind = field.message_type
    if kind is not None and _is_map(field):
        kind = kind.fields_by_name["value"].message_type
    if kind is None or kind.full_name in seen:
        return None
    if (check := _CHECKS.get(kind.full_name)) is not None:
        return check
    deeper = seen | {kind.full_name}
    if any(_find_check(inner, deeper) is not None for inner in kind.fields):
        return lambda value, path, counter: _check_message(value, f"{path}.", counter)
    return None


def _check_timestamp(value: Any, path: str, _: _Counter) -> None:  # noqa: ANN401  protobuf's own types
    first_s, last_s = _TIMESTAMP_S
    if not (first_s <= value.seconds <= last_s and 0 <= value.nanos <= _MAX_NANOS):
        raise InvalidArgumentError(path, "must be a time in the years 1 to 9999")


def check_duration(value: duration_pb2.Duration, path: str, _counter: object = None) -> None:
    """Check a duration. InvalidArgumentError: it is negative, or longer than 10 000 years."""
    if not (0 <= value.seconds <= _MAX_DURATION_S and 0 <= value.nanos <= _MAX_NANOS):
        raise InvalidArgumentError(path, "must be a duration of 0 s to 10000 years")


def _check_struct(value: Any, path: str, counter: _Counter) -> None:  # noqa: ANN401
    counter.add(len(value.members), path)
    for member in value.members:
        _check_json_value(member.value, path, counter)


def _check_list(value: Any, path: str, counter: _Counter) -> None:  # noqa: ANN401
    counter.add(len(value.values), path)
    for member in value.values:
        _check_json_value(member, path, counter)


def _check_json_value(value: Any, path: str, counter: _Counter) -> None:  # noqa: ANN401
    match value.WhichOneof("kind"):
        case "number_value" | "exact_number":
            if problem := find_number_problem(value):
                raise InvalidArgumentError(path, problem)
        case "struct_value":
            _check_struct(value.struct_value, path, counter)
        case "list_value":
            _check_list(value.list_value, path, counter)
        case None:
            raise InvalidArgumentError(path, "holds a value without a kind; use null_value")


_CHECKS: Final[dict[str, _Check]] = {
    "google.protobuf.Timestamp": _check_timestamp,
    "google.protobuf.Duration": check_duration,
    "trunkline.v1.Struct": _check_struct,
    "trunkline.v1.Value": _check_json_value,
}
