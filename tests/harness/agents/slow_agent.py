"""An agent with a default deadline that it never meets."""

import asyncio

from trunkline import TaskContext, agent


@agent(name="slow", description="Takes too long.", tags=["slow"], timeout_s=1.0)
async def slow(task: TaskContext) -> None:
    """Wait until the task's time is over."""
    await task.working("on it")
    await asyncio.Event().wait()
