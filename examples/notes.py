"""A LangGraph graph with memory: each message of a conversation sees those before it.

    $ trunkline up --agent notes:notes
    $ trunkline ask --agent notes --context monday "note that the key is blue"
    Noted.
    $ trunkline ask --agent notes --context monday "what did I note?"
    1. the key is blue
    $ trunkline ask --agent notes --context friday "what did I note?"
    Nothing yet.

The thread of the graph is the context of the conversation. Its checkpoints are stored beside the
journal, so the memory survives a restart of the mesh. The graph needs no checkpointer.
"""

import operator
from typing import Annotated

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from trunkline import from_langgraph, run


class Notes(MessagesState):
    """The messages of the conversation, and the notes in it."""

    notes: Annotated[list[str], operator.add]


def answer(state: Notes) -> dict[str, list[str] | list[AIMessage]]:
    """Add a note, or list the notes; a model would read `state["messages"]` here."""
    _, is_note, note = state["messages"][-1].text.partition("note that ")
    if is_note:
        return {"notes": [note], "messages": [AIMessage("Noted.")]}
    lines = [f"{number}. {note}" for number, note in enumerate(state["notes"], 1)]
    return {"messages": [AIMessage("\n".join(lines) or "Nothing yet.")]}


graph = StateGraph(Notes)
graph.add_node("answer", answer)
graph.add_edge(START, "answer")

notes = from_langgraph(
    graph.compile(),
    name="notes",
    description="Notes things and remembers them.",
    tags=["note", "notes", "remember"],
    examples=["note that the key is blue", "what did I note?"],
)

if __name__ == "__main__":
    run(notes)
