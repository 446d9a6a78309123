"""A token bucket that bounds how fast the output of an MCP server is read."""

import asyncio
from collections.abc import Callable
from typing import Final

_RATE_PER_S: Final = 500.0
_BURST: Final = 2_000.0
# Larger pieces cost more tokens, so that the bytes are bounded as well: 8 MB a second.
_BYTES_PER_TOKEN: Final = 16_384
# A reader that pauses for each message would wake as often as the server sends.
_PAUSE_S: Final = 0.5
# Reading from a buffer never suspends, so the reader yields to other tasks after this cost.
_TOKENS_PER_STEP: Final = 16.0


class Pace:
    """Bounds the reading from a server: 2,000 messages or lines at once, then 500 a second.

    Each 16 KB of a message count as one more message. While reading pauses, the server waits until
    its pipe or connection is read.
    """

    def __init__(self, on_excess: Callable[[], None]) -> None:
        """Create a full bucket. `on_excess` is called at each pause."""
        self._on_excess = on_excess
        self._tokens = _BURST
        self._updated_at = 0.0
        self._since_step = 0.0

    async def take(self, pieces: int, size_bytes: int) -> float:
        """Count the pieces that were read, and pause if they were too many. Return their cost."""
        before = self._since_step
        pause_s = self.count(pieces, size_bytes)
        cost = self._since_step - before
        if pause_s or self._since_step >= _TOKENS_PER_STEP:
            self._since_step = 0.0
            await asyncio.sleep(pause_s)
        return cost

    def count(self, pieces: int, size_bytes: int) -> float:
        """Count the pieces that were read. Return the seconds for which the reader should pause."""
        now = asyncio.get_running_loop().time()
        cost = pieces + size_bytes / _BYTES_PER_TOKEN
        earned = (now - self._updated_at) * _RATE_PER_S
        self._tokens = min(_BURST, self._tokens + earned) - cost
        self._updated_at = now
        self._since_step += cost
        if self._tokens >= 0:
            return 0.0
        self._on_excess()
        return max(_PAUSE_S, -self._tokens / _RATE_PER_S)

    def give_back(self, cost: float) -> None:
        """Return the cost of a message that we asked for, such as the answer to a request."""
        self._tokens += cost
