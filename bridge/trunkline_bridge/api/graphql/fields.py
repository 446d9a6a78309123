"""Reads the fields of the schema from objects: members of ours, and messages of the contract.

The field `statusText` is the member `status_text` of its object. Without such a member, it is the
field `status_text` of the message that the object shows. A member that is a function gets the
context and the arguments, by their names in Python.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from graphql import (
    GraphQLEnumType,
    GraphQLError,
    GraphQLField,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLResolveInfo,
    GraphQLScalarType,
    GraphQLSchema,
)

from trunkline.core.json_values import read_json
from trunkline.v1 import envelope_pb2, json_pb2, task_pb2

_UPPER: Final = re.compile(r"(?=[A-Z])")
# Dates without a day, or without a month and a day, begin at the first one.
_SHORT_DATE: Final = re.compile(r"\d{4}(-\d\d)?", re.ASCII)
# The enums of the contract, and the prefixes of their values there.
_ENUMS: Final[Mapping[str, tuple[EnumDescriptor, str]]] = {
    "DeliveryState": (envelope_pb2.DeliveryState.DESCRIPTOR, "DELIVERY_STATE_"),
    "MessagePriority": (envelope_pb2.EnvelopePriority.DESCRIPTOR, "ENVELOPE_PRIORITY_"),
    "RunState": (task_pb2.TaskState.DESCRIPTOR, "TASK_STATE_"),
}

_Resolver: TypeAlias = Callable[..., object]


class Node:
    """An object of the schema that shows a message of the contract.

    Members of the object hide the fields of the message that have the same names.
    """

    def __init__(self, shown: Message) -> None:
        self.shown = shown


def bind_fields(schema: GraphQLSchema) -> None:
    """Make all fields, scalars and enums of a schema read our objects."""
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            for name, field in kind.fields.items():
                _bind_field(name, field)
    if schema.subscription_type is not None:
        for field in schema.subscription_type.fields.values():
            field.subscribe, field.resolve = field.resolve, _read_event
    for name, (contract, prefix) in _ENUMS.items():
        enum = schema.type_map[name]
        if isinstance(enum, GraphQLEnumType):
            for label, value in enum.values.items():
                value.value = contract.values_by_name[prefix + label].number
    times = schema.type_map["DateTime"]
    if isinstance(times, GraphQLScalarType):
        times.coerce_output_value = datetime.isoformat
        times.coerce_input_value = _parse_time


def to_time(timestamp: timestamp_pb2.Timestamp) -> datetime | None:
    """Return a time of the contract, or None if it is unset."""
    if not timestamp.seconds and not timestamp.nanos:
        return None
    return timestamp.ToDatetime(tzinfo=UTC)


def _bind_field(name: str, field: GraphQLField) -> None:
    for label, argument in field.args.items():
        argument.out_name = _to_snake(label)
    is_nullable = not isinstance(field.type, GraphQLNonNull)
    field.resolve = _build_resolver(_to_snake(name), is_nullable=is_nullable)


def _build_resolver(name: str, *, is_nullable: bool) -> _Resolver:
    def resolve(source: object, info: "GraphQLResolveInfo[Any]", **arguments: object) -> object:
        value = _find(source, name, is_nullable=is_nullable)
        return value(info.context, **arguments) if callable(value) else _convert(value)

    return resolve


def _find(source: Any, name: str, *, is_nullable: bool) -> Any:  # noqa: ANN401  any member
    if isinstance(source, Mapping):
        return source[name]
    if isinstance(source, Node) and not hasattr(source, name):
        source = source.shown
    if is_nullable and isinstance(source, Message):
        has_presence = source.DESCRIPTOR.fields_by_name[name].has_presence
        if has_presence and not source.HasField(name):
            return None
    return getattr(source, name)


def _convert(value: object) -> object:
    """Return a value of the contract as a value of GraphQL; other values stay as they are."""
    match value:
        case timestamp_pb2.Timestamp():
            return to_time(value)
        case json_pb2.Struct() | json_pb2.Value():
            return read_json(value)
        case _:
            return value


def _read_event(event: object, _info: "GraphQLResolveInfo[Any]", **_arguments: object) -> object:
    """Return an event of a subscription, which is the value of its only field."""
    return event


def _parse_time(text: object) -> str:
    """Return a time in the form of the contract. A time without a zone is UTC.

    Raises:
        GraphQLError: it is not a time.
    """
    try:
        if not isinstance(text, str):
            raise TypeError
        is_short = _SHORT_DATE.fullmatch(text)
        time = datetime.fromisoformat(f"{text}-01-01"[:10] if is_short else text)
    except (TypeError, ValueError):
        raise GraphQLError(f"Value cannot represent a DateTime: {text!r}.") from None
    return time.isoformat() if time.tzinfo else f"{time.isoformat()}Z"


def _to_snake(name: str) -> str:
    return _UPPER.sub("_", name).lower()
