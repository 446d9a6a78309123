"""When a host's emitters flush: at ticks that they share, and again after trouble with the disk."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from trunkline.errors import JournalUnavailableError

logger = logging.getLogger(__name__)

# Waits between tries while the journal can't be written.
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 1.0


class Flushable(Protocol):
    """Somebody who has something to flush."""

    def on_tick(self) -> None:
        """Flush what has gathered."""

    def on_retry(self) -> None:
        """Try again what could not be written."""

    def on_closed(self, error: JournalUnavailableError) -> None:
        """Give up what could not be written: there will be no other try."""


class Flushing:
    """Lets the emitters of a host flush together, so that what they flush is one commit.

    Ticks are at least `interval_s` apart and come only while somebody waits for one. While the
    journal can't be written, emitters keep what they hold and try again, all at once, less and
    less often; the log gets a line when that begins and one when it is over.
    """

    def __init__(
        self, interval_s: float, *, journal_id: str, on_fenced: Callable[[], None]
    ) -> None:
        """`on_fenced` is called when a write is refused because somebody has taken over."""
        self._interval_s = interval_s
        self._journal_id = journal_id
        self.on_fenced = on_fenced
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Flushable] = []
        self._timer: asyncio.Handle | None = None
        self._last_tick = float("-inf")
        self._stalled: list[Flushable] = []
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = _FIRST_RETRY_S
        self._is_closed = False
        self.trouble: JournalUnavailableError | None = None
        """What keeps the journal from being written now."""

    def join(self, emitter: Flushable) -> None:
        """Have the emitter flush at the next tick; it joins once for each."""
        self._waiting.append(emitter)
        if self._timer is not None:
            return
        wait_s = self._last_tick + self._interval_s - self._loop.time()
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._tick)
        else:
            # Not at once: whatever else is emitted in this turn of the loop goes along.
            self._timer = self._loop.call_soon(self._tick)

    def stall(self, emitter: Flushable, error: JournalUnavailableError) -> bool:
        """Have the emitter try again later what could not be written; False: it need not hope."""
        if self._is_closed:
            return False
        if self.trouble is None:
            extra = {"journal": self._journal_id, "problem": error.problem}
            logger.error("journal.unavailable", extra=extra)
        self.trouble = error
        self._stalled.append(emitter)
        if self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._try_again)
            self._retry_s = min(_LAST_RETRY_S, self._retry_s * 2)
        return True

    def recovered(self) -> None:
        """Note that the journal was written again."""
        logger.warning("journal.available", extra={"journal": self._journal_id})
        self.trouble = None
        self._retry_s = _FIRST_RETRY_S

    def close(self) -> None:
        """Try nothing again from now on; those who would have are told."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        stalled, self._stalled = self._stalled, []
        for emitter in stalled:
            emitter.on_closed(
                self.trouble or JournalUnavailableError(self._journal_id, "it is closed")
            )

    def _tick(self) -> None:
        self._timer = None
        self._last_tick = self._loop.time()
        waiting, self._waiting = self._waiting, []
        for emitter in waiting:
            emitter.on_tick()

    def _try_again(self) -> None:
        self._retry = None
        stalled, self._stalled = self._stalled, []
        for emitter in stalled:
            emitter.on_retry()
