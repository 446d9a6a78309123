"""An agent that ends its turn in a given way after a given number of event loop iterations."""

import asyncio

from trunkline import TaskContext, agent


@agent(name="racer", description="Ends in a while.", tags=["racer"])
async def racer(task: TaskContext) -> None:
    """Run `WAY TURNS`: complete, fail, or ask and complete with the answer."""
    end, turns = task.text.split()
    artifact = task.artifact("text")
    for number in range(int(turns)):
        await asyncio.sleep(0)
        if number % 4 == 0:
            await artifact.append(f"{number} ")
    match end:
        case "complete":
            await task.complete()
        case "fail":
            await task.fail("as told")
        case "ask":
            await task.require_input("continue?")
