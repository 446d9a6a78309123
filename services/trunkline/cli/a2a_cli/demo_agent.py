"""The agent of `demo-server`: its first word selects what it does, to practise commands."""

import asyncio
from typing import Final

from trunkline import TaskContext, agent
from trunkline.v1 import part_pb2

_REPORT: Final = b"name,count\npear,3\n"
_SLOW_STEPS: Final = 5
_STEP_S: Final = 1.0


@agent(
    name="demo",
    description="Practise: ask, login, fail, reject, file, data, slow, reply, or any text.",
    tags=["demo"],
    input_modes=["*/*"],
    output_modes=["text/plain", "application/json", "text/csv"],
    direct_replies=True,
)
async def demo(task: TaskContext) -> None:
    """Echo a message, or do what its first word says."""
    word, _, rest = task.text.partition(" ")
    if task.turn > 1:
        await task.artifact("answer").append(f"You said: {task.text}", last=True)
        return
    match word:
        case "ask":
            await task.require_input(rest or "What else?")
        case "login":
            await task.require_auth(rest or "Log in, then send any reply.")
        case "fail":
            await task.fail(rest or "It failed, as you asked.")
        case "reject":
            await task.reject(rest or "No, thank you.")
        case "reply":
            await task.reply(rest or "A direct reply, without a task.")
        case "file":
            part = part_pb2.Part(raw=_REPORT, filename="report.csv", media_type="text/csv")
            await task.artifact("report").append(part, last=True)
        case "data":
            await task.artifact("data").append({"count": 3}, last=True)
        case "slow":
            await _count(task)
        case _:
            await _echo(task)


async def _count(task: TaskContext) -> None:
    artifact = task.artifact("count")
    for number in range(1, _SLOW_STEPS + 1):
        await task.working(f"step {number} of {_SLOW_STEPS}")
        await asyncio.sleep(_STEP_S)
        await artifact.append(f"{number} ", last=number == _SLOW_STEPS)


async def _echo(task: TaskContext) -> None:
    artifact = task.artifact("echo")
    parts = list(task.message.parts)
    for part in parts:
        await artifact.append(part.text if part.text else part, last=part is parts[-1])
