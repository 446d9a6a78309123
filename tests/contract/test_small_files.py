"""The conformance suite of small files, and of versions of workflows and secrets in them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.journal.postgres_server import new_database
from harness.workflows.building import build
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.postgres.small_files import PostgresFiles
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles, SmallFiles
from trunkline.errors import Code, ConfigurationError, JournalUnavailableError
from trunkline.processes.webhook_secret import load_or_create_secret, load_secret
from trunkline.workflows.definition import Workflow
from trunkline.workflows.versions import WorkflowVersions

# Opens the files as a further process.
OpenFiles: TypeAlias = Callable[[], SmallFiles]


@pytest.fixture(params=["folder", "postgres"])
async def open_files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenFiles]:
    async with AsyncExitStack() as stack:
        if request.param == "folder":
            yield lambda: FolderFiles(tmp_path)
            return
        url = await stack.enter_async_context(new_database())

        def open_database() -> SmallFiles:
            database = PostgresDatabase(url)
            stack.push_async_exit(database)
            return PostgresFiles(database)

        yield open_database


async def test_files_are_shared_by_processes(open_files: OpenFiles) -> None:
    first, second = open_files(), open_files()
    assert await first.read("a/b.json") is None
    assert await first.list_paths("a") == []
    await first.write("a/b.json", b"1")
    await first.write("a/c/d", b"")
    await first.write("ab", b"2")
    assert await second.read("a/b.json") == b"1"
    assert await second.read("a/c/d") == b""
    assert await second.list_paths("a") == ["a/b.json", "a/c/d"]
    await second.write("a/b.json", b"3")
    assert await first.read("a/b.json") == b"3"
    assert await first.delete("a/b.json")
    assert not await second.delete("a/b.json")
    assert await second.list_paths("a") == ["a/c/d"]
    assert "ab" in first.locate("ab")


async def test_one_of_many_processes_replaces_a_content(open_files: OpenFiles) -> None:
    processes = [open_files() for _ in range(4)]
    expected: bytes | None = None
    for _ in range(10):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(files.replace("counter", str(number).encode(), expected=expected))
                for number, files in enumerate(processes)
            ]
        done = [task.result() for task in tasks]
        assert sorted(done) == [False, False, False, True]
        expected = str(done.index(True)).encode() + b"!"
        await processes[0].write("counter", expected)
    assert not await processes[0].replace("other", b"x", expected=b"y")
    assert await processes[0].read("other") is None


async def test_without_the_database_callers_can_try_again() -> None:
    async with PostgresDatabase("postgresql://nobody@127.0.0.1:1/none") as database:
        with pytest.raises(JournalUnavailableError) as failure:
            await PostgresFiles(database).read("x")
        assert failure.value.code is Code.UNAVAILABLE


def version(number: int, text: str) -> Workflow:
    return build("story", {"id": "end", "output": text}, edges="start > end", version=number)


async def test_published_versions_never_change_and_a_word_rolls_back(
    open_files: OpenFiles,
) -> None:
    versions, others = WorkflowVersions(open_files()), WorkflowVersions(open_files())
    assert await versions.publish(version(1, "one"))
    assert await others.publish(version(2, "two"))
    assert not await versions.publish(version(2, "two"))
    with pytest.raises(ConfigurationError, match="give the changed workflow `version: 3`"):
        await versions.publish(version(2, "changed"))
    assert await versions.current("story") == 2
    assert await others.roll_back("story") == 1
    assert await versions.current("story") == 1
    assert await versions.roll_back("story", 2) == await others.current("story") == 2
    with pytest.raises(ConfigurationError, match="there is no version 9; there are: 1, 2"):
        await versions.roll_back("story", 9)
    await versions.roll_back("story", 1)
    await versions.publish(version(3, "three"))
    assert await others.current("story") == 3
    assert await others.list_names() == ["story"]
    assert (await others.load("story", 2)).version == 2
    with pytest.raises(ConfigurationError, match="published workflows: story"):
        await versions.current("other")


async def test_of_many_processes_one_publishes_a_version(open_files: OpenFiles) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(WorkflowVersions(open_files()).publish(version(1, "one")))
            for _ in range(4)
        ]
    assert sorted(task.result() for task in tasks) == [False, False, False, True]


async def test_all_processes_sign_webhooks_with_one_secret(
    open_files: OpenFiles, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            # Machines have data directories of their own.
            group.create_task(
                load_or_create_secret(Settings(data_dir=tmp_path / f"{number}"), open_files())
            )
            for number in range(4)
        ]
    (secret,) = {task.result() for task in tasks}
    assert await load_secret(Settings(data_dir=tmp_path), open_files()) == secret
