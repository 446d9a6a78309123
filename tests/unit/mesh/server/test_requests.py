"""Invalid times, durations and JSON values are refused, with the path of their field."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.message import Message

from trunkline.errors import InvalidArgumentError
from trunkline.mesh.server import requests
from trunkline.mesh.server.requests import check_values
from trunkline.v1 import (
    json_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    registry_service_pb2,
    task_service_pb2,
    webhook_service_pb2,
)


def struct_of(**members: json_pb2.Value) -> json_pb2.Struct:
    pairs = members.items()
    return json_pb2.Struct(members=[json_pb2.Member(key=key, value=value) for key, value in pairs])


def with_metadata(value: json_pb2.Value) -> message_service_pb2.SendMessageRequest:
    metadata = struct_of(a=value)
    return message_service_pb2.SendMessageRequest(
        message=message_pb2.Message(parts=[part_pb2.Part(), part_pb2.Part(metadata=metadata)])
    )


def number(value: float) -> json_pb2.Value:
    return json_pb2.Value(number_value=value)


def after(**fields: int) -> task_service_pb2.ListTasksRequest:
    return task_service_pb2.ListTasksRequest(status_after=timestamp_pb2.Timestamp(**fields))


def lease(**fields: int) -> webhook_service_pb2.ClaimWebhooksRequest:
    return webhook_service_pb2.ClaimWebhooksRequest(lease=duration_pb2.Duration(**fields))


INNER = json_pb2.Value(list_value=json_pb2.ListValue(values=[number(math.nan)]))
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
    (with_metadata(json_pb2.Value()), "message.parts.metadata"),
    *(
        (with_metadata(json_pb2.Value(exact_number=digits)), "message.parts.metadata")
        for digits in ("", "-", "1.5", "1e3", "01", "+1", " 1", "٣", "0x1", "9" * 309, "9" * 5000)
    ),
    (with_metadata(INNER), "message.parts.metadata"),
    (
        with_metadata(json_pb2.Value(struct_value=struct_of(b=INNER))),
        "message.parts.metadata",
    ),
    (
        message_service_pb2.SendMessageRequest(
            message=message_pb2.Message(parts=[part_pb2.Part(data=json_pb2.Value())])
        ),
        "message.parts.data",
    ),
]


@pytest.mark.parametrize(("request_message", "field"), BAD)
def test_an_invalid_value_is_refused(request_message: Message, field: str) -> None:
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
        with_metadata(json_pb2.Value(null_value=json_pb2.NULL_VALUE_UNSPECIFIED)),
        with_metadata(json_pb2.Value(list_value=json_pb2.ListValue())),
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


def many_numbers(count: int) -> json_pb2.Value:
    return json_pb2.Value(list_value=json_pb2.ListValue(values=[number(1)] * count))


def many_texts(count: int) -> json_pb2.Value:
    fields = {str(key): json_pb2.Value(string_value="a") for key in range(count)}
    return json_pb2.Value(struct_value=struct_of(**fields))


@pytest.mark.parametrize("make_values", [many_numbers, many_texts])
def test_a_request_has_a_limited_number_of_values(
    make_values: Callable[[int], json_pb2.Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_VALUE_LIMIT", 100)
    # Two parts, the member `a` of the metadata, and 97 values in it.
    check_values(with_metadata(make_values(97)))
    with pytest.raises(InvalidArgumentError, match="more than 100 values") as caught:
        check_values(with_metadata(make_values(98)))
    assert caught.value.field == "message.parts.metadata"


def test_a_request_has_a_limited_number_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_VALUE_LIMIT", 100)
    message = message_pb2.Message(parts=[part_pb2.Part()] * 101)
    with pytest.raises(InvalidArgumentError) as caught:
        check_values(message_service_pb2.SendMessageRequest(message=message))
    assert caught.value.field == "message.parts"
