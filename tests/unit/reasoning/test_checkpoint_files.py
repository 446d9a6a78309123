"""Checkpoints of turns: found again, gone with their turn, and never in the way of it."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph

from trunkline.reasoning.checkpoint_files import TurnCheckpoints, open_turn_checkpoints

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """As much of a task as its checkpoints are named by."""

    checkpoint_path: Path | None
    attempt: int = 1
    id: str = "journal-task"
    agent: str = "agent"
    context_id: str = "context"
    turn: int = 1

    @property
    def task(self) -> "TurnRuntime":
        return cast("TurnRuntime", self)


class State(TypedDict, total=False):
    messages: list[Any]
    written: dict[str, int]


class KilledError(BaseException):
    """Stands for the death of the process."""


async def think(thread: TurnCheckpoints, *, dies: bool) -> list[Any] | None:
    """Run two nodes with checkpoints; the second may die."""

    async def first(_state: State) -> State:
        return {"messages": [HumanMessage("q"), AIMessage("a")], "written": {"artifact-1": 3}}

    async def second(_state: State) -> State:
        if dies:
            raise KilledError
        return {}

    graph: Any = StateGraph(State)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    compiled = graph.compile(checkpointer=thread.saver)
    config: Any = {"configurable": {"thread_id": thread.thread_id}}
    given: State | None = None if thread.state else {"messages": []}
    end = await compiled.ainvoke(given, config, durability="sync")
    return cast("list[Any] | None", end.get("messages"))


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    return found


def killed(path: Path) -> None:
    """Leave a file as a process does that dies in the middle of a turn."""
    living = path.with_name("living")
    with pytest.raises(KilledError), open_turn_checkpoints(Turn(living).task) as thread:  # noqa: PT012
        assert thread is not None
        try:
            asyncio.run(think(thread, dies=True))
        finally:
            # A copy of the file and its log, before the turn is left.
            with closing(sqlite3.connect(living)) as source, closing(sqlite3.connect(path)) as copy:
                source.backup(copy)


def test_a_turn_is_found_where_it_died_and_its_checkpoints_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db.checkpoints"
    killed(path)
    assert rows(path) > 0

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is not None
        assert thread.state["written"] == {"artifact-1": 3}
        messages = asyncio.run(think(thread, dies=False))

    assert [type(message) for message in messages or ()] == [HumanMessage, AIMessage]
    assert rows(path) == 0


def test_another_turn_or_task_of_the_conversation_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    killed(path)

    for other in (Turn(path, 2, id="other"), Turn(path, 2, turn=2), Turn(path, attempt=1)):
        with open_turn_checkpoints(other.task) as thread:
            assert thread is not None
            assert thread.state is None


def test_a_file_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.write_bytes(b"this is no database, " * 500)

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is None
        assert asyncio.run(think(thread, dies=False))

    assert rows(path) == 0


def test_a_checkpoint_that_can_not_be_read_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    killed(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = X'C1'")
        connection.commit()

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is None


def test_where_no_file_can_be_made_a_turn_does_without(tmp_path: Path) -> None:
    with open_turn_checkpoints(Turn(tmp_path / "missing" / "checkpoints").task) as thread:
        assert thread is not None
        assert asyncio.run(think(thread, dies=False))


def test_a_disk_that_takes_no_checkpoint_does_not_stop_the_turn(tmp_path: Path) -> None:
    with open_turn_checkpoints(Turn(tmp_path / "checkpoints").task) as thread:
        assert thread is not None
        thread.saver.conn.execute("PRAGMA query_only=ON")
        assert asyncio.run(think(thread, dies=False))


def test_what_nobody_took_up_for_a_week_is_swept_up(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    killed(path)
    with closing(sqlite3.connect(path)) as connection:
        # Of January 2024, as the time in their ids says.
        connection.execute(
            "UPDATE checkpoints SET checkpoint_id = '1eea8c26' || substr(checkpoint_id, 9)"
        )
        connection.commit()
    old = rows(path)

    with open_turn_checkpoints(Turn(path, id="other").task):
        pass

    assert old > 0
    assert rows(path) == 0


def test_turns_at_once_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    with open_turn_checkpoints(Turn(path).task) as one:
        with open_turn_checkpoints(Turn(path, id="other").task) as other:
            assert one is not None
            assert other is not None
            assert one.saver is other.saver
            assert one.thread_id != other.thread_id
        assert asyncio.run(think(one, dies=False))


def test_a_host_that_keeps_none_has_none() -> None:
    with open_turn_checkpoints(Turn(None).task) as thread:
        assert thread is None
