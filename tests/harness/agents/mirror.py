"""Agents that answer with the JSON that they get.

`mirror` answers at once, `teller` asks `mirror`, and `keeper` keeps the JSON in a graph's state.
"""

import json
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from trunkline import Part, TaskContext, agent, from_langgraph, read_json, write_json
from trunkline.agents.authoring import FunctionAgent

MODES = ["text/plain", "application/json"]


@agent(name="mirror", description="Answers with the data that it gets.", input_modes=MODES)
async def mirror(task: TaskContext) -> None:
    """Answer with the data and the metadata of the message, or with the result of a tool."""
    if task.text:
        answer = _as_part((await task.call_tool(task.text)).data)
    else:
        (part,) = task.message.parts
        answer = _as_part(read_json(part.data))
        write_json(answer.metadata, read_json(part.metadata))
    await task.artifact("mirror").append(answer, last=True)


@agent(name="teller", description="Asks the mirror with the JSON of a text.")
async def teller(task: TaskContext) -> None:
    """Answer with the data of the other agent's answer."""
    (value,) = (await task.ask("mirror", json.loads(task.text))).data
    await task.artifact("answer").append(value, last=True)


class _Kept(TypedDict):
    value: Any


def keeper() -> FunctionAgent:
    """Return a graph that asks back, and then answers with the JSON that its state has kept."""

    def take(state: _Kept) -> dict[str, Any]:
        return {"value": json.loads(state["value"])}

    def ask(state: _Kept) -> dict[str, Any]:
        interrupt("go on?")
        return {}

    graph = StateGraph(_Kept)
    graph.add_node("take", take)
    graph.add_node("ask", ask)
    graph.add_edge(START, "take")
    graph.add_edge("take", "ask")
    return from_langgraph(
        graph.compile(),
        name="keeper",
        description="Keeps JSON.",
        input=lambda task: {"value": task.text},
        output=lambda state: _as_part(state["value"]),
    )


def _as_part(value: object) -> Part:
    part = Part(media_type="application/json")
    write_json(part.data, value)
    return part
