"""An agent that takes four turns at a time and a tenth of a second for each."""

import asyncio

from trunkline import TaskContext, agent

CONCURRENCY = 4
WORK_S = 0.1


@agent(name="worker", description="Works.", tags=["work"], concurrency=CONCURRENCY)
async def worker(task: TaskContext) -> None:
    """Work, and say what was asked for; `block` works until it is canceled."""
    if task.text == "block":
        await asyncio.Event().wait()
    await asyncio.sleep(WORK_S)
    await task.artifact("done").append(task.text, last=True)
