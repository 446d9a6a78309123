"""Finds JSON members that do not fit a protobuf message, and describes them for people.

The texts of protobuf's own parser are for programmers, and it stops at the first mistake. While it
ignores unknown fields, it also accepts some mistakes: it reads an unknown enum name as unset and a
string as an empty message, and skips characters of bytes that are not base64.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.json_values import JSON_TYPES, STRUCT_TYPE

# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_Descriptor: TypeAlias = Any
Violation: TypeAlias = tuple[str, str]

# Both alphabets, with or without padding.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
# ProtoJSON accepts integers as strings as well.
_DIGITS = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


class _FieldRule(NamedTuple):
    """A check of values, and the text of a violation."""

    fits: Callable[[object], bool]
    problem: str


def find_violations(
    value: object, fields: Iterable[_Descriptor], *, name: str = ""
) -> Iterator[Violation]:
    """Yield the members that do not fit, each with its path below `name` and the problem."""
    if not isinstance(value, Mapping):
        yield name, "must be an object"
        return
    set_members: dict[str, list[str]] = {}
    for field in fields:
        member = value.get(field.json_name, value.get(field.name))
        if member is None:
            continue
        if field.containing_oneof is not None:
            set_members.setdefault(field.containing_oneof.name, []).append(field.json_name)
        path = f"{name}.{field.json_name}" if name else field.json_name
        if not field.is_repeated:
            yield from _value_violations(member, field, path)
        elif isinstance(member, list):
            for index, item in enumerate(member):
                yield from _value_violations(item, field, f"{path}[{index}]")
        else:
            yield path, "must be an array"
    for names in set_members.values():
        if len(names) > 1:
            yield name, f"must have only one of {', '.join(names)}"


def _value_violations(value: object, field: _Descriptor, path: str) -> Iterator[Violation]:
    message, enum = field.message_type, field.enum_type
    if enum is not None:
        if not _is_enum_value(value, enum):
            # The first value means unset.
            yield path, f"must be one of {', '.join(list(enum.values_by_name)[1:])}"
    elif message is not None and message.full_name not in _SPECIAL_FORMS:
        yield from find_violations(value, message.fields, name=path)
    else:
        rule = _FIELD_RULES.get(field.type if message is None else message.full_name)
        if rule is not None and not rule.fits(value):
            yield path, rule.problem


def _is_enum_value(value: object, enum: _Descriptor) -> bool:
    if isinstance(value, str):
        return value in enum.values_by_name
    return type(value) is int and value in enum.values_by_number


def _is_base64(value: object) -> bool:
    return (
        isinstance(value, str)
        and _BASE64.fullmatch(value) is not None
        and len(value.rstrip("=")) % 4 != 1
    )


def _is_whole_number(value: object, limits: range) -> bool:
    if isinstance(value, str):
        return _DIGITS.fullmatch(value) is not None and int(value) in limits
    if isinstance(value, float):
        return value.is_integer() and int(value) in limits
    return type(value) is int and value in limits


def _is_timestamp(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        Timestamp().FromJsonString(value)
    except (ArithmeticError, ValueError):
        return False
    return True


# By field type, or by the name of a message with a special JSON form. Values accept any JSON.
_FIELD_RULES: Mapping[object, _FieldRule] = {
    FieldDescriptor.TYPE_STRING: _FieldRule(
        lambda value: isinstance(value, str), "must be a string"
    ),
    FieldDescriptor.TYPE_BOOL: _FieldRule(
        lambda value: isinstance(value, bool), "must be true or false"
    ),
    FieldDescriptor.TYPE_INT32: _FieldRule(
        lambda value: _is_whole_number(value, _INT32), "must be a whole number below 2^31"
    ),
    FieldDescriptor.TYPE_INT64: _FieldRule(
        lambda value: _is_whole_number(value, _INT64), "must be a whole number below 2^63"
    ),
    FieldDescriptor.TYPE_BYTES: _FieldRule(_is_base64, "must be a string in base64"),
    STRUCT_TYPE: _FieldRule(lambda value: isinstance(value, dict), "must be an object"),
    "google.protobuf.Timestamp": _FieldRule(
        _is_timestamp, "must be a time with its zone, such as 2026-01-31T12:00:00Z"
    ),
}


# Messages whose JSON isn't an object of their fields.
_SPECIAL_FORMS = JSON_TYPES | {"google.protobuf.Timestamp"}


@contextmanager
def renamed_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Rename the top-level fields in the violations of a WireError that the block raises."""
    try:
        yield
    except WireError as error:
        if not error.violations:
            raise
        violations = ((_rename(field, names), problem) for field, problem in error.violations)
        raise invalid_params(*violations) from None


def _rename(field: str, names: Mapping[str, str]) -> str:
    first, dot, rest = field.partition(".")
    return f"{names.get(first, first)}{dot}{rest}"
