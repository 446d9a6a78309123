"""A graph that runs one turn at a time, and notes in a file which turns begin and end: `queued`.

A turn writes `begins TEXT` and `ends TEXT` to the file `turns` in the folder GRAPH_FOLDER. Between
them, the turn of the message `hold` waits until a file `go` exists.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from trunkline import from_langgraph

FOLDER = Path(os.environ.get("GRAPH_FOLDER", "."))


async def work(state: MessagesState) -> dict[str, Any]:
    """Note the begin and the end of a turn."""
    text = str(state["messages"][-1].text)
    _note(f"begins {text}")
    while text == "hold" and not (FOLDER / "go").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    _note(f"ends {text}")
    return {"messages": [AIMessage("done")]}


def _note(line: str) -> None:
    with (FOLDER / "turns").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


graph = StateGraph(MessagesState)
graph.add_node("work", work)
graph.add_edge(START, "work")

queued = from_langgraph(
    graph.compile(), name="queued", description="Runs one turn at a time.", concurrency=1
)
