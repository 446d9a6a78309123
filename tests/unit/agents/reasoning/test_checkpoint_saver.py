"""Checkpoints are saved on the event loop, in steps short enough not to block it."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from trunkline.agents.reasoning.checkpoint_saver import CheckpointSaver, EventLoopSaver


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


@pytest.mark.asyncio
async def test_deleting_a_long_threads_checkpoints_yields_to_other_tasks() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        saver = EventLoopSaver(connection)

        def count_rows(table: str) -> int:
            (count,) = connection.execute(
                f"SELECT count(*) FROM {table} WHERE thread_id = 'long'"  # noqa: S608 a literal
            ).fetchone()
            return int(count)

        for thread_id, steps in (("long", 70), ("other", 1)):
            for step in range(steps):
                saved_config = await saver.aput(
                    _config(thread_id), empty_checkpoint(), {"step": step}, {}
                )
                await saver.aput_writes(saved_config, [("channel", step)], "task")
        assert (count_rows("checkpoints"), count_rows("writes")) == (70, 70)

        observed_counts = set()
        async with asyncio.TaskGroup() as group:
            deletion = group.create_task(saver.adelete_thread("long"))
            while not deletion.done():
                await asyncio.sleep(0)
                observed_counts.add((count_rows("checkpoints"), count_rows("writes")))

        assert {(50, 70), (10, 70), (0, 50), (0, 0)} <= observed_counts
        assert await saver.aget_tuple(_config("long")) is None
        assert await saver.aget_tuple(_config("other")) is not None


def test_a_state_older_than_the_known_one_is_not_returned() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        saver = CheckpointSaver(connection)
        saver.setup()
        saver.replace_state("agent/c-1", "", {"messages": ["old"]}, step=3)

        def find_newer(known_step: int) -> tuple[int, dict[str, object]] | None:
            return saver.find_newest_state([connection], "agent/c-1", "", known_step=known_step)

        assert find_newer(2) == (3, {"messages": ["old"]})
        assert find_newer(3) is None
        assert find_newer(5) is None
