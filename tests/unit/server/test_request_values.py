"""Times, durations and JSON values that make no sense are refused, with the path of their field."""

import math
from typing import Any

import pytest
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2
from google.protobuf.message import Message

from trunkline.errors import InvalidArgumentError
from trunkline.server.request_values import check_values
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    part_pb2,
    registry_service_pb2,
    task_service_pb2,
    webhook_service_pb2,
)


def with_metadata(value: struct_pb2.Value) -> message_service_pb2.SendMessageRequest:
    metadata = struct_pb2.Struct(fields={"a": value})
    return message_service_pb2.SendMessageRequest(
        message=message_pb2.Message(parts=[part_pb2.Part(), part_pb2.Part(metadata=metadata)])
    )


def number(value: float) -> struct_pb2.Value:
    return struct_pb2.Value(number_value=value)


def after(**fields: int) -> task_service_pb2.ListTasksRequest:
    return task_service_pb2.ListTasksRequest(status_after=timestamp_pb2.Timestamp(**fields))


def lease(**fields: int) -> webhook_service_pb2.ClaimWebhooksRequest:
    return webhook_service_pb2.ClaimWebhooksRequest(lease=duration_pb2.Duration(**fields))


INNER = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[number(math.nan)]))
BAD: list[tuple[Message, str]] = [
    (after(seconds=2**62), "status_after"),
    (after(seconds=-(2**62)), "status_after"),
    (after(nanos=-1), "status_after"),
    (after(nanos=10**9), "status_after"),
    (lease(seconds=-1), "lease"),
    (lease(nanos=-1), "lease"),
    (lease(seconds=2**62), "lease"),
    (with_metadata(number(math.inf)), "message.parts.metadata"),
    (with_metadata(number(math.nan)), "message.parts.metadata"),
    (with_metadata(struct_pb2.Value()), "message.parts.metadata"),
    (with_metadata(INNER), "message.parts.metadata"),
    (
        with_metadata(struct_pb2.Value(struct_value=struct_pb2.Struct(fields={"b": INNER}))),
        "message.parts.metadata",
    ),
    (
        message_service_pb2.SendMessageRequest(
            message=message_pb2.Message(parts=[part_pb2.Part(data=struct_pb2.Value())])
        ),
        "message.parts.data",
    ),
]


@pytest.mark.parametrize(("request_message", "field"), BAD)
def test_a_value_without_sense_is_refused(request_message: Message, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_values(request_message)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "request_message",
    [
        after(),
        after(seconds=-62135596800),
        after(seconds=253402300799, nanos=999_999_999),
        lease(seconds=315576000000),
        with_metadata(number(-1e308)),
        with_metadata(struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)),
        with_metadata(struct_pb2.Value(list_value=struct_pb2.ListValue())),
        message_service_pb2.SendMessageRequest(),
        registry_service_pb2.RegisterRequest(
            host=registry_service_pb2.Host(host_id="h", address="127.0.0.1:1")
        ),
    ],
)
def test_sensible_values_pass(request_message: Any) -> None:
    before = request_message.SerializeToString()
    check_values(request_message)
    assert request_message.SerializeToString() == before
