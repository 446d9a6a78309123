"""An agent that runs four turns at once, each for a tenth of a second."""

import asyncio

from trunkline import TaskContext, agent

CONCURRENCY = 4
WORK_S = 0.1


@agent(name="worker", description="Works.", tags=["work"], concurrency=CONCURRENCY)
async def worker(task: TaskContext) -> None:
    """Work, and repeat the request; for `block`, work until canceled."""
    if task.text == "block":
        await asyncio.Event().wait()
    await asyncio.sleep(WORK_S)
    await task.artifact("done").append(task.text, last=True)
