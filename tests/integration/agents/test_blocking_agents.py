"""An agent whose coroutine blocks the event loop is named in the log while it blocks."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.agents.inline_agents import texts
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from trunkline.agents import agent
from trunkline.tasks.context import TaskContext


class Watcher(logging.Handler):
    """Releases the blocked code once the log has its warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.released = threading.Event()
        self.ended = threading.Event()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg in ("agent.blocks_the_loop", "agent.blocked_the_loop"):
            self.records.append(record)
        if record.msg == "agent.blocks_the_loop":
            self.released.set()
        if record.msg == "agent.blocked_the_loop":
            self.ended.set()


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    handler = Watcher()
    logging.getLogger().addHandler(handler)
    try:
        yield handler
    finally:
        handler.released.set()
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("way", ["in the function", "in a task of the function"])
async def test_a_blocking_agent_is_named_while_it_blocks(
    tmp_path: Path, watcher: Watcher, way: str
) -> None:
    async def block() -> bool:
        return watcher.released.wait(PATIENCE_S)

    @agent(name="sleepy", description="Blocks the event loop.")
    async def sleepy(task: TaskContext) -> str:
        if task.text == "in the function":
            return f"released: {await block()}"
        async with asyncio.TaskGroup() as group:
            blocking = group.create_task(block())
        return f"released: {blocking.result()}"

    async with open_small_mesh(tmp_path) as mesh:
        await mesh.join(sleepy)
        ended = await mesh.ask(way, agent="sleepy")
        assert await asyncio.to_thread(watcher.ended.wait, PATIENCE_S)

    assert texts(ended) == ["released: True"]
    for record in watcher.records:
        fields = vars(record)
        assert (fields["agent"], fields["task_id"]) == ("sleepy", ended.task.id)
        assert fields["place"].startswith(f"{__name__}:")
    first, last = map(vars, watcher.records)
    assert "plain def function" in first["problem"]
    assert last["took_s"] > 0
