"""Agents whose texts say which run of their code wrote them, and that report effects to a file.

The checker of histories reads both: `harness.histories.checker`.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from harness.histories.history import Effect, HistoryFile, Kind, Record, now
from trunkline import TaskContext, agent, from_langgraph, get_task


@agent(name="witness", description="Writes numbered pieces.", tags=["witness"], repeatable=True)
async def witness(task: TaskContext) -> None:
    """Run `write PIECES GAP_MS`; `ask PIECES GAP_MS` needs the same words as an answer first."""
    if task.text.startswith("ask") and task.turn == 1:
        _report(task, Effect.BEGIN, "")
        await task.require_input("may I?")
        return
    artifact = task.artifact("pieces")
    async with aclosing(_run(task)) as pieces:
        async for piece in pieces:
            await artifact.append(piece)


async def _say(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Answer with all pieces at once."""
    async with aclosing(_run(get_task(config))) as pieces:
        return {"messages": [AIMessage("".join([piece async for piece in pieces]))]}


_graph = StateGraph(MessagesState)
_graph.add_node("say", _say)
_graph.add_edge(START, "say")
talker = from_langgraph(_graph.compile(), name="talker", description="Has conversations.")


async def _run(task: TaskContext) -> AsyncGenerator[str, None]:
    """Yield the pieces that a message asks for; report each one, and the begin and the end."""
    # The name of this run, in each of its pieces.
    name = secrets.token_hex(3)
    _report(task, Effect.BEGIN, name)
    _, count, gap_ms = task.text.split()
    for number in range(1, int(count) + 1):
        await asyncio.sleep(int(gap_ms) / 1000)
        yield f"{number}.{name} "
        _report(task, Effect.PIECE, name)
    _report(task, Effect.END, name)


def _report(task: TaskContext, effect: Effect, name: str) -> None:
    record = Record(
        now(), Kind.EFFECT, effect, where=os.environ["WITNESS_NODE"],
        message=task.message.message_id, task=task.id, text=name, is_answer=task.turn > 1,
    )  # fmt: skip
    _file().add(record)


@cache
def _file() -> HistoryFile:
    return HistoryFile(Path(os.environ["WITNESS_EFFECTS"]))
