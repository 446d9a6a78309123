"""A graph for tests that kill its host: `counter`.

Its first node adds a line to the file `began` in the folder GRAPH_FOLDER. Its second node writes
words, and half way waits until a file `go` exists. For the request `ask` it asks back instead, and
for the request `recall` it repeats the earlier messages of the conversation.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from trunkline import from_langgraph
from trunkline.testing import ScriptedModel

FOLDER = Path(os.environ.get("GRAPH_FOLDER", "."))
WORDS = "".join(f"{number} " for number in range(100))


def begin(state: MessagesState) -> dict[str, Any]:
    """Have an effect that must not be repeated."""
    with (FOLDER / "began").open("a", encoding="utf-8") as file:
        file.write("began\n")
    return {}


async def say(state: MessagesState) -> dict[str, Any]:
    """Say 100 words, or ask."""
    texts = [str(message.text) for message in state["messages"]]
    if texts[-1] == "ask":
        return {"messages": [AIMessage(f"told {interrupt('what?')}")]}
    if texts[-1] == "recall":
        return {"messages": [AIMessage("|".join(texts[:-1]))]}
    model = ScriptedModel(WORDS)
    reply = AIMessage("")
    async for chunk in model.astream("go"):
        reply = AIMessage(str(reply.text) + chunk.text, id=chunk.id)
        while chunk.text == "50 " and not (FOLDER / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return {"messages": [reply]}


graph = StateGraph(MessagesState)
graph.add_node("begin", begin)
graph.add_node("say", say)
graph.add_edge(START, "begin")
graph.add_edge("begin", "say")

counter = from_langgraph(graph.compile(), name="counter", description="Counts.")
