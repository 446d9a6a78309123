"""Converts JSON, as Python values, to the messages of the contract and back: exactly, in order.

`Struct` and `Value` of trunkline.v1 have the bytes of google.protobuf's types, but their members
keep their order and their integers are exact. This is the only module that knows how they store
JSON. It also takes the place of protobuf's `json_format`, which does not know these types.
"""

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseError
from google.protobuf.message import Message

from trunkline.core.json_types import JsonValue
from trunkline.errors import UnsupportedOperationError
from trunkline.v1 import json_pb2

M = TypeVar("M", bound=Message)
# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_Descriptor: TypeAlias = Any

MAX_NUMBER: Final = sys.float_info.max
"""Numbers are in the range of a double, integers too: other JSON readers accept no larger ones."""

MAX_DEPTH: Final = 24
"""The nesting limit of JSON. Protobuf parses messages 100 deep, and each JSON level takes 3."""

# The first bytes of the field `exact_number` on the wire: number 16, with a length.
_EXACT_TAG: Final = b"\x82\x01"
_INEXACT: Final = (
    "A2A's gRPC would round this integer; use JSON-RPC or HTTP+JSON, or send the number as text"
)
# Names of members may be long.
_PATH_CHARS: Final = 200
# The limit of recursion. A message that protobuf can't parse is refused where it is used.
_PARSED_DEPTH: Final = 100
# Doubles from here on are all whole, and most of them are measurements. Ids are below it.
_MAX_INTEGER: Final = 2.0**63
# The integers that any double holds.
_SAFE_INTEGER: Final = 2**53
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,308}", re.ASCII)

_VALUE: Final = json_pb2.Value.DESCRIPTOR.full_name
STRUCT_TYPE: Final = json_pb2.Struct.DESCRIPTOR.full_name
JSON_TYPES: Final = frozenset({STRUCT_TYPE, _VALUE, json_pb2.ListValue.DESCRIPTOR.full_name})
"""The full names of the messages that hold JSON."""


class NumberRangeError(ValueError, ArithmeticError):
    """A number is beyond the range of a double."""


def read_json(message: json_pb2.Value | json_pb2.Struct) -> JsonValue:
    """Return the JSON that a message holds: `part.data`, or the `metadata` of a message.

    Whole numbers are `int`, however large. Numbers that were written with a fraction or an exponent
    are `float`, an IEEE double. The members of an object have the order in which they were written.
    """
    return value_json(message) if isinstance(message, json_pb2.Value) else struct_json(message)


def write_json(message: json_pb2.Value | json_pb2.Struct, value: object) -> None:
    """Replace the JSON that a message holds: `part.data`, or the `metadata` of a message.

    Raises:
        ValueError: it is not JSON (a datetime or NaN, for example; metadata that is not a
            mapping), a number is beyond a double, or it is nested deeper than 24 levels.
    """
    if isinstance(message, json_pb2.Value):
        message.CopyFrom(build_value(value))
    elif isinstance(value, Mapping):
        message.CopyFrom(build_struct(value))
    else:
        raise ValueError(f"a value of type {type(value).__name__} is no JSON object")


def build_struct(values: Mapping[str, Any], *, max_depth: int = MAX_DEPTH) -> json_pb2.Struct:
    """Return a JSON object as a message.

    Raises:
        ValueError: it is not JSON (a value of another type, a key that is not a text, NaN, a lone
            surrogate), a number is out of range, or it is nested deeper than `max_depth`.
    """
    struct = json_pb2.Struct()
    _write_members(struct, values, max_depth)
    return struct


def build_value(value: object) -> json_pb2.Value:
    """Return a JSON value as a message. The errors are the same as for `build_struct`."""
    message = json_pb2.Value()
    _write_value(message, value, MAX_DEPTH)
    return message


def update_struct(struct: json_pb2.Struct, values: Mapping[str, Any]) -> None:
    """Set members of an object.

    Existing members keep their place, new members are added at the end. The errors are the same as
    for `build_struct`.
    """
    old = {member.key: member for member in struct.members}
    new: dict[str, Any] = {}
    for key, value in values.items():
        if key in old:
            old[key].ClearField("value")
            _write_value(old[key].value, value, MAX_DEPTH - 1)
        else:
            new[key] = value
    _write_members(struct, new, MAX_DEPTH)


def merge_struct(struct: json_pb2.Struct, other: json_pb2.Struct) -> None:
    """Set the members of another object in an object, as `update_struct`."""
    old = {member.key: member for member in struct.members}
    for member in other.members:
        if member.key in old:
            old[member.key].value.CopyFrom(member.value)
        else:
            struct.members.append(member)


def remove_member(struct: json_pb2.Struct, key: str) -> None:
    """Remove a member of an object, if it is there."""
    for index in reversed(range(len(struct.members))):
        if struct.members[index].key == key:
            del struct.members[index]


def has_member(struct: json_pb2.Struct, key: str) -> bool:
    """Return whether an object has a member."""
    return any(member.key == key for member in struct.members)


def find_member(struct: json_pb2.Struct, key: str) -> json_pb2.Value | None:
    """Return the value of a member of an object, or None if there is no such member."""
    return next((member.value for member in reversed(struct.members) if member.key == key), None)


def read_member(struct: json_pb2.Struct, key: str) -> JsonValue:
    """Return a member of an object as a JSON value; None if it is null or the object has none."""
    value = find_member(struct, key)
    return None if value is None else value_json(value)


def has_same_json(struct: json_pb2.Struct, other: json_pb2.Struct) -> bool:
    """Return whether two objects are the same JSON, whatever the order of their members."""
    return canonical_json(struct_json(struct)) == canonical_json(struct_json(other))


def canonical_json(value: object) -> str:
    """Return a JSON value as compact text with sorted members: equal texts are equal JSON."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def read_text(struct: json_pb2.Struct, key: str) -> str:
    """Return a text member of an object, or "" if the object has none."""
    value = find_member(struct, key)
    return "" if value is None else value.string_value


def read_number(struct: json_pb2.Struct, key: str) -> float:
    """Return a number member of an object, or 0 if the object has none."""
    value = read_member(struct, key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def value_json(value: json_pb2.Value) -> JsonValue:
    """Return a value as Python's JSON: its integers are `int`, its other numbers `float`.

    Raises:
        ValueError: an exact number is not an integer. Values that came in are checked before.
    """
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            number = value.number_value
            is_integer = number.is_integer() and -_MAX_INTEGER <= number <= _MAX_INTEGER
            return int(number) if is_integer and not value.is_float else number
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return struct_json(value.struct_value)
        case "list_value":
            return [value_json(item) for item in value.list_value.values]
        case "exact_number":
            return int(value.exact_number)
        case _:
            return None


def struct_json(struct: json_pb2.Struct) -> dict[str, Any]:
    """Return an object as Python's JSON, as `value_json`."""
    return {member.key: value_json(member.value) for member in struct.members}


def find_number_problem(value: json_pb2.Value) -> str:
    """Return the reason why the number of a value is refused, as a predicate, or ""."""
    match value.WhichOneof("kind"):
        case "number_value" if not math.isfinite(value.number_value):
            return "has a number that JSON lacks (NaN, Infinity)"
        case "exact_number" if (
            _INTEGER.fullmatch(value.exact_number) is None
            or abs(int(value.exact_number)) > MAX_NUMBER
        ):
            return "has an exact number that is no integer in the range of a double"
    return ""


def serialize_for_a2a(message: Message) -> bytes:
    """Serialize a message for a peer that reads google.protobuf's types, as A2A over gRPC.

    Raises:
        UnsupportedOperationError: these types can't hold a number exactly. It names the number.
    """
    data = message.SerializeToString()
    if _EXACT_TAG in data and (path := find_exact_number(message, data)):
        raise UnsupportedOperationError(f"{path[:_PATH_CHARS]} over gRPC", _INEXACT)
    return data


def find_exact_number(message: Message, data: bytes) -> str:
    """Return the path of a number that google.protobuf's types can't hold exactly, or "".

    Such a number is an integer above 2^63, or a number that a double can't hold. A path is
    `parts[0].data.id`. `data` are the message's bytes, which show without a search that most
    messages have no such number.
    """
    return next(_exact_numbers(message, ""), "") if _EXACT_TAG in data else ""


def message_to_dict(message: Message, *, with_proto_names: bool = False) -> dict[str, Any]:
    """Return a message as ProtoJSON: json_format's MessageToDict for messages that hold JSON."""
    if isinstance(message, json_pb2.Struct):
        return struct_json(message)
    if not _json_fields(message.DESCRIPTOR):
        return json_format.MessageToDict(message, preserving_proto_field_name=with_proto_names)
    result: dict[str, Any] = {}
    for field, value in message.ListFields():
        write = _field_writer(field, with_proto_names)
        name = field.name if with_proto_names else field.json_name
        if not field.is_repeated:
            result[name] = write(value)
        elif _is_map(field):
            result[name] = {key: write(value[key]) for key in value}
        else:
            result[name] = [write(item) for item in value]
    return result


def parse_dict(value: object, message: M, *, ignore_unknown_fields: bool = False) -> M:
    """Set the fields of a message from ProtoJSON; return the message.

    It replaces json_format's ParseDict for messages that hold JSON, and reads all other messages
    through it.

    Raises:
        ParseError: the value doesn't fit the message.
        NumberRangeError: it has JSON with a number beyond the range of a double.
    """
    _parse_field(value, message, ignore_unknown_fields)
    return message


def _exact_numbers(message: Any, path: str) -> Iterator[str]:  # noqa: ANN401  any message
    """Yield the paths of the exact numbers in a message."""
    for field in _json_fields(message.DESCRIPTOR):
        name = f"{path}.{field.json_name}" if path else field.json_name
        if field.is_repeated:
            for index, item in enumerate(getattr(message, field.name)):
                yield from _exact_numbers_of_field(item, f"{name}[{index}]")
        elif message.HasField(field.name):
            yield from _exact_numbers_of_field(getattr(message, field.name), name)


def _exact_numbers_of_field(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  any message
    match value:
        case json_pb2.Struct():
            for member in value.members:
                yield from _exact_numbers_of_field(member.value, f"{path}.{member.key}")
        case json_pb2.ListValue():
            for index, item in enumerate(value.values):
                yield from _exact_numbers_of_field(item, f"{path}[{index}]")
        case json_pb2.Value():
            match value.WhichOneof("kind"):
                case "exact_number":
                    yield path
                case "struct_value":
                    yield from _exact_numbers_of_field(value.struct_value, path)
                case "list_value":
                    yield from _exact_numbers_of_field(value.list_value, path)
        case _:
            yield from _exact_numbers(value, path)


def _write_members(struct: json_pb2.Struct, values: Mapping[str, Any], depth: int) -> None:
    if depth <= 0:
        raise ValueError("it is nested too deeply")
    add = struct.members.add
    for key, value in values.items():
        if not isinstance(key, str):
            raise ValueError(f"a key is of type {type(key).__name__}, not a text")
        _write_value(add(key=key).value, value, depth - 1)


def _write_value(message: json_pb2.Value, value: object, depth: int) -> None:
    # Chained by frequency: class patterns take twice as long.
    if isinstance(value, str):
        message.string_value = value
    elif value is None:
        message.null_value = json_pb2.NULL_VALUE_UNSPECIFIED
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        _write_integer(message, value)
    elif isinstance(value, float):
        _write_float(message, value)
    elif isinstance(value, Mapping):
        message.struct_value.SetInParent()
        _write_members(message.struct_value, value, depth)
    elif isinstance(value, list | tuple):
        message.list_value.SetInParent()
        if depth <= 0:
            raise ValueError("it is nested too deeply")
        add = message.list_value.values.add
        for item in value:
            _write_value(add(), item, depth - 1)
    else:
        raise ValueError(f"a value of type {type(value).__name__} is no JSON")


def _write_float(message: json_pb2.Value, number: float) -> None:
    if not math.isfinite(number):
        raise ValueError(f"{number} is no JSON")
    message.number_value = number
    if number.is_integer() and -_MAX_INTEGER <= number <= _MAX_INTEGER:
        message.is_float = True


def _write_integer(message: json_pb2.Value, number: int) -> None:
    # Almost all integers are small. The comparison with a float is exact.
    if -_SAFE_INTEGER <= number <= _SAFE_INTEGER or (
        abs(number) <= _MAX_INTEGER and float(number) == number
    ):
        message.number_value = number
    elif abs(number) <= MAX_NUMBER:
        message.exact_number = str(int(number))
    else:
        raise NumberRangeError("a number is out of range")


@cache
def _json_fields(message_type: _Descriptor) -> tuple[_Descriptor, ...]:
    """Return the fields of a message that hold JSON, at any depth.

    Most messages have no such field.
    """
    return tuple(field for field in message_type.fields if _holds_json(field, frozenset()))


@cache
def _json_fields_by_name(message_type: _Descriptor) -> Mapping[str, _Descriptor]:
    """Return the fields that hold JSON by their names in JSON, of which each has two."""
    fields = _json_fields(message_type)
    return {name: field for field in fields for name in (field.json_name, field.name)}


def _holds_json(field: _Descriptor, seen: frozenset[str]) -> bool:
    kind = field.message_type
    # No map of the contract holds JSON.
    if kind is None or kind.full_name in seen or kind.GetOptions().map_entry:
        return False
    inner = seen | {kind.full_name}
    return kind.full_name in JSON_TYPES or any(_holds_json(each, inner) for each in kind.fields)


def _field_writer(field: _Descriptor, with_proto_names: bool) -> Callable[[Any], Any]:  # noqa: FBT001
    """Return the function that converts a value of a field to ProtoJSON."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        field = kind.fields_by_name["value"]
    if field.message_type is not None:
        if field.message_type.full_name == _VALUE:
            return value_json
        return lambda value: message_to_dict(value, with_proto_names=with_proto_names)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT64 | FieldDescriptor.CPPTYPE_UINT64:
            return str
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return _write_double
    return _encode_bytes if field.type == FieldDescriptor.TYPE_BYTES else lambda value: value


def _write_double(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _encode_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _is_map(field: _Descriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _parse_message(value: object, message: Message, ignore_unknown_fields: bool) -> None:  # noqa: FBT001
    if not isinstance(value, Mapping):
        raise ParseError(f"{message.DESCRIPTOR.name} must be an object")
    fields = _json_fields_by_name(message.DESCRIPTOR)
    rest = {name: member for name, member in value.items() if name not in fields}
    json_format.ParseDict(rest, message, ignore_unknown_fields=ignore_unknown_fields)
    for name, member in value.items():
        if (field := fields.get(name)) is None:
            continue
        oneof = field.containing_oneof
        is_taken = oneof is not None and message.WhichOneof(oneof.name) is not None
        if is_taken and member is not None:
            raise ParseError(f"{message.DESCRIPTOR.name} should not have multiple {oneof.name}")
        try:
            if field.is_repeated:
                _parse_list(member, message, field, ignore_unknown_fields)
            # The null of a Value is a value. The null of any other field means that it is unset.
            elif member is not None or (_is_value(field) and not is_taken):
                content = getattr(message, field.name)
                content.SetInParent()
                _parse_field(member, content, ignore_unknown_fields)
        except NumberRangeError:
            raise
        except (ValueError, ParseError) as error:
            raise ParseError(f"Failed to parse {name} field: {error}") from error


def _parse_list(
    value: object,
    message: Message,
    field: _Descriptor,
    ignore_unknown_fields: bool,  # noqa: FBT001
) -> None:
    message.ClearField(field.name)
    if value is None:
        return
    if not isinstance(value, list | tuple):
        raise ParseError("it must be a list")
    items = getattr(message, field.name)
    for item in value:
        _parse_field(item, items.add(), ignore_unknown_fields)


def _parse_field(value: object, message: Any, ignore_unknown_fields: bool) -> None:  # noqa: ANN401, FBT001
    match message:
        case json_pb2.Value():
            _write_value(message, value, _PARSED_DEPTH)
        case json_pb2.Struct():
            if not isinstance(value, Mapping):
                raise ParseError("it must be an object")
            _write_members(message, value, _PARSED_DEPTH)
        case _:
            _parse_message(value, message, ignore_unknown_fields)


def _is_value(field: _Descriptor) -> bool:
    return bool(field.message_type.full_name == _VALUE)
