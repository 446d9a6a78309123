"""Finds where JSON doesn't fit a protobuf message, and says so by field and in words for people.

Protobuf's own parser speaks to programmers and stops at the first mistake. With unknown fields
ignored, it also lets some pass: it takes an enum's unknown name for nothing, a text for an empty
message, and for bytes what is left of a text when all but base64 is dropped.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from trunkline_bridge.errors import WireError, invalid_params

# Protobuf has descriptors in Python and in C, and their types have nothing in common.
_Descriptor: TypeAlias = Any
Violation: TypeAlias = tuple[str, str]

# Both alphabets, and padding or none.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
# ProtoJSON takes whole numbers as texts, too.
_DIGITS = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_INT32 = range(-(2**31), 2**31)


class _FieldRule(NamedTuple):
    """What fits a type of field, and how to ask for it."""

    fits: Callable[[object], bool]
    problem: str


def find_violations(
    value: object, fields: Iterable[_Descriptor], *, name: str = ""
) -> Iterator[Violation]:
    """Yield fields that don't fit, each by its path and with what is wrong with it."""
    if not isinstance(value, Mapping):
        yield name, "must be an object"
        return
    chosen: dict[str, list[str]] = {}
    for field in fields:
        given = value.get(field.json_name, value.get(field.name))
        if given is None:
            continue
        if field.containing_oneof is not None:
            chosen.setdefault(field.containing_oneof.name, []).append(field.json_name)
        path = f"{name}.{field.json_name}" if name else field.json_name
        if not field.is_repeated:
            yield from _value_violations(given, field, path)
        elif isinstance(given, list):
            for index, one in enumerate(given):
                yield from _value_violations(one, field, f"{path}[{index}]")
        else:
            yield path, "must be an array"
    for names in chosen.values():
        if len(names) > 1:
            yield name, f"must have only one of {', '.join(names)}"


def _value_violations(given: object, field: _Descriptor, path: str) -> Iterator[Violation]:
    inner, enum = field.message_type, field.enum_type
    if enum is not None:
        if not _names_value(given, enum):
            # The first value stands for none.
            yield path, f"must be one of {', '.join(list(enum.values_by_name)[1:])}"
    elif inner is not None and inner.file.package != "google.protobuf":
        yield from find_violations(given, inner.fields, name=path)
    else:
        kind = _FIELD_RULES.get(field.type if inner is None else inner.full_name)
        if kind is not None and not kind.fits(given):
            yield path, kind.problem


def _names_value(given: object, enum: _Descriptor) -> bool:
    if isinstance(given, str):
        return given in enum.values_by_name
    return type(given) is int and given in enum.values_by_number


def _is_base64(given: object) -> bool:
    return (
        isinstance(given, str)
        and _BASE64.fullmatch(given) is not None
        and len(given.rstrip("=")) % 4 != 1
    )


def _is_int32(given: object) -> bool:
    if isinstance(given, str):
        return _DIGITS.fullmatch(given) is not None and int(given) in _INT32
    if isinstance(given, float):
        return given.is_integer() and int(given) in _INT32
    return type(given) is int and given in _INT32


def _is_timestamp(given: object) -> bool:
    if not isinstance(given, str):
        return False
    try:
        Timestamp().FromJsonString(given)
    except (ArithmeticError, ValueError):
        return False
    return True


# By the type of the field, or by the name of a message with JSON of its own. Any JSON is a Value.
_FIELD_RULES: Mapping[object, _FieldRule] = {
    FieldDescriptor.TYPE_STRING: _FieldRule(
        lambda given: isinstance(given, str), "must be a string"
    ),
    FieldDescriptor.TYPE_BOOL: _FieldRule(
        lambda given: isinstance(given, bool), "must be true or false"
    ),
    FieldDescriptor.TYPE_INT32: _FieldRule(_is_int32, "must be a whole number below 2^31"),
    FieldDescriptor.TYPE_BYTES: _FieldRule(_is_base64, "must be a string in base64"),
    "google.protobuf.Struct": _FieldRule(
        lambda given: isinstance(given, dict), "must be an object"
    ),
    "google.protobuf.Timestamp": _FieldRule(
        _is_timestamp, "must be a time with its zone, such as 2026-01-31T12:00:00Z"
    ),
}


@contextmanager
def renamed_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Give fields that a WireError complains of the names that the version has for them."""
    try:
        yield
    except WireError as error:
        if not error.violations:
            raise
        said = ((_called(field, names), problem) for field, problem in error.violations)
        raise invalid_params(*said) from None


def _called(field: str, names: Mapping[str, str]) -> str:
    first, dot, rest = field.partition(".")
    return f"{names.get(first, first)}{dot}{rest}"
