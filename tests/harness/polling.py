"""Polling: other processes and background writers have no event for what they do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

_PATIENCE_S: Final = 300.0
_PAUSE_S: Final = 0.05

T = TypeVar("T")


async def poll(read: Callable[[], Awaitable[T]], is_wanted: Callable[[T], object] = bool) -> T:
    """Read a value until it is as wanted; return it."""
    async with asyncio.timeout(_PATIENCE_S):
        while not is_wanted(value := await read()):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)
    return value


async def wait_for(predicate: Callable[[], bool]) -> None:
    """Wait until a condition is true that has no event, or that another process fulfils."""

    async def read() -> bool:
        return predicate()

    await poll(read)
