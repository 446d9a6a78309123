"""Agents that call: `carried` asks an agent before it counts, `caller` calls a given tool."""

import asyncio

from trunkline import TaskContext, agent


@agent(name="carried", description="Counts, later.", tags=["carried"], repeatable=True)
async def carried(task: TaskContext) -> None:
    """Run `COUNT GAP_MS`."""
    count, gap_ms = map(int, task.text.split())
    await task.ask("math", "what is 1+2")
    artifact = task.artifact("count")
    for number in range(1, count + 1):
        await asyncio.sleep(gap_ms / 1000)
        await artifact.append(f"{number} ", last=number == count)


@agent(name="caller", description="Calls a tool.", tags=["caller"])
async def caller(task: TaskContext) -> str:
    """Run `TOOL ARGUMENT VALUE`."""
    tool, argument, value = task.text.split()
    return (await task.call_tool(tool, {argument: value})).text
