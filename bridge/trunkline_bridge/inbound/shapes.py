"""Finds what protobuf's JSON parser lets pass although it doesn't fit the message.

With unknown fields ignored, the parser takes an enum's unknown name for nothing, a text for an
empty message, and for bytes what is left of a text when all but base64 is dropped.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

# Protobuf has descriptors in Python and in C, and their types have nothing in common.
_Described: TypeAlias = Any
Violation: TypeAlias = tuple[str, str]

# Both alphabets, and padding or none.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)


def violations(
    value: object, fields: Iterable[_Described], *, name: str = ""
) -> Iterator[Violation]:
    """Yield fields that don't fit, each by its path and with what is wrong with it."""
    if not isinstance(value, Mapping):
        yield name, "must be an object"
        return
    for field in fields:
        given = value.get(field.json_name, value.get(field.name))
        if given is None:
            continue
        path = f"{name}.{field.json_name}" if name else field.json_name
        if not field.is_repeated:
            yield from _value_violations(given, field, path)
        elif isinstance(given, list):
            for index, one in enumerate(given):
                yield from _value_violations(one, field, f"{path}[{index}]")
        else:
            yield path, "must be an array"


def _value_violations(given: object, field: _Described, path: str) -> Iterator[Violation]:
    inner, enum = field.message_type, field.enum_type
    if inner is not None:
        # Well-known types have JSON of their own, which the parser knows.
        if inner.file.package != "google.protobuf":
            yield from violations(given, inner.fields, name=path)
    elif enum is not None:
        if not _names_value(given, enum):
            yield path, f"must be one of {', '.join(enum.values_by_name)}"
    elif field.type == FieldDescriptor.TYPE_BYTES:
        yield from _bytes_violations(given, path)


def _names_value(given: object, enum: _Described) -> bool:
    if isinstance(given, str):
        return given in enum.values_by_name
    return type(given) is int and given in enum.values_by_number


def _bytes_violations(given: object, path: str) -> Iterator[Violation]:
    if not isinstance(given, str):
        yield path, "must be a text in base64"
    elif _BASE64.fullmatch(given) is None or len(given.rstrip("=")) % 4 == 1:
        yield path, "is not base64"
