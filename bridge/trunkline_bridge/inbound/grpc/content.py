"""Reads protobuf that strangers wrote: in bounded time, and only what JSON can say as well."""

import asyncio
import math
from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from trunkline_bridge.errors import invalid_params

M = TypeVar("M", bound=Message)

# As many as in JSON: what looks at each of them takes its time.
_VALUES = 50_000
# Messages up to here are read at once.
_READ_HERE_BYTES = 64 * 1024
# Years 1 to 9999: what JSON has a way to write.
_SECONDS = range(-62_135_596_800, 253_402_300_800)


async def read_request(kind: type[M], body: bytes) -> M:
    """Return a request; fields that A2A doesn't have are dropped, as it wants it.

    A large one is read in a thread: it may take a while, and others are being served.

    Raises:
        WireError: it isn't such a message, or what it holds can't be said in JSON.
    """
    if len(body) <= _READ_HERE_BYTES:
        return _read(kind, body)
    return await asyncio.to_thread(_read, kind, body)


def _read(kind: type[M], body: bytes) -> M:
    try:
        request = kind.FromString(body)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        problem = f"is not a {name}, has text that is not UTF-8, or is nested too deeply"
        raise invalid_params(("request", problem)) from None
    request.DiscardUnknownFields()
    left = _VALUES
    for inner in _messages(request):
        left -= 1
        if left < 0:
            problem = f"more than {_VALUES} values; send large data as raw, or by url"
            raise invalid_params(("request", problem))
        _check(inner)
    return request


def _messages(message: Message) -> Iterator[Any]:
    """Yield a message and all that are in it."""
    waiting: list[Any] = [message]
    while waiting:
        inner = waiting.pop()
        yield inner
        for field, value in inner.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                values = value.values()
                waiting += (one for one in values if isinstance(one, Message))
            elif field.is_repeated:
                # No more than can pass, for some would take longer to list than to read.
                waiting += value[: _VALUES + 1]
            else:
                waiting.append(value)


def _check(message: Any) -> None:  # noqa: ANN401  any message
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Value":
        if not math.isfinite(message.number_value):
            raise invalid_params(("request", "holds a number that JSON doesn't have"))
    elif name == Timestamp.DESCRIPTOR.full_name and (
        message.seconds not in _SECONDS or not 0 <= message.nanos < 1_000_000_000
    ):
        raise invalid_params(("request", "holds a time before the year 1 or after 9999"))
