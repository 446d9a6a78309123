"""Many agents for one mesh, and one that streams at a rate: the load of the page's proof."""

import asyncio
import time
from typing import Final

from trunkline import TaskContext, agent

MOST: Final = 200
TICK_S: Final = 0.01


async def _answer(task: TaskContext) -> None:
    """Answer at once."""
    await task.artifact("answer").append(task.text, last=True)


# Found by `--agent MODULE:NAME`.
AGENTS: Final = tuple(f"agent_{number:03}" for number in range(MOST))
globals().update(
    {
        name: agent(name=name.replace("_", "-"), description="Answers at once.")(_answer)
        for name in AGENTS
    }
)


@agent(name="fountain", description="Writes events at a rate.")
async def fountain(task: TaskContext) -> None:
    """Run `COUNT RATE`: so many events, none of which joins the one before it."""
    count, rate = map(int, task.text.split())
    artifacts = task.artifact("left"), task.artifact("right")
    began = time.monotonic()
    written = 0
    while written < count:
        due = min(count, int((time.monotonic() - began) * rate) + 1)
        while written < due:
            await artifacts[written % 2].append(f"{written} ")
            written += 1
        await asyncio.sleep(TICK_S)
    for artifact in artifacts:
        await artifact.close()
