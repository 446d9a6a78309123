"""Checkpoints that another person wrote run nothing when they are read."""

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict

import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from trunkline.agents.reasoning.checkpoint_saver import StoreSaver, TurnSaver
from trunkline.agents.reasoning.checkpoint_types import find_graph_types
from trunkline.conversations.sqlite import open_memory_of_process
from trunkline.conversations.store import StoredCheckpoint, ThreadKey

# The code of LangGraph's msgpack extension for a call with one argument.
_CALL = 0


class Mood(Enum):
    """A type of an author's state."""

    CALM = "calm"


@dataclass
class Place:
    """A type of an author's state, within another one."""

    name: str


class Trip(BaseModel):
    """A type of an author's state."""

    places: list[Place]
    mood: Mood


class State(TypedDict):
    """An author's state."""

    trip: Annotated[Trip | None, "the plan"]
    messages: list[Any]


async def load_state(kind: str, body: bytes) -> dict[str, Any] | None:
    """Return the state that a turn loads from a checkpoint that another person wrote."""
    store = open_memory_of_process().checkpoints
    stored = StoredCheckpoint(empty_checkpoint()["id"], None, kind, body, b'{"step": 1}')
    await store.put(ThreadKey("one"), stored)
    return await TurnSaver(store).load_state("one")


async def test_a_hostile_checkpoint_calls_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    call = ormsgpack.Ext(_CALL, ormsgpack.packb(("os", "mkdir", str(trace))))
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"text": call}
    state = await load_state("msgpack", ormsgpack.packb(checkpoint))
    assert state == {"text": str(trace)}
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["json", "pickle"])
async def test_a_checkpoint_of_a_format_that_is_never_written_is_not_read(kind: str) -> None:
    assert await load_state(kind, json.dumps(empty_checkpoint()).encode()) is None


async def test_types_of_an_authors_state_are_restored_and_others_are_plain() -> None:
    graph = StateGraph(State)
    graph.add_node("plan", lambda _: {})
    graph.add_edge(START, "plan")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", graph.compile())
    outer.add_edge(START, "inner")
    types = find_graph_types(outer.compile())
    assert {State, Trip, Place, Mood} <= types
    trip = Trip(places=[Place("Rome")], mood=Mood.CALM)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"trip": trip}
    store = open_memory_of_process().checkpoints
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    await StoreSaver(store, types).aput(config, checkpoint, {}, {})

    restored = await StoreSaver(store, types).aget_tuple(config)
    assert restored is not None
    assert restored.checkpoint["channel_values"] == {"trip": trip}
    plain = await StoreSaver(store).aget_tuple(config)
    assert plain is not None
    assert not isinstance(plain.checkpoint["channel_values"]["trip"], Trip)
