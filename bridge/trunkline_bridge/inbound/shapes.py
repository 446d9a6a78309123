"""Finds what protobuf's JSON parser lets pass although it doesn't fit the message.

With unknown fields ignored, the parser takes an enum's unknown name for nothing, a text for an
empty message, and for bytes what is left of a text when all but base64 is dropped.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

Violation: TypeAlias = tuple[str, str]

# Both alphabets, and padding or none.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)


def violations(value: object, descriptor: Descriptor, *, name: str) -> Iterator[Violation]:
    """Yield fields that don't fit, each by its path and with what is wrong with it."""
    if not isinstance(value, Mapping):
        yield name, "must be an object"
        return
    for field in descriptor.fields:
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


def _value_violations(given: object, field: FieldDescriptor, path: str) -> Iterator[Violation]:
    inner, enum = field.message_type, field.enum_type
    if inner is not None:
        # Well-known types have JSON of their own, which the parser knows.
        if inner.file.package != "google.protobuf":
            yield from violations(given, inner, name=path)
    elif enum is not None:
        by = enum.values_by_name if isinstance(given, str) else enum.values_by_number
        if isinstance(given, bool | float) or given not in by:
            yield path, f"must be one of {', '.join(enum.values_by_name)}"
    elif field.type == FieldDescriptor.TYPE_BYTES:
        yield from _bytes_violations(given, path)


def _bytes_violations(given: object, path: str) -> Iterator[Violation]:
    if not isinstance(given, str):
        yield path, "must be a text in base64"
    elif _BASE64.fullmatch(given) is None or len(given.rstrip("=")) % 4 == 1:
        yield path, "is not base64"
