"""Agents that call others, for tests that kill their host: `asker`, `grapher`.

Both ask `double` and then `slow`, and answer with both answers. For the request `pay` they ask
`cashier` in place of `slow`. Each adds a line to the file
`began` in the folder CALLERS_FOLDER when its code begins. The agents that they ask run elsewhere.
"""

import os
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from trunkline import TaskContext, agent, from_langgraph

FOLDER = Path(os.environ.get("CALLERS_FOLDER", "."))


def note(name: str) -> None:
    """Add a line to the file."""
    with (FOLDER / "began").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


async def ask_both(task: TaskContext) -> str:
    """Ask two agents, one after the other."""
    first = await task.ask("double", "21")
    if task.text == "pay":
        return f"{first.text}: {(await task.ask('cashier', 'pay')).text}"
    pieces = [piece async for piece in task.stream("slow", task.text)]
    return f"{first.text}: {''.join(pieces)}"


@agent(name="asker", description="Asks others.", repeatable=True)
async def asker(task: TaskContext) -> str:
    """Ask two agents."""
    note("asker")
    return await ask_both(task)


async def ask_in_node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Ask two agents from a node."""
    note("grapher")
    task: TaskContext = config["configurable"]["task"]
    return {"messages": [AIMessage(await ask_both(task))]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask_in_node)
graph.add_edge(START, "ask")

grapher = from_langgraph(graph.compile(), name="grapher", description="Asks others in a node.")
