"""Reads protobuf that strangers wrote: in bounded time, and only what JSON can say as well."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from trunkline_bridge.errors import invalid_params

M = TypeVar("M", bound=Message)

# As many as in JSON: what looks at each of them takes its time.
_VALUES = 50_000
# Messages up to here are read at once.
_READ_HERE_BYTES = 64 * 1024
# Up to here content fits wherever the mesh wraps it. JSON has a level for two or three of these.
_SAFE_DEPTH = 40
# Years 1 to 9999: what JSON has a way to write.
_SECONDS = range(-62_135_596_800, 253_402_300_800)


class Given(NamedTuple, Generic[M]):
    """A request as it was given."""

    request: M
    is_deep: bool
    """Whether it may be nested too deeply for the mesh."""


async def read_request(kind: type[M], body: bytes) -> Given[M]:
    """Return a request; fields that A2A doesn't have are dropped, as it wants it.

    A large one is read in a thread: it may take a while, and others are being served.

    Raises:
        WireError: it isn't such a message, or what it holds can't be said in JSON.
    """
    if len(body) <= _READ_HERE_BYTES:
        return _read(kind, body)
    return await asyncio.to_thread(_read, kind, body)


def _read(kind: type[M], body: bytes) -> Given[M]:
    try:
        request = kind.FromString(body)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        problem = f"is not a {name}, has text that is not UTF-8, or is nested too deeply"
        raise invalid_params(("request", problem)) from None
    request.DiscardUnknownFields()
    deepest = 0
    for count, (depth, inner) in enumerate(_messages(request)):
        if count >= _VALUES:
            problem = f"more than {_VALUES} values; send large data as raw, or by url"
            raise invalid_params(("request", problem))
        _check(inner)
        deepest = max(deepest, depth)
    return Given(request, deepest > _SAFE_DEPTH)


def _messages(message: Message) -> Iterator[tuple[int, Any]]:
    """Yield a message and all that are in it, each with how deep it is."""
    waiting: list[tuple[int, Any]] = [(1, message)]
    while waiting:
        depth, inner = waiting.pop()
        yield depth, inner
        for field, value in inner.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                # An entry is a message, too.
                waiting += ((depth + 2, one) for one in value.values() if isinstance(one, Message))
            elif field.is_repeated:
                # No more than can pass: to list them takes longer than to read them.
                waiting += ((depth + 1, one) for one in value[: _VALUES + 1])
            else:
                waiting.append((depth + 1, value))


def _check(message: Any) -> None:  # noqa: ANN401  any message
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Value":
        if not math.isfinite(message.number_value):
            raise invalid_params(("request", "holds a number that JSON doesn't have"))
    elif name == Timestamp.DESCRIPTOR.full_name and (
        message.seconds not in _SECONDS or not 0 <= message.nanos < 1_000_000_000
    ):
        raise invalid_params(("request", "holds a time before the year 1 or after 9999"))
