"""Agents that handle messages and note it: `worker-a`, `worker-b`.

The handler of `job` adds a line `CORRELATION NUMBER` to the file of the agent in the folder
WORKER_FOLDER before it ends. A payload has the number and the milliseconds that it takes. Only the
last number of a conversation, 9, is answered.
"""

import asyncio
import os
from pathlib import Path

from trunkline import TaskContext, agent
from trunkline.agents.authoring import FunctionAgent
from trunkline.tasks.messages import MeshMessage

FOLDER = Path(os.environ.get("WORKER_FOLDER", "."))


def _build(name: str) -> FunctionAgent:
    @agent(name=name, description="Handles jobs.", concurrency=64)
    async def worker(task: TaskContext) -> None:
        raise AssertionError("it gets messages only")

    @worker.on("job")
    async def job(task: TaskContext, message: MeshMessage) -> str | None:
        number, wait_ms = message.text.split()
        await asyncio.sleep(int(wait_ms) / 1000)
        descriptor = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{message.correlation_id} {number}\n".encode())
        os.close(descriptor)
        return f"did {number}" if number == "9" else None

    return worker


worker_a, worker_b = _build("worker-a"), _build("worker-b")
