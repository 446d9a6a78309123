"""Repeats statements while the database is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from trunkline.core.backoff import RetryWindow
from trunkline.errors import JournalUnavailableError

_Result = TypeVar("_Result")

# A restart of the database, or a failover, takes seconds.
_PATIENCE_S: Final = 10.0


async def retry_while_away(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeat work, which may run several times, while the database is away.

    Raises:
        JournalUnavailableError: it was away for ten seconds, or refuses the work.
    """
    retries = RetryWindow(_PATIENCE_S)
    while True:
        try:
            return await work()
        except JournalUnavailableError as error:
            await asyncio.sleep(retries.next_pause_s(error))
