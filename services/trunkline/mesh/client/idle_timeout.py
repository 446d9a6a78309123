"""A timeout for a silent peer. A message does not reset its timer, so messages stay cheap."""

import asyncio
from types import TracebackType
from typing import Self


class IdleTimeout:
    """Ends a block with TimeoutError after `limit_s` seconds without a message.

    Time between `pause` and `resume` does not count.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = True
        self._since_s = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self.resume()
        self._schedule(self._limit_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._timeout.__aexit__(kind, error, trace)

    def resume(self) -> None:
        """Start to count from zero again: the reader waits for the next message."""
        self._is_running = True
        self._since_s = self._loop.time()

    def pause(self) -> None:
        """Stop counting: a message has arrived and is being handled."""
        self._is_running = False

    def _schedule(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._check)

    def _check(self) -> None:
        remaining_s = self._since_s + self._limit_s - self._loop.time()
        if not self._is_running:
            self._schedule(self._limit_s)
        elif remaining_s > 0:
            self._schedule(remaining_s)
        else:
            self._timer = None
            self._timeout.reschedule(self._loop.time())
