"""An agent whose turns must not be repeated."""

import asyncio

from trunkline import TaskContext, agent


@agent(name="once", description="Writes numbers, once.", tags=["once"])
async def once(task: TaskContext) -> None:
    """Run `COUNT GAP_MS`."""
    count, gap_ms = map(int, task.text.split())
    artifact = task.artifact("numbers")
    for number in range(1, count + 1):
        await asyncio.sleep(gap_ms / 1000)
        await artifact.append(f"{number} ", last=number == count)
