"""A LangGraph agent that is killed in the middle of its words, and while it waits."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.processes import read_line, running_process
from harness.slow_graph import WORDS
from harness.small_mesh import PATIENCE_S, SmallMesh, open_small_mesh
from harness.tasks import said, texts
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State

TESTS = Path(__file__).parents[1]


@dataclass
class Killable:
    """A mesh in this process, and the agent in one that can be killed."""

    mesh: SmallMesh
    folder: Path
    stack: AsyncExitStack
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        gone = {host.address for host in self.mesh.directory.hosts}
        command = (
            sys.executable, "-m", "harness.slow_graph",
            "--mesh", self.mesh.registry_address, "--data", str(self.folder),
        )  # fmt: skip
        environment = {"GRAPH_FOLDER": str(self.folder)}
        self.process = await self.stack.enter_async_context(
            running_process(*command, cwd=TESTS, environment=environment)
        )
        await read_line(self.process, "ready ")
        await self.mesh.directory.wait_until(
            lambda known: (
                "counter" in known.agents() and known.host_of_agent("counter").address not in gone
            ),
            timeout_s=PATIENCE_S,
        )

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


@pytest.fixture
async def killable(tmp_path: Path) -> AsyncIterator[Killable]:
    async with open_small_mesh(tmp_path) as mesh, AsyncExitStack() as stack:
        yield Killable(mesh, tmp_path, stack)


async def test_the_words_are_whole_and_what_had_ended_is_not_done_again(killable: Killable) -> None:
    mesh, folder = killable.mesh, killable.folder
    await killable.start()
    asking = await mesh.ask("ask", agent="counter")
    assert asking.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    counting = await mesh.begin("count", agent="counter")
    await mesh.until(counting, lambda now: any(text.endswith("50 ") for text in texts(now)))

    await killable.kill()
    (folder / "go").touch()
    await killable.start()
    ended = await mesh.until(counting, lambda now: now.task.status.state in TERMINAL)
    events = [event for batch in await mesh.events(counting) for event in batch.events]

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == [WORDS]
    assert sum(event.HasField("rewound") for event in events) == 1
    # Once by the one that asks, and once by the one that counts, which went on behind it.
    assert (folder / "began").read_text(encoding="utf-8") == "began\nbegan\n"
    # What it asked before it was killed is answered now.
    assert said(asking) == "what?"
    told = await mesh.ask("this", agent="counter", task_id=asking.task.id)
    assert told.task.status.state not in INTERRUPTED
    assert texts(told) == ["told this"]
    assert (folder / "began").read_text(encoding="utf-8") == "began\nbegan\n"
