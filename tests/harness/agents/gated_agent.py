"""An agent that does one thing at a time, and ends it when a file is there."""

import asyncio
from pathlib import Path
from typing import Final

from trunkline import TaskContext, agent
from trunkline.tasks.messages import MeshMessage

_POLL_S: Final = 0.02


async def _wait_for_file(path: str) -> None:
    while not await asyncio.to_thread(Path(path).exists):  # noqa: ASYNC110  no event for it
        await asyncio.sleep(_POLL_S)


@agent(name="gated", description="Waits for a file.", concurrency=1)
async def gated(task: TaskContext) -> str:
    """Wait for the file that the message names."""
    await task.working("waiting")
    await _wait_for_file(task.text)
    return "there"


@gated.on("job")
async def job(task: TaskContext, message: MeshMessage) -> None:
    """Wait for the file that a message names; without a name, fail."""
    if not message.payload:
        raise ValueError("no file")
    await _wait_for_file(str(message.payload))
