"""Agents that hang, flood their callers, or die."""

import asyncio
from collections.abc import AsyncIterator

from trunkline import TaskContext, agent

PIECE = "x" * 1000


@agent(name="hanger", description="Never answers.", tags=["hang"], timeout_s=1.5)
async def hanger(_task: TaskContext) -> None:
    """Wait until the task's time is over."""
    await asyncio.Event().wait()


@agent(name="flooder", description="Answers without end.", tags=["flood"])
async def flooder(task: TaskContext) -> AsyncIterator[str]:
    """Yield the requested number of kilobytes, as fast as the reader takes them."""
    for _ in range(int(task.text.split()[-1])):
        yield PIECE


@agent(name="flapper", description="Joins the mesh and dies.", tags=["flap"], repeatable=True)
async def flapper(task: TaskContext) -> str:
    """Answer, if the test lets this process live."""
    return f"flapped {task.text}"
