"""The agent of `messages.py`: it handles messages, and writes a file after the last of them."""

import asyncio
import os
from pathlib import Path

from trunkline import TaskContext, agent
from trunkline.tasks.messages import MeshMessage

_DONE = Path(os.environ["SINK_DONE"])
_COUNT = int(os.environ["SINK_COUNT"])
_seen: set[str] = set()


@agent(name="sink", description="Handles messages.", concurrency=64)
async def sink(task: TaskContext) -> None:
    """Get messages only."""


@sink.on("job")
async def job(task: TaskContext, message: MeshMessage) -> None:
    """Count a message."""
    _seen.add(message.text)
    if len(_seen) == _COUNT:
        await asyncio.to_thread(_DONE.touch)
