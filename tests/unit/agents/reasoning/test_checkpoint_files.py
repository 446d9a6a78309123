"""Checkpoints of turns: restored after a crash, deleted with their turn, and best effort."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph

from trunkline.agents.reasoning.checkpoint_files import TurnCheckpoints, open_turn_checkpoints

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """The part of a task that names its checkpoints."""

    checkpoint_path: Path | None
    attempt: int = 1
    id: str = "journal-task"
    agent: str = "agent"
    context_id: str = "context"
    turn: int = 1
    keyring: None = None

    def on_end(self, callback: Callable[[], Awaitable[None]]) -> None:
        """A task that never ends."""

    @property
    def task(self) -> "TurnRuntime":
        return cast("TurnRuntime", self)


class State(TypedDict, total=False):
    messages: list[Any]
    written: dict[str, int]


class KilledError(BaseException):
    """Stands in for the death of the process."""


async def run_nodes(thread: TurnCheckpoints, *, crashes: bool) -> list[Any] | None:
    """Run two nodes with checkpoints; the second one may raise KilledError."""

    async def first(_state: State) -> State:
        return {"messages": [HumanMessage("q"), AIMessage("a")], "written": {"artifact-1": 3}}

    async def second(_state: State) -> State:
        if crashes:
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
    initial_state: State | None = None if thread.state else {"messages": []}
    end = await compiled.ainvoke(initial_state, config, durability="sync")
    return cast("list[Any] | None", end.get("messages"))


def count_checkpoints(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    return count


def write_crashed_file(path: Path) -> None:
    """Write a file as a process leaves it that dies in the middle of a turn."""
    live_file = path.with_name("living")
    with pytest.raises(KilledError), open_turn_checkpoints(Turn(live_file).task) as thread:  # noqa: PT012
        assert thread is not None
        asyncio.run(run_nodes(thread, crashes=True))
    # What the file and its log have, as a further process reads it.
    with closing(sqlite3.connect(live_file)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


def test_a_turn_resumes_after_a_crash_and_deletes_its_checkpoints_at_its_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db.checkpoints"
    write_crashed_file(path)
    assert count_checkpoints(path) > 0

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is not None
        assert thread.state["written"] == {"artifact-1": 3}
        messages = asyncio.run(run_nodes(thread, crashes=False))

    assert [type(message) for message in messages or ()] == [HumanMessage, AIMessage]
    assert count_checkpoints(path) == 0


def test_another_turn_or_task_of_the_conversation_has_no_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    write_crashed_file(path)

    for other in (Turn(path, 2, id="other"), Turn(path, 2, turn=2), Turn(path, attempt=1)):
        with open_turn_checkpoints(other.task) as thread:
            assert thread is not None
            assert thread.state is None


def test_a_damaged_file_is_recreated(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.write_bytes(b"this is no database, " * 500)

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is None
        assert asyncio.run(run_nodes(thread, crashes=False))

    assert count_checkpoints(path) == 0


def test_an_unreadable_checkpoint_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    write_crashed_file(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = X'C1'")
        connection.commit()

    with open_turn_checkpoints(Turn(path, attempt=2).task) as thread:
        assert thread is not None
        assert thread.state is None


def test_a_turn_runs_without_a_file_that_cannot_be_created(tmp_path: Path) -> None:
    with open_turn_checkpoints(Turn(tmp_path / "missing" / "checkpoints").task) as thread:
        assert thread is not None
        assert asyncio.run(run_nodes(thread, crashes=False))


def test_a_read_only_disk_does_not_stop_the_turn(tmp_path: Path) -> None:
    with open_turn_checkpoints(Turn(tmp_path / "checkpoints").task) as thread:
        assert thread is not None
        thread.saver.conn.execute("PRAGMA query_only=ON")
        assert asyncio.run(run_nodes(thread, crashes=False))


def test_checkpoints_unused_for_a_week_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    write_crashed_file(path)
    with closing(sqlite3.connect(path)) as connection:
        # Date the checkpoints to January 2024 by the time in their ids.
        connection.execute(
            "UPDATE checkpoints SET checkpoint_id = '1eea8c26' || substr(checkpoint_id, 9)"
        )
        connection.commit()
    old = count_checkpoints(path)

    with open_turn_checkpoints(Turn(path, id="other").task):
        pass

    assert old > 0
    assert count_checkpoints(path) == 0


def test_concurrent_turns_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    with open_turn_checkpoints(Turn(path).task) as checkpoints:
        with open_turn_checkpoints(Turn(path, id="other").task) as other:
            assert checkpoints is not None
            assert other is not None
            assert checkpoints.saver is other.saver
            assert checkpoints.thread_id != other.thread_id
        assert asyncio.run(run_nodes(checkpoints, crashes=False))
