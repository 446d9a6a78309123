"""How the public door type-checks, for whoever writes agents. mypy reads this; nothing runs it.

`assert_type` says what a type must be. A line with an ignore must fail to type-check, for mypy is
told to report ignores that ignore nothing.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import assert_type

from trunkline import ArtifactWriter, Message, Part, PlanWriter, TaskContext, ToolCall, agent, run
from trunkline.agents import FunctionAgent


async def text(task: TaskContext) -> str:
    assert_type(task.text, str)
    assert_type(task.message, Message)
    assert_type(task.history, Sequence[Message])
    assert_type(task.turn, int)
    assert_type(task.deadline, datetime | None)
    assert_type(task.artifact("name"), ArtifactWriter)
    assert_type(task.plan(), PlanWriter)
    async with task.tool("server/tool", {"argument": 1}) as call:
        assert_type(call, ToolCall)
    await task.artifact().append(Part(text="a part"), last=True)
    await task.artifact().append(Message())  # type: ignore[arg-type]
    await task.artifact().append("text", True)  # type: ignore[call-arg]
    await task.require_input("which one?")
    await task.complete(3)  # type: ignore[arg-type]
    return "done"


async def pieces(task: TaskContext) -> AsyncIterator[str]:
    yield task.text


async def number(task: TaskContext) -> int:
    return 3


def plain(task: TaskContext) -> str:
    return task.text


assert_type(agent(name="text", description="Says so.")(text), FunctionAgent)
assert_type(agent(name="pieces", description="Streams.")(pieces), FunctionAgent)
agent(name="nameless")  # type: ignore[call-arg]
agent(name="number", description="Returns a number.")(number)  # type: ignore[arg-type]
agent(name="plain", description="Isn't asynchronous.")(plain)  # type: ignore[arg-type]
run(agent(name="text", description="Says so.")(text))
run("text")  # type: ignore[arg-type]
