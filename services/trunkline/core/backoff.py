"""Pauses between retries: exponential backoff with jitter, and a limit on how long to retry."""

import asyncio
import random
import time

from trunkline.errors import TrunklineError


class Backoff:
    """Pauses that double from `first_s` up to `limit_s`, each shortened by up to half at random."""

    def __init__(self, *, first_s: float = 0.1, limit_s: float = 2.0) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._next_s = first_s

    def reset(self) -> None:
        """Start with the shortest pause again, because a try succeeded."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Return the next pause in seconds."""
        pause_s = self._next_s
        self._next_s = min(self._limit_s, pause_s * 2)
        # Jitter spreads the retries of peers that lost one server. It protects no secret.
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311

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
