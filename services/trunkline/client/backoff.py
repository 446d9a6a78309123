"""How long to pause before trying again: exponential, with jitter."""

import asyncio
import random


class Backoff:
    """Pauses that double from `first_s` up to `limit_s`, each cut by up to half at random."""

    def __init__(self, *, first_s: float = 0.1, limit_s: float = 2.0) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._next_s = first_s

    def reset(self) -> None:
        """Begin with the shortest pause again: the last try succeeded."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Return the next pause, in seconds."""
        pause_s = self._next_s
        self._next_s = min(self._limit_s, pause_s * 2)
        # Jitter keeps peers apart that lost the same server together; nothing secret hangs on it.
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311

    async def pause(self) -> None:
        """Sleep for the next pause."""
        await asyncio.sleep(self.next_s())
