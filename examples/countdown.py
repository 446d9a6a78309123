"""Streams text: each yielded piece reaches the client at once.

$ trunkline up --agent countdown:countdown
$ trunkline ask --agent countdown "from 5"
5 4 3 2 1 liftoff!
"""

import asyncio
import re
from collections.abc import AsyncIterator

from trunkline import TaskContext, agent, run


@agent(
    name="countdown",
    description="Counts down to a liftoff.",
    tags=["countdown", "count down", "liftoff"],
    examples=["count down from 5"],
    # If its host dies, the turn runs again elsewhere; its earlier output is cut.
    repeatable=True,
)
async def countdown(task: TaskContext) -> AsyncIterator[str]:
    """Count from the first number of the message, or ask for one."""
    match = re.search(r"\d{1,2}", task.text)
    if match is None:
        await task.require_input("From which number?")
        return
    await task.working("Fuelling…")
    for number in range(int(match[0]), 0, -1):
        yield f"{number} "
        # A canceled task stops at this await.
        await asyncio.sleep(0.05)
    yield "liftoff!"


if __name__ == "__main__":
    run(countdown)
