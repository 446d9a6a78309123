"""An agent that writes the time of the machine's monotonic clock: `clock`."""

import asyncio
import time
from typing import Final

from trunkline import TaskContext, agent

_INTERVAL_S: Final = 0.02


@agent(name="clock", description="Writes the time.")
async def clock(task: TaskContext) -> None:
    """Write the time every 20 ms, for as many seconds as the message says."""
    artifact = task.artifact("times")
    loop = asyncio.get_running_loop()
    due_s = end_s = loop.time()
    end_s += float(task.text)
    while due_s < end_s:
        due_s += _INTERVAL_S
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        await artifact.append(f"{time.monotonic_ns()} ")
