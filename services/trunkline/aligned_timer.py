"""Timers that fire at the same moments in all processes of a machine.

Periodic work such as renewals and pings wakes its process and every process that it calls. Aligned
to multiples of the period, it wakes them once per period instead of at many separate moments.
"""

import asyncio
import math


def next_tick(now_s: float, period_s: float) -> float:
    """Return the next tick of a period on the event loop's clock.

    Ticks are multiples of the period. The result is 0.1 to 1.1 periods after `now_s`.
    """
    # A timer may fire just before its tick; the minimum distance keeps it from firing twice.
    return math.floor(now_s / period_s + 1.1) * period_s


async def sleep_until_tick(period_s: float) -> None:
    """Sleep until the next tick of a period."""
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now_s, period_s) - now_s)
