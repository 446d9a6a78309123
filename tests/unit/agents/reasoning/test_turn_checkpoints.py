"""Checkpoints of turns: restored after a crash, deleted with their turn, and best effort."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph

from trunkline.agents.reasoning.turn_checkpoints import TurnCheckpoints, open_turn_checkpoints
from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import (
    SqliteCheckpoints,
    checkpoint_path,
    open_sqlite_memory,
)
from trunkline.conversations.store import StoredCheckpoint, ThreadKey
from trunkline.errors import JournalUnavailableError, JournalUnusableError

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """The part of a task that names its checkpoints."""

    memory: AgentMemory
    attempt: int = 1
    id: str = "journal-task"
    turn: int = 1

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


class FullDisk(SqliteCheckpoints):
    """A store that can't be written."""

    async def put(self, thread: ThreadKey, checkpoint: StoredCheckpoint) -> None:
        raise JournalUnavailableError(self.file.name, "the disk is full")

    async def delete(self, thread_id: str) -> None:
        raise JournalUnavailableError(self.file.name, "the disk is full")


class Unreadable(SqliteCheckpoints):
    """A store that can't be read for now, or before an operator changes its rights."""

    error: type[JournalUnavailableError] = JournalUnavailableError

    async def find(self, thread: ThreadKey, checkpoint_id: str = "") -> StoredCheckpoint | None:
        raise self.error(self.file.name, "it can't be read")


@asynccontextmanager
async def opened(journal: Path) -> AsyncIterator[AgentMemory]:
    memory = await open_sqlite_memory(journal)
    yield memory
    await memory.close()


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


def count_checkpoints(journal: Path) -> int:
    with closing(sqlite3.connect(checkpoint_path(journal))) as connection:
        count: int = connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
    return count


async def write_crashed_file(journal: Path) -> None:
    """Write a file as a process leaves it that dies in the middle of a turn."""
    living = journal.with_name("living")
    async with opened(living) as memory:
        with pytest.raises(KilledError):
            async with open_turn_checkpoints(Turn(memory).task) as thread:
                await run_nodes(thread, crashes=True)
        # What the file and its log have, as a further process reads it.
        with (
            closing(sqlite3.connect(checkpoint_path(living))) as source,
            closing(sqlite3.connect(checkpoint_path(journal))) as copy,
        ):
            source.backup(copy)


async def test_a_turn_resumes_after_a_crash_and_deletes_its_checkpoints_at_its_end(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal.db"
    await write_crashed_file(journal)
    assert count_checkpoints(journal) > 0

    async with (
        opened(journal) as memory,
        open_turn_checkpoints(Turn(memory, attempt=2).task) as thread,
    ):
        assert thread.state is not None
        assert thread.state["written"] == {"artifact-1": 3}
        messages = await run_nodes(thread, crashes=False)

    assert [type(message) for message in messages or ()] == [HumanMessage, AIMessage]
    assert count_checkpoints(journal) == 0


async def test_another_turn_or_task_of_the_conversation_has_no_checkpoints(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    await write_crashed_file(journal)
    async with opened(journal) as memory:
        others = (Turn(memory, 2, id="other"), Turn(memory, 2, turn=2), Turn(memory, attempt=1))
        for other in others:
            async with open_turn_checkpoints(other.task) as thread:
                assert thread.state is None


async def test_an_unreadable_checkpoint_is_ignored(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    await write_crashed_file(journal)
    with closing(sqlite3.connect(checkpoint_path(journal), isolation_level=None)) as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = X'C1'")

    async with (
        opened(journal) as memory,
        open_turn_checkpoints(Turn(memory, attempt=2).task) as thread,
    ):
        assert thread.state is None


@pytest.mark.parametrize("error", [JournalUnavailableError, JournalUnusableError])
async def test_a_checkpoint_that_cannot_be_read_now_is_kept(
    tmp_path: Path, error: type[JournalUnavailableError]
) -> None:
    journal = tmp_path / "journal.db"
    await write_crashed_file(journal)
    written = count_checkpoints(journal)
    async with opened(journal) as memory:
        unreadable = Unreadable(checkpoint_path(journal))
        unreadable.error = error
        turn = Turn(replace(memory, checkpoints=unreadable), attempt=2)
        with pytest.raises(error, match="it can't be read"):
            async with open_turn_checkpoints(turn.task):
                raise AssertionError("the turn has begun")
    assert count_checkpoints(journal) == written


async def test_checkpoints_that_cannot_be_written_do_not_stop_the_turn(tmp_path: Path) -> None:
    async with opened(tmp_path / "journal.db") as memory:
        full = FullDisk(checkpoint_path(tmp_path / "journal.db"))
        turn = Turn(replace(memory, checkpoints=full))
        async with open_turn_checkpoints(turn.task) as thread:
            assert await run_nodes(thread, crashes=False)
