"""Tools that ask, and calls that become tasks of their server, from the code of agents."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.mcp import asking_server
from trunkline import TaskContext, TaskState, agent
from trunkline.testing import Mesh, mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")


@agent(name="booker")
async def booker(task: TaskContext) -> str:
    """Books two tables, one after the other."""
    texts = [
        (await task.call_tool("asking/book_table", {"city": city})).text
        for city in ("Rome", "Oslo")
    ]
    return f"{task.text}: {' '.join(texts)}"


@agent(name="planner")
async def planner(task: TaskContext) -> str:
    """Books a table and bakes a cake at once; the cake needs approval."""
    async with asyncio.TaskGroup() as group:
        table = group.create_task(task.call_tool("asking/book_table", {"city": "Bern"}))
        cake = group.create_task(task.call_tool("asking/bake", {"cake": "tart"}))
    return f"{table.result().text} {cake.result().text}"


@agent(name="hasty")
async def hasty(task: TaskContext) -> str:
    """Ends its turn while a task of the server runs."""
    with pytest.raises(TimeoutError):
        # The first call needs an approval, and may wait until the server has started.
        async with asyncio.timeout(1 if task.approvals else None):
            await task.call_tool("asking/bake", {"cake": "pie"})
    return "too late"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Mesh, Path]]:
    """A mesh with an MCP server, and the server's folder."""
    folder = tmp_path_factory.mktemp("asking")
    free = {"approval": False}
    server = {
        "command": sys.executable,
        "args": [str(asking_server.__file__)],
        "env": {"ASKING_FOLDER": str(folder)},
        "trunkline": {"tools": {"book_table": free, "bake_to_taste": free}},
    }
    mcp_file = folder / "mcp.json"
    mcp_file.write_text(json.dumps({"mcpServers": {"asking": server}}), encoding="utf-8")
    agents = (booker, hosts, planner, hasty)
    async with mesh(*agents, settings={"mcp_file": mcp_file}) as running:
        yield running, folder


@pytest.fixture
def folder(opened: tuple[Mesh, Path]) -> Path:
    (opened[1] / "log").unlink(missing_ok=True)
    (opened[1] / "done").unlink(missing_ok=True)
    return opened[1]


def read_log(folder: Path) -> list[str]:
    """Return what the server did."""
    return [line.split()[0] for line in (folder / "log").read_text().splitlines()]


@agent(name="host")
async def hosts(task: TaskContext) -> str:
    """Books two tables at once."""
    async with asyncio.TaskGroup() as group:
        tables = [
            group.create_task(task.call_tool("asking/book_table", {"city": city}, key=city))
            for city in ("Rome", "Oslo")
        ]
    return " ".join(table.result().text for table in tables)


async def test_questions_of_calls_at_once_are_answered_one_by_one(
    opened: tuple[Mesh, Path], folder: Path
) -> None:
    m = opened[0]
    first = await m.ask("go", agent="host")
    assert first.status_text.count("asking/book_table asks") == 1
    again = await m.ask("4 seats, the roof", task=first)
    assert again.status_text.startswith("Missing or not allowed: view (one of garden, street).\n")
    second = await m.ask("4 seats, garden", task=first)
    assert "not allowed" not in second.status_text
    assert second.state is TaskState.INPUT_REQUIRED
    assert second.status_text.count("asking/book_table asks") == 1
    assert second.status_text != first.status_text
    end = await m.ask("decline", task=first)
    texts = ["A table in Rome for 4. No table in Oslo.", "No table in Rome. A table in Oslo for 4."]
    assert end.text in texts
    assert read_log(folder) == ["asked", "asked", "accept", "decline"]


async def test_a_question_and_an_approval_are_asked_together(
    opened: tuple[Mesh, Path], folder: Path
) -> None:
    m = opened[0]
    (folder / "done").touch()
    first = await m.ask("go", agent="planner")
    assert "A table in Bern?" in first.status_text
    assert "asking/bake with" in first.status_text
    # It may be meant for the other question.
    unclear = await m.ask("yes", task=first)
    assert "asking/bake with" in unclear.status_text
    assert read_log(folder) == ["asked"]
    second = await m.ask("approve", task=first)
    assert second.state is TaskState.INPUT_REQUIRED
    assert "A table in Bern?" in second.status_text
    end = await m.ask("2 seats and a view: street", task=first)
    assert end.text == "A table in Bern for 2. a plain tart"
    assert read_log(folder) == ["asked", "bake", "accept"]


async def test_a_task_of_the_server_is_canceled_with_the_turn_that_left_it(
    opened: tuple[Mesh, Path], folder: Path
) -> None:
    m = opened[0]
    first = await m.ask("go", agent="hasty")
    end = await m.ask("approve", task=first)
    assert end.text == "too late"
    assert read_log(folder) == ["bake", "canceled"]
