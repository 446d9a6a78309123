"""Pauses between retries: exponential backoff with jitter, and a limit on how long to retry."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from trunkline.errors import JournalUnavailableError, JournalUnusableError, TrunklineError

_Result = TypeVar("_Result")

PATIENCE_S: Final = 30.0
"""The time for which callers wait for a store that is not available. A restart of a database, or a
failover, takes seconds."""
OUTAGE_S: Final = 600.0
"""The time for which a running task waits for a store besides its journal, in seconds."""

# Limits the exponent. More doublings exceed every pause.
_MAX_DOUBLINGS: Final = 60


def backoff_s(failures: int, *, first_s: float, limit_s: float) -> float:
    """Return the pause in seconds after a number of failures in a row, at least 1.

    Pauses double from `first_s` up to `limit_s`. Each is shortened by up to half at random.
    """
    pause_s: float = min(limit_s, first_s * 2 ** min(failures - 1, _MAX_DOUBLINGS))
    # Jitter spreads the retries of peers that lost one server. It protects no secret.
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311


class Backoff:
    """The pauses of `backoff_s`, for a caller that does not count its failures."""

    def __init__(self, *, first_s: float = 0.1, limit_s: float = 2.0) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._failures = 0

    def reset(self) -> None:
        """Start with the shortest pause again, because a try succeeded."""
        self._failures = 0

    def next_s(self) -> float:
        """Return the next pause in seconds."""
        self._failures += 1
        return backoff_s(self._failures, first_s=self._first_s, limit_s=self._limit_s)

    async def pause(self) -> None:
        """Sleep for the next pause."""
        await asyncio.sleep(self.next_s())


class RetryWindow:
    """Retries for at most `limit_s` seconds after the first of several failures in a row."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ends_at_s: float | None = None
        self._backoff = Backoff()

    @property
    def is_retrying(self) -> bool:
        """True if the last try failed."""
        return self._ends_at_s is not None

    def reset(self) -> None:
        """Note a success: the next failure starts a new window with the shortest pause."""
        if self._ends_at_s is not None:
            self._ends_at_s = None
            self._backoff.reset()

    def next_pause_s(self, error: TrunklineError) -> float:
        """Note a failure and return the pause before the next try, in seconds.

        Raises:
            TrunklineError: `error` itself, once the window is over.
        """
        now_s = time.monotonic()
        if self._ends_at_s is None:
            self._ends_at_s = now_s + self._limit_s
        if now_s >= self._ends_at_s:
            raise error
        return min(self._backoff.next_s(), self._ends_at_s - now_s)


async def retry_while_unavailable(
    work: Callable[[], Awaitable[_Result]], *, limit_s: float = PATIENCE_S
) -> _Result:
    """Repeat work on a store, which may run several times, while the store is not available.

    Raises:
        JournalUnavailableError: it was not available for `limit_s` seconds.
        JournalUnusableError: a wait is of no use.
    """
    retries = RetryWindow(limit_s)
    while True:
        try:
            return await work()
        except JournalUnusableError:
            raise
        except JournalUnavailableError as error:
            await asyncio.sleep(retries.next_pause_s(error))
