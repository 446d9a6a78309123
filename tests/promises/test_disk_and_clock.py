"""A full disk, a damaged file, a clock that jumps: one clear error, and no data loss."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from harness.a2a.sse_client import (
    PATIENCE_S,
    ClientFold,
    Json,
    RefusedError,
    call,
    send,
    sse,
    user_message,
)
from harness.mesh.command_line import run_command
from harness.mesh.full_disk import fill_disk, free_disk, journal_of
from harness.mesh.processes import MeshProcess, running_mesh
from harness.promise_scale import PromiseScale

HARNESS = Path(__file__).parents[1] / "harness"
# In addition to the data, the write-ahead log has its limit of 16 MiB.
BOUND_BYTES = 20 * 1024 * 1024


async def submit(mesh: MeshProcess, text: str) -> tuple[int, Json]:
    """Submit to echo; return the HTTP status and the JSON."""
    params: Json = {"message": user_message(text), "configuration": {"returnImmediately": True}}
    status, _, body = await send(mesh.http_url, "/agents/echo", "SendMessage", params)
    return status, body


async def submit_until_refused(mesh: MeshProcess) -> tuple[int, Json]:
    """Submit until a task is refused for lack of space; return that response."""
    for _ in range(2000):
        status, body = await submit(mesh, "x" * 2000)
        if "error" in body:
            return status, body["error"]
    raise AssertionError("it took everything")


async def stream_until_refused(mesh: MeshProcess) -> RefusedError:
    """Open streams until one is refused: a commit may still fit where a larger one did not."""
    params = {"message": user_message("x" * 2000)}
    for _ in range(2000):
        try:
            async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params):
                pass
        except RefusedError as refused:
            return refused
    raise AssertionError("it took everything")


async def submit_until_accepted(mesh: MeshProcess) -> None:
    """Submit until a task is accepted: an earlier write that fails may still be in progress."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            _, body = await submit(mesh, "as ready as before")
            if "result" in body:
                return
            await asyncio.sleep(0.05)


async def test_a_full_disk_loses_nothing_and_ends_when_space_is_free(
    tmp_path: Path, scale: PromiseScale
) -> None:
    """A full disk pauses a streaming task and refuses new ones; free space resumes both."""
    times = scale.pick(ci=2, prove=20)
    numbers = 400
    async with running_mesh(tmp_path) as mesh:
        for _ in range(times):
            fold = ClientFold()
            params = {"message": user_message(f"count {numbers} 2 200")}
            async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params) as answer:
                events = answer.events()
                for _ in range(20):
                    fold.apply(await anext(events))
                fill_disk(mesh, tmp_path)
                status, error = await submit_until_refused(mesh)
                assert status == 503, error
                assert "journal" in error["message"], error
                assert "disk" in error["message"] or "space" in error["message"], error
                assert (await stream_until_refused(mesh)).status == 503
                free_disk(mesh)
                async for event in events:
                    fold.apply(event)
            assert fold.state == "TASK_STATE_COMPLETED"
            whole = "".join(f"{n} ".ljust(200, "x") for n in range(1, numbers + 1))
            assert list(fold.texts.values()) == [whole]
            task = (await call(mesh.http_url, "/agents/echo", "GetTask", {"id": fold.task_id}))[
                "result"
            ]
            again = ClientFold()
            again.take_task(task)
            assert again.texts == fold.texts
            await submit_until_accepted(mesh)
    # Acknowledged tasks still exist after a restart.
    async with running_mesh(tmp_path) as mesh:
        found = await call(mesh.http_url, "/agents/echo", "GetTask", {"id": fold.task_id})
        again.take_task(found["result"])
        assert again.texts == fold.texts
    scale.report(times=times)


async def data(*arguments: str) -> tuple[int, Json]:
    """Run `trunkline data …`; return its exit code and its output."""
    done = await run_command("data", *arguments, "--json")
    assert done.exit is not None
    return done.exit, done.json if done.out else {}


async def ask_all(mesh: MeshProcess, questions: Sequence[str]) -> dict[str, ClientFold]:
    """Ask echo each question; return the folds by task id."""
    folds: dict[str, ClientFold] = {}
    for question in questions:
        fold = ClientFold()
        params = {"message": user_message(question)}
        async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params) as answer:
            async for event in answer.events():
                fold.apply(event)
        folds[fold.task_id] = fold
    return folds


async def check_unchanged(mesh: MeshProcess, folds: dict[str, ClientFold]) -> None:
    """Assert that every task is unchanged."""
    for task_id, fold in folds.items():
        answer = await call(mesh.http_url, "/agents/echo", "GetTask", {"id": task_id})
        again = ClientFold()
        again.take_task(answer["result"])
        assert (again.state, again.texts) == (fold.state, fold.texts)


async def test_a_damaged_file_is_reported_and_restored_from_a_backup(tmp_path: Path) -> None:
    """`trunkline data check` and the mesh report the damage, and `restore` repairs it."""
    folder, backup = tmp_path / "data", tmp_path / "backup"
    async with running_mesh(tmp_path) as mesh:
        folds = await ask_all(mesh, ["one", "count 300", "fail as told"])
        # While the mesh runs.
        code, _ = await data("backup", str(backup), "--data", str(folder))
        assert code == 0
        assert (await data("check", "--data", str(folder)))[0] == 0
    journal = journal_of(tmp_path)
    content = bytearray(journal.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8192] = os.urandom(8192)
    content[:100] = os.urandom(100)
    journal.write_bytes(content)
    code, _ = await data("check", "--data", str(folder))
    assert code == 1
    # The mesh reports the damage and starts with a new journal.
    with (tmp_path / "said").open("wb") as stderr_file:
        async with running_mesh(tmp_path, stderr=stderr_file) as mesh:
            await ask_all(mesh, ["as ready as before"])
    (line,) = [
        entry for entry in (tmp_path / "said").read_text().splitlines() if journal.name in entry
    ]
    assert "error" in line
    assert str(journal) in line
    folder.rename(tmp_path / "damaged")
    code, _ = await data("restore", str(backup), "--data", str(folder))
    assert code == 0
    async with running_mesh(tmp_path) as mesh:
        await check_unchanged(mesh, folds)


async def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """The clock jumps an hour back and two days ahead during a stream: no gap, no lost lease."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    environment = {
        "PYTHONPATH": os.pathsep.join((str(HARNESS / "clock"), os.environ.get("PYTHONPATH", ""))),
        "CLOCK_OFFSET_FILE": str(offset),
        "TRUNKLINE_LEASE_S": "4",
    }
    async with running_mesh(tmp_path, environment=environment) as mesh:
        folds = await ask_all(mesh, ["before"])
        for jump_s in (-3600, 2 * 24 * 3600, -7 * 24 * 3600):
            fold = ClientFold()
            # Longer than the interval of lease renewals.
            params = {"message": user_message("count 60 25")}
            async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params) as answer:
                events = answer.events()
                for _ in range(10):
                    fold.apply(await anext(events))
                # An atomic replace, because the clock may read the file at any moment.
                (tmp_path / "next").write_text(str(jump_s))
                (tmp_path / "next").replace(offset)
                async for event in events:
                    fold.apply(event)
            assert fold.state == "TASK_STATE_COMPLETED"
            assert list(fold.texts.values()) == ["".join(f"{n} " for n in range(1, 61))]
            folds[fold.task_id] = fold
        await check_unchanged(mesh, folds)
        # The newest first, even though the clock jumped.
        listed = await call(mesh.http_url, "/agents/echo", "ListTasks", {})
        assert [task["id"] for task in listed["result"]["tasks"]] == list(reversed(folds))


async def test_the_store_stays_bounded_under_steady_load(
    tmp_path: Path, scale: PromiseScale
) -> None:
    """Ended tasks are compacted and forgotten under load, and their space is reused."""
    rounds = scale.pick(ci=3, prove=60)
    streams, numbers, size_bytes = 8, 150, scale.pick(ci=600, prove=200)
    environment = {"TRUNKLINE_COMPACT_AFTER_S": "0.2", "TRUNKLINE_RETAIN_S": "1"}
    sizes: list[int] = []
    async with running_mesh(tmp_path, environment=environment) as mesh:

        async def load() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(streams):
                    group.create_task(ask_all(mesh, [f"count {numbers} 1 {size_bytes}"]))

        for _ in range(rounds):
            await load()
            await all_forgotten(mesh, tmp_path)
            sizes.append(size_of(tmp_path))
        # The log restarts occasionally, when it is long. The rounds write over 30 MB, so without
        # checkpoints the files would exceed this limit.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while size_of(tmp_path) > BOUND_BYTES:  # noqa: ASYNC110  no event to wait for
                    await asyncio.sleep(0.05)
        assert size_of(tmp_path) <= BOUND_BYTES
    scale.report(rounds=rounds, files_mb=[round(size / 1e6, 1) for size in sizes[-3:]])


def size_of(folder: Path) -> int:
    """Return the size of the journal and its log."""
    return sum(path.stat().st_size for path in journal_of(folder).parent.iterdir())


def rows_of(folder: Path) -> dict[str, int]:
    """Return the number of rows that tasks leave in the journal."""
    counting, tables = "SELECT count(*) FROM ", ("events", "tasks", "folds")
    with closing(sqlite3.connect(journal_of(folder), timeout=PATIENCE_S)) as file:
        counted = [file.execute(counting + table).fetchone() for table in tables]
    return {table: count for table, (count,) in zip(tables, counted, strict=True)}


async def all_forgotten(mesh: MeshProcess, folder: Path) -> None:
    """Wait until retention has removed every task from the file."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                listed = await call(mesh.http_url, "/agents/echo", "ListTasks", {})
                if not listed["result"]["tasks"] and not any(rows_of(folder).values()):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"left in the journal: {rows_of(folder)}") from None
