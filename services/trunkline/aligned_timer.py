"""The moments at which the processes of a machine do what they do every so often: all the same.

Doing it wakes each of them, and whomever they all call, once and not at as many moments.
"""

import asyncio
import math


def next_tick(now_s: float, period_s: float) -> float:
    """Return when the next beat of a period comes, by the clock of event loops.

    It is a tenth of the period away at least, and 1.1 of it at most.
    """
    # A timer may fire just before its beat, which is not to come twice.
    return math.floor(now_s / period_s + 1.1) * period_s


async def sleep_until_tick(period_s: float) -> None:
    """Wait for the next beat of a period."""
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now_s, period_s) - now_s)
