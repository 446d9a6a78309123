"""How the public door type-checks, for whoever writes agents. mypy reads this; nothing runs it.

`assert_type` says what a type must be. A line with an ignore must fail to type-check, for mypy is
told to report ignores that ignore nothing.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import assert_type

from pydantic import BaseModel

from trunkline import (
    ArtifactWriter,
    FunctionAgent,
    Message,
    Part,
    PlanWriter,
    TaskContext,
    ToolCall,
    agent,
    from_a2a,
    run,
)


async def text(task: TaskContext) -> str:
    assert_type(task.text, str)
    assert_type(task.settings, None)
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


class Place(BaseModel):
    city: str


async def placed(task: TaskContext[Place]) -> str:
    assert_type(task.settings, Place)
    task.settings.town  # type: ignore[attr-defined]  # noqa: B018
    return task.settings.city


def plain(task: TaskContext) -> str:
    return task.text


assert_type(agent(name="text", description="Says so.")(text), FunctionAgent)
assert_type(agent(name="pieces", description="Streams.")(pieces), FunctionAgent)
agent(name="nameless")  # type: ignore[call-arg]
agent(name="number", description="Returns a number.")(number)  # type: ignore[arg-type]
agent(name="plain", description="Isn't asynchronous.")(plain)  # type: ignore[arg-type]
run(agent(name="text", description="Says so.")(text))
run("text")  # type: ignore[arg-type]
agent(name="placed", description="Has settings.", settings=Place)(placed)
agent(name="placed", description="Lacks settings.")(placed)  # type: ignore[arg-type]
agent(name="text", description="Has others.", settings=Place)(text)  # type: ignore[arg-type]
assert_type(from_a2a("https://agent.example", name="far"), FunctionAgent)
from_a2a("https://agent.example")  # type: ignore[call-arg]
