"""Writes A2A v0.3's protobuf messages as the JSON of its HTTP+JSON binding.

Unlike ProtoJSON, times have milliseconds, whole numbers have no fraction, and only
necessary characters are escaped. Default values are left out.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trunkline.a2a_wire.json_values import Json, format_timestamp
from trunkline.a2a_wire.v0_3 import proto_writer
from trunkline.a2a_wire.v0_3.file_bytes import decode_file_bytes
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline.a2a_wire.wire_events import WireEvent
from trunkline.json_values import STRUCT_TYPE, struct_json


def proto_message_json(message: Message) -> Json:
    """Convert a protobuf message to JSON: its set fields by their JSON names."""
    return {field.json_name: _field(field, value) for field, value in message.ListFields()}


class V03ProtoEventWriter(V1EventWriter):
    """Writes events in the JSON of v0.3's HTTP+JSON; text deltas are the same as in v1.0."""

    def __init__(self, *, uses_raw_files: bool = False) -> None:
        """With `uses_raw_files`, the client expects files as raw bytes; see `file_bytes`."""
        self._uses_raw_files = uses_raw_files

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON of an event except a text delta."""
        response = proto_writer.to_v0_3_stream_response(event.response)
        if self._uses_raw_files:
            decode_file_bytes(response)
        return (proto_message_json(response),)


# Descriptors have no common type.
def _field(field: Any, value: Any) -> Any:  # noqa: ANN401
    write = _writer(field)
    return [write(item) for item in value] if field.is_repeated else write(value)


def _writer(field: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    if field.message_type is not None:
        return _MESSAGES.get(field.message_type.full_name, proto_message_json)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    return _bytes if field.type == FieldDescriptor.TYPE_BYTES else _unchanged


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _unchanged(value: Any) -> Any:  # noqa: ANN401
    return value


_MESSAGES: Mapping[str, Callable[[Any], Any]] = {
    STRUCT_TYPE: struct_json,
    "google.protobuf.Timestamp": format_timestamp,
}
