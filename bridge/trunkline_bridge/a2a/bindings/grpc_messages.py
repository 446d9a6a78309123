"""Parses protobuf requests from clients, in bounded time; their values must exist in JSON."""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf import timestamp_pb2
from google.protobuf.message import DecodeError, Message

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.json_values import find_number_problem
from trunkline.v1 import json_pb2
from trunkline_bridge.http.json_decoder import INLINE_PARSE_BYTES, MAX_VALUES, TOO_MANY_VALUES

M = TypeVar("M", bound=Message)

# Content of this depth fits wherever the mesh wraps it.
_SAFE_DEPTH = 40
# Years 1 to 9999: the range of ProtoJSON.
_SECONDS = range(-62_135_596_800, 253_402_300_800)


class ParsedRequest(NamedTuple, Generic[M]):
    """A parsed request."""

    request: M
    is_deep: bool
    """True if it may be nested too deeply for the mesh."""


async def parse_request(message_type: type[M], body: bytes) -> ParsedRequest[M]:
    """Parse a request and discard unknown fields, as A2A requires.

    A large request is parsed in a thread.

    Raises:
        WireError: the body is not such a message, or has a value that JSON can't represent.
    """
    if len(body) <= INLINE_PARSE_BYTES:
        return _parse(message_type, body)
    return await asyncio.to_thread(_parse, message_type, body)


def _parse(message_type: type[M], body: bytes) -> ParsedRequest[M]:
    try:
        request = message_type.FromString(body)
    except DecodeError:
        name = message_type.DESCRIPTOR.name
        raise _invalid_request(
            f"is not a {name}, has text that is not UTF-8, or is nested too deeply"
        ) from None
    request.DiscardUnknownFields()
    return ParsedRequest(request, _check_content(request) > _SAFE_DEPTH)


def _check_content(message: Message) -> int:
    """Check a message and all nested messages; return the number of levels.

    Raises:
        WireError: there are too many values, or a value that JSON can't represent.
    """
    level: list[Any] = [message]
    remaining, depth = MAX_VALUES, 0
    while level:
        depth += 1
        remaining -= len(level)
        if remaining < 0:
            raise _too_many_values()
        below: list[Any] = []
        for nested in level:
            check = _CHECKS.get(type(nested))
            if check is not None:
                check(nested)
            _add_nested(nested, below)
        level = below
    return depth


def _add_nested(message: Any, below: list[Any]) -> None:  # noqa: ANN401  any message
    message_type: Any = type(message)
    singles, lists, maps = _message_fields(message_type)
    below.extend(getattr(message, field) for field in singles if message.HasField(field))
    for field in lists:
        values = getattr(message, field)
        if len(values) > MAX_VALUES:
            # Listing them would take longer than parsing.
            raise _too_many_values()
        below.extend(values)
    for field in maps:
        below.extend(getattr(message, field).values())


class _MessageFields(NamedTuple):
    """The fields of a message whose values are messages."""

    singles: tuple[str, ...]
    lists: tuple[str, ...]
    maps: tuple[str, ...]


@cache
def _message_fields(message_type: Any) -> _MessageFields:  # noqa: ANN401  a type of messages
    singles, lists, maps = [], [], []
    for field in message_type.DESCRIPTOR.fields:
        if field.message_type is None:
            continue
        if not field.is_repeated:
            singles.append(field.name)
        elif not field.message_type.GetOptions().map_entry:
            lists.append(field.name)
        elif field.message_type.fields_by_name["value"].message_type is not None:
            maps.append(field.name)
    return _MessageFields(tuple(singles), tuple(lists), tuple(maps))


def _check_value(value: json_pb2.Value) -> None:
    if problem := find_number_problem(value):
        raise _invalid_request(problem)


def _check_time(time: timestamp_pb2.Timestamp) -> None:
    if time.seconds not in _SECONDS or not 0 <= time.nanos < 1_000_000_000:
        raise _invalid_request("contains a time before the year 1 or after 9999")


_CHECKS: Mapping[type[Message], Callable[[Any], None]] = {
    json_pb2.Value: _check_value,
    timestamp_pb2.Timestamp: _check_time,
}


def _too_many_values() -> WireError:
    return _invalid_request(TOO_MANY_VALUES)


def _invalid_request(problem: str) -> WireError:
    return invalid_params(("request", problem))
