"""Server-sent events, as clients read them."""

from collections.abc import AsyncIterator
from typing import NamedTuple


class SentEvent(NamedTuple):
    """An event as it was sent; fields that it lacks are empty."""

    id: str
    kind: str
    data: str


async def read_event(lines: AsyncIterator[str]) -> SentEvent | None:
    """Read the next event from the lines of a stream, without comments; None at the end."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif not line and fields:
            return SentEvent(fields.get("id", ""), fields.get("event", ""), fields.get("data", ""))
    return None


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[SentEvent]:
    """Yield the events of a stream, to its end."""
    while (event := await read_event(lines)) is not None:
        yield event
