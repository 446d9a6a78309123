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

from trunkline.agents.reasoning.checkpoint_files import open_checkpoint_file
from trunkline.agents.reasoning.checkpoint_types import find_graph_types

# The code of LangGraph's msgpack extension for a call with one argument.
_CALL = 0
_INSERT = "INSERT INTO checkpoints VALUES ('one', '', ?, NULL, ?, ?, '{\"step\": 1}')"


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


def test_a_hostile_checkpoint_calls_nothing(tmp_path: Path) -> None:
    path, trace = tmp_path / "mesh.db.checkpoints", tmp_path / "trace"
    call = ormsgpack.Ext(_CALL, ormsgpack.packb(("os", "mkdir", str(trace))))
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"text": call}
    with open_checkpoint_file(path) as file:
        row = (checkpoint["id"], "msgpack", ormsgpack.packb(checkpoint))
        file.saver.conn.execute(_INSERT, row)
        assert file.saver.load_state("one") == {"text": str(trace)}
        assert file.saver.find_newest_state([file.saver.conn], "one", "") is not None
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["json", "pickle"])
def test_a_checkpoint_of_a_format_that_is_never_written_is_not_read(
    tmp_path: Path, kind: str
) -> None:
    checkpoint = empty_checkpoint()
    with open_checkpoint_file(tmp_path / "mesh.db.checkpoints") as file:
        row = (checkpoint["id"], kind, json.dumps(checkpoint).encode())
        file.saver.conn.execute(_INSERT, row)
        assert file.saver.load_state("one") is None


def test_types_of_an_authors_state_are_restored_and_others_are_plain(tmp_path: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("plan", lambda _: {})
    graph.add_edge(START, "plan")
    outer = StateGraph(MessagesState)
    outer.add_node("inner", graph.compile())
    outer.add_edge(START, "inner")
    types = find_graph_types(outer.compile())
    assert {State, Trip, Place, Mood} <= types
    trip = Trip(places=[Place("Rome")], mood=Mood.CALM)
    with open_checkpoint_file(tmp_path / "mesh.db.checkpoints") as file:
        saver = file.saver.with_types(types)
        saver.replace_state("one", "", {"trip": trip}, 1)
        assert saver.load_state("one") == {"trip": trip}
        state = file.saver.load_state("one")
        assert state is not None
        assert not isinstance(state["trip"], Trip)
