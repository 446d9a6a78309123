"""Tests of compaction and deletion of ended tasks, and of the errors their readers get."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Literal

import pytest

from harness.journal.builders import append, begin, completed, created, fold_batches, status
from harness.journal.opening import open_journal
from harness.journal.processes import start
from harness.polling import wait_for
from harness.remote.measurements import measuring
from trunkline.errors import CursorExpiredError, JournalUnavailableError, TaskNotFoundError
from trunkline.journal import maintenance
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.store import StoredFold, TaskRow
from trunkline.v1 import event_pb2, task_pb2, task_service_pb2

AT_ONCE = Retention(compact_after_s=0)
NOTHING = Retention(compact_after_s=0, retain_s=0)
NEVER = Retention(compact_after_s=1e9, retain_s=1e9)
ORIGIN = event_pb2.Origin(agent="math", task_id="child", first_sequence=4, path=["math"])


async def make_ended_task(journal: Journal, *texts: str) -> str:
    """Make an ended task with one commit for each text."""
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x")])])
    for text in texts:
        await journal.append(task_id, journal.epoch, [build_draft([append("a", text)])])
    forwarded = build_draft([begin("b", "1", "2")], origin=ORIGIN)
    await journal.append(task_id, journal.epoch, [forwarded, build_draft([completed()])])
    return task_id


async def wait_until_compacted(journal: Journal, task_id: str) -> None:
    """Run maintenance steps until the events of a task are deleted."""
    async with asyncio.timeout(30):
        while (await journal.row(task_id)).first_available == 1:
            await journal.renew_lease(10.0)
            await asyncio.sleep(0)


async def run_maintenance(journal: Journal) -> tuple[int, int]:
    """Run all due maintenance; return how many tasks were compacted and deleted so far."""
    async with asyncio.timeout(30):
        await journal.renew_lease(10.0)
        while journal._maintenance._has_work:  # noqa: ASYNC110  It has no event for that.
            await asyncio.sleep(0)
    return (
        journal._maintenance._compactor.compacted_count,
        journal._maintenance._compactor.deleted_count,
    )


@pytest.fixture(params=["normal", "full"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    opened = open_journal(tmp_path / "journal.db", synchronous=request.param, retention=AT_ONCE)
    yield opened
    await opened.close()


async def test_a_compacted_task_is_read_as_its_fold(journal: Journal) -> None:
    task_id = await make_ended_task(journal, "y", "z")
    before = await journal.snapshot(task_id)
    row = await journal.row(task_id)
    await wait_until_compacted(journal, task_id)
    for _ in range(2):
        assert await journal.snapshot(task_id) == before
    assert await journal.forwarded_sequences(task_id) == {"child": 5}
    assert await journal.head(task_id) == row.head
    assert (await journal.row(task_id)).state == row.state
    page = await journal.list(task_service_pb2.ListTasksRequest(account="acme"))
    assert [task.task_id for task in page.tasks] == [task_id]


async def test_readers_of_a_compacted_task_get_an_error_before_its_head_and_the_end_at_it(
    journal: Journal,
) -> None:
    task_id = await make_ended_task(journal, "y", "z")
    head = await journal.head(task_id)
    epoch = journal.epoch
    await wait_until_compacted(journal, task_id)
    assert (await journal.row(task_id)).first_available == head + 1
    for after in range(head):
        with pytest.raises(CursorExpiredError) as caught:
            await journal.read(task_id, after)
        assert caught.value.snapshot_sequence == str(head)
        with pytest.raises(CursorExpiredError):
            await journal.check_cursor(task_id, after, epoch)
    assert await journal.read(task_id, head) == []
    await journal.check_cursor(task_id, head, epoch)
    await journal.check_cursor(task_id, head, 0)
    with pytest.raises(CursorExpiredError):
        await journal.check_cursor(task_id, head, epoch + 1)
    await asyncio.wait_for(journal.wait(task_id, head), 30)
    with pytest.raises(CursorExpiredError):
        await journal.snapshot(task_id, at=head - 1)


async def test_a_reader_between_two_batches_of_a_compacted_task_gets_the_error(
    journal: Journal,
) -> None:
    task_id = await make_ended_task(journal, *(str(n) for n in range(30)))
    cursor = 0
    for _ in range(3):
        (sealed,) = await journal.read(task_id, cursor, limit_bytes=1)
        cursor += parse_header(sealed).count
    await wait_until_compacted(journal, task_id)
    with pytest.raises(CursorExpiredError, match=f"after {cursor} "):
        await journal.read(task_id, cursor, limit_bytes=1)


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_a_reader_while_a_task_is_compacted_sees_every_event_or_the_error(
    tmp_path: Path, synchronous: Literal["normal", "full"]
) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, synchronous=synchronous, retention=AT_ONCE, tail_bytes=1)
    task_id = await make_ended_task(journal, *("y" * 900 for _ in range(600)))
    head = await journal.head(task_id)
    refused_count = 0
    async with asyncio.timeout(60):
        while not refused_count:
            await journal.renew_lease(10.0)
            cursor = 0
            try:
                while cursor < head:
                    for sealed in await journal.read(task_id, cursor):
                        assert parse_header(sealed).first_sequence == cursor + 1
                        cursor += parse_header(sealed).count
                    await asyncio.sleep(0)
            except CursorExpiredError:
                refused_count += 1
    assert (await journal.snapshot(task_id)).sequence == head
    await journal.close()


@pytest.mark.parametrize("state", [task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_WORKING])
async def test_an_unfinished_task_is_neither_compacted_nor_deleted(
    tmp_path: Path, state: task_pb2.TaskState.ValueType
) -> None:
    journal = open_journal(tmp_path / "journal.db", retention=NOTHING)
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x"), status(state)])])
    ended_task = await make_ended_task(journal)
    assert await run_maintenance(journal) == (1, 1)
    with pytest.raises(TaskNotFoundError):
        await journal.row(ended_task)
    assert len(await journal.read(task_id, 0)) == 2
    await journal.close()


async def test_a_task_past_retention_is_deleted_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, retention=NEVER)
    task_id = journal.new_task_id()
    await journal.create(task_id, created(), key="key", content_hash="hash")
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    assert await run_maintenance(journal) == (0, 0)
    assert (await journal.row(task_id)).first_available == 1
    await journal.close()

    journal = open_journal(path, retention=NOTHING)
    assert await run_maintenance(journal) == (1, 1)
    for read_access in (journal.row, journal.head, lambda deleted_id: journal.read(deleted_id, 0)):
        with pytest.raises(TaskNotFoundError):
            await read_access(task_id)
    with pytest.raises(TaskNotFoundError):
        await journal.snapshot(task_id)
    assert (await journal.list(task_service_pb2.ListTasksRequest(account="acme"))).total_size == 0
    again = await journal.create(journal.new_task_id(), created(), key="key", content_hash="other")
    assert again.is_new
    await journal.close()


async def test_a_row_that_is_deleted_while_it_is_read_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, retention=NEVER)
    task_id = await make_ended_task(journal)
    await journal.close()
    store = SqliteStore.open(path)
    is_read, go_on = asyncio.Event(), asyncio.Event()
    find_rows = store.find_rows

    async def find_slowly(task_ids: Collection[str]) -> dict[str, TaskRow]:
        found = await find_rows(task_ids)
        is_read.set()
        await go_on.wait()
        return found

    store.find_rows = find_slowly  # type: ignore[method-assign]
    journal = Journal(store, [], retention=NOTHING)
    async with asyncio.TaskGroup() as group:
        early = group.create_task(journal.row(task_id))
        await is_read.wait()
        assert await run_maintenance(journal) == (1, 1)
        go_on.set()
    assert early.result().is_ended
    with pytest.raises(TaskNotFoundError):
        await journal.row(task_id)
    await journal.close()


async def test_nothing_is_compacted_early(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "journal.db", retention=Retention())
    task_id = await make_ended_task(journal)
    await run_maintenance(journal)
    assert len(await journal.read(task_id, 0)) == 4
    for hours, is_compacted in ((0.9, False), (0.2, True)):
        journal._store.clock._created_ns -= int(hours * 3600 * 10**9)
        await run_maintenance(journal)
        assert ((await journal.row(task_id)).first_available > 1) is is_compacted
    journal._store.clock._created_ns -= 31 * 24 * 3600 * 10**9
    await run_maintenance(journal)
    with pytest.raises(TaskNotFoundError):
        await journal.row(task_id)
    await journal.close()


async def test_a_damaged_task_is_skipped_and_the_others_are_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(tmp_path / "journal.db", retention=AT_ONCE, tail_bytes=1)
    damaged, other = await make_ended_task(journal), await make_ended_task(journal)
    connection = journal._store._writer.connection  # type: ignore[attr-defined]
    connection.execute(
        "UPDATE events SET body = x'0000000112' "
        "WHERE task = (SELECT number FROM tasks WHERE task_id = ?)",
        (damaged,),
    )
    await wait_until_compacted(journal, other)
    assert caplog.text.count("task.not_compacted") == 1
    with pytest.raises(JournalUnavailableError, match="damaged"):
        await journal.read(damaged, 0)
    await journal.close()


@pytest.mark.parametrize("method", ["list_ended", "compact"])
async def test_maintenance_is_tried_again_after_any_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(maintenance, "_RETRY_S", 0.001)
    store = SqliteStore.open(tmp_path / "journal.db")
    works = getattr(store, method)
    tries = iter(range(3))

    async def fail(*arguments: object, **options: object) -> object:
        if next(tries, None) is None:
            return await works(*arguments, **options)
        raise ValueError("a fault")

    setattr(store, method, fail)
    journal = Journal(store, [], retention=NOTHING)
    task_id = await make_ended_task(journal)
    with measuring() as measured:
        # One renewal is enough.
        await journal.renew_lease(10.0)
        await wait_for(lambda: journal.latest(task_id) is None)
        failed = measured.of("trunkline.journal.maintenance.failed")
        assert sum(failed.values()) == 3
    await wait_for(lambda: "journal.upkeep_goes_on" in caplog.text)
    assert caplog.text.count("journal.upkeep_failed") == 1
    assert caplog.text.count("journal.upkeep_goes_on") == 1
    assert "a fault" in caplog.text
    await journal.close()


async def test_a_task_whose_fold_fails_delays_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore.open(tmp_path / "journal.db")
    journal = Journal(store, [], retention=AT_ONCE)
    failing, other = await make_ended_task(journal), await make_ended_task(journal)
    read = store.read

    async def read_others(task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        if task_id == failing:
            raise ValueError("a fault")
        return await read(task_id, after, limit_bytes=limit_bytes)

    store.read = read_others  # type: ignore[method-assign]
    await wait_until_compacted(journal, other)
    assert (await journal.row(failing)).first_available == 1
    assert caplog.text.count("task.not_compacted") == 1
    await journal.close()


async def test_retention_starts_the_checkpoints_that_it_needs(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "journal.db")
    compact, was_called = store.compact, asyncio.Event()

    async def write_much(folds: Mapping[str, StoredFold]) -> None:
        await compact(folds)
        store.needs_checkpoint = True

    async def checkpoint() -> bool:
        store.needs_checkpoint = False
        was_called.set()
        return True

    store.compact, store.checkpoint = write_much, checkpoint  # type: ignore[method-assign]
    journal = Journal(store, [], retention=AT_ONCE)
    await make_ended_task(journal)
    await journal.renew_lease(10.0)
    # No other write and no renewal of the lease is needed.
    async with asyncio.timeout(30):
        await was_called.wait()
    assert not store.needs_checkpoint
    await journal.close()


# Opens a journal whose tasks are all due, compacts them, and prints a line for each step. It does
# one step for each line that it reads.
COMPACTOR = """
import asyncio, sys
from pathlib import Path
from harness.journal.opening import open_journal
from trunkline.journal.journal import Retention
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.store import StoredFold, TaskRow

def written(journal):
    return journal._store._reader.execute(
        "SELECT (SELECT total(2 - stage) FROM tasks), count(*) FROM events"
    ).fetchone()

async def main():
    journal = open_journal(Path(sys.argv[1]), retention=Retention(compact_after_s=0))
    before = None
    while True:
        await journal.renew_lease(10.0)
        if (now := written(journal)) != before:
            sys.stdin.readline()
            print("step" if now[0] else "done", flush=True)
            before = now
        await asyncio.sleep(0)

asyncio.run(main())
"""


async def test_compaction_survives_a_kill_at_any_step(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, retention=NEVER)
    tasks = [await make_ended_task(journal, *("y" * 500 for _ in range(60))) for _ in range(6)]
    before = {ended_id: await journal.snapshot(ended_id) for ended_id in tasks}
    await journal.close()
    compacted: set[str] = set()
    kills = 0
    while len(compacted) < len(tasks):
        process = start(COMPACTOR, path)
        assert process.stdin is not None
        assert process.stdout is not None
        # Each round runs further, so every kind of step is interrupted at some point.
        steps = 2 + kills
        process.stdin.write("\n" * (steps + 1))
        process.stdin.flush()
        for _ in range(steps):
            if process.stdout.readline() == "done\n":
                break
        process.kill()
        process.communicate()
        kills += 1
        journal = open_journal(path, retention=NEVER)
        for task_id in tasks:
            assert await journal.snapshot(task_id) == before[task_id]
            if (await journal.row(task_id)).first_available == 1:
                batches = await journal.read(task_id, 0, limit_bytes=10**7)
                assert fold_batches(task_id, batches) == before[task_id]
            else:
                compacted.add(task_id)
        await journal.close()
    assert kills > 1
    journal = open_journal(path, retention=AT_ONCE)
    await run_maintenance(journal)
    reader = journal._store._reader  # type: ignore[attr-defined]
    assert reader.execute("SELECT count(*) FROM events").fetchone() == (0,)
    assert {ended_id: await journal.snapshot(ended_id) for ended_id in tasks} == before
    await journal.close()
