"""An agent that writes one piece for each command of the test."""

import asyncio

from harness.agents.inline_agents import define
from trunkline.agents import FunctionAgent
from trunkline.tasks.context import TaskContext


class SteppedAgent:
    """Commands the agent: each piece is appended, and an empty one closes artifact and turn."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self._orders: asyncio.Queue[str] = asyncio.Queue(100)

    def write(self, *texts: str) -> None:
        """Make the agent write these pieces."""
        for text in texts:
            self._orders.put_nowait(text)

    def agent(self) -> FunctionAgent:
        """The agent, called `tested`."""

        async def gated(task: TaskContext) -> None:
            artifact = task.artifact("pieces")
            self.began.set()
            while text := await self._orders.get():
                await artifact.append(text)
            await artifact.close()

        return define(gated)
