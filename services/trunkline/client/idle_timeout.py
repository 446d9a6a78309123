"""How long a peer may be silent: one timer that is rarely set anew, however often it speaks."""

import asyncio
from types import TracebackType
from typing import Self


class IdleTimeout:
    """Ends a block with TimeoutError when nothing was heard in it for `limit_s`.

    Between `speaks` and `listen` time doesn't count.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._listens = True
        self._since_s = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self.resume()
        self._wait(self._limit_s)
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
        """Count from now on."""
        self._listens = True
        self._since_s = self._loop.time()

    def pause(self) -> None:
        """Something was heard; don't count until it is dealt with."""
        self._listens = False

    def _wait(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        left_s = self._since_s + self._limit_s - self._loop.time()
        if not self._listens:
            self._wait(self._limit_s)
        elif left_s > 0:
            self._wait(left_s)
        else:
            self._timer = None
            self._timeout.reschedule(self._loop.time())
