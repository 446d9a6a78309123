import asyncio
import gc
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from harness.journal.builders import append, begin, completed, created, status, working
from harness.journal.opening import open_journal
from trunkline.core.json_values import read_member, update_struct
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
)
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import CreateResult, Journal
from trunkline.journal.store import TaskRow
from trunkline.v1 import event_pb2, task_pb2, task_service_pb2

COMPLETED = task_pb2.TASK_STATE_COMPLETED


async def write(journal: Journal, task_id: str, *events: event_pb2.Event) -> int:
    return await journal.append(task_id, journal.epoch, [build_draft([event]) for event in events])


async def create_task(journal: Journal, *events: event_pb2.Event) -> str:
    """Create a task and append these events to it."""
    task_id = journal.new_task_id()
    assert (await journal.create(task_id, created())).is_new
    if events:
        await write(journal, task_id, *events)
    return task_id


async def test_task_ids_begin_with_the_journals_id(journal: Journal) -> None:
    ids = {journal.new_task_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(
        task_id.startswith(f"{journal.id}-") and len(task_id) == 8 + 1 + 24 for task_id in ids
    )


async def test_an_uncommitted_event_is_not_readable(journal: Journal) -> None:
    task_id = await create_task(journal)
    append_future = journal.append(task_id, journal.epoch, [build_draft([working()])])
    assert await journal.head(task_id) == 1
    assert await journal.read(task_id, 1) == []
    await append_future
    assert len(await journal.read(task_id, 1)) == 1


async def test_canceling_the_future_of_an_append_does_not_undo_it(journal: Journal) -> None:
    task_id = await create_task(journal)
    journal.append(task_id, journal.epoch, [build_draft([working()])]).cancel()
    assert await write(journal, task_id, completed()) == 3


async def test_a_token_of_another_owner_is_refused(journal: Journal) -> None:
    task_id = await create_task(journal)
    with pytest.raises(FencedError):
        await journal.append(task_id, journal.epoch - 1, [build_draft([working()])])
    assert await journal.head(task_id) == 1


async def test_an_empty_append_is_refused(journal: Journal) -> None:
    with pytest.raises(InvalidArgumentError):
        await journal.append(await create_task(journal), journal.epoch, [])


async def test_an_invalid_append_fails_alone(journal: Journal) -> None:
    task_id = await create_task(journal)
    ended = await create_task(journal, completed())
    good = journal.append(task_id, journal.epoch, [build_draft([working()])])
    unknown = journal.append("unknown", journal.epoch, [build_draft([working()])])
    late = journal.append(ended, journal.epoch, [build_draft([working()])])
    assert await good == 2
    with pytest.raises(TaskNotFoundError):
        await unknown
    with pytest.raises(TaskEndedError):
        await late


async def test_the_same_id_again_is_the_same_task(journal: Journal) -> None:
    task_id = journal.new_task_id()
    first, second = journal.create(task_id, created()), journal.create(task_id, created())
    assert (await first, await second) == (
        CreateResult(task_id, True),
        CreateResult(task_id, False),
    )
    assert await journal.create(task_id, created()) == CreateResult(task_id, is_new=False)
    assert await journal.head(task_id) == 1


async def test_waiting_for_more_of_an_ended_task_returns(journal: Journal) -> None:
    task_id = await create_task(journal, completed())
    await asyncio.wait_for(journal.wait(task_id, 2), 30)
    with pytest.raises(TaskNotFoundError):
        await journal.wait("unknown", 0)


async def test_closing_wakes_waiting_readers(journal: Journal) -> None:
    task_id = await create_task(journal)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(expect_wait_refused(journal, task_id))
        await asyncio.wait([waiting], timeout=0)
        await journal.close()
    with pytest.raises(JournalUnavailableError):
        await journal.wait(task_id, 1)
    with pytest.raises(JournalUnavailableError):
        await write(journal, task_id, working())


async def test_closing_wakes_a_reader_at_the_head(journal: Journal) -> None:
    running, ended = await create_task(journal), await create_task(journal)
    await write(journal, ended, completed())
    assert await journal.read(running, 1) == []
    wakeups: list[str] = []
    journal.subscribe(running, lambda: wakeups.append("woken"))
    await journal.close()
    assert wakeups == ["woken"]
    with pytest.raises(JournalUnavailableError, match="closed"):
        await journal.read(running, 1)
    # An ended task has no further events, here or elsewhere.
    assert await journal.read(ended, 2) == []


async def expect_wait_refused(journal: Journal, task_id: str) -> None:
    with pytest.raises(JournalUnavailableError, match="closed"):
        await journal.wait(task_id, 1)


async def test_closing_writes_pending_events(journal: Journal, tmp_path: Path) -> None:
    task_id = await create_task(journal)
    appends = [journal.append(task_id, journal.epoch, [build_draft([working()])])]
    await asyncio.sleep(0)
    appends.append(journal.append(task_id, journal.epoch, [build_draft([working()])]))
    await journal.close()
    await journal.close()
    assert [await future for future in appends] == [2, 3]
    again = open_journal(tmp_path / "journal.db")
    assert await again.head(task_id) == 3
    await again.close()


async def test_a_row_follows_the_tasks_status(journal: Journal) -> None:
    task_id = journal.new_task_id()
    event = created(agent="math")
    event.created.parent.task_id = "parent"
    await journal.create(task_id, event)
    first = await journal.row(task_id)
    assert (first.agent, first.account, first.context_id) == ("math", "acme", "context-1")
    assert (first.parent_task_id, first.head) == ("parent", 1)
    assert first.state == task_pb2.TASK_STATE_SUBMITTED
    assert first.status_time_ns == first.create_time_ns
    await write(journal, task_id, status(COMPLETED, at_s=12))
    last = await journal.row(task_id)
    assert last.is_ended
    assert (last.head, last.status_time_ns) == (2, 12 * 10**9)
    assert (await journal.row(task_id)).first_available == 1


async def test_a_list_shows_metadata_and_status(journal: Journal) -> None:
    event = created()
    update_struct(event.created.metadata, {"team": "a"})
    task_id = journal.new_task_id()
    await journal.create(task_id, event)
    route = event_pb2.Event(route_decided=event_pb2.RouteDecided(agent="math"))
    await write(
        journal,
        task_id,
        status(COMPLETED, at_s=12),
    )
    other = journal.new_task_id()
    await journal.create(other, created(account="other"))
    await write(journal, other, route)
    page = await journal.list(task_service_pb2.ListTasksRequest(account="acme"))
    (summary,) = page.tasks
    assert (summary.task_id, summary.agent, page.total_size) == (task_id, "echo", 1)
    assert (summary.status.state, summary.status.timestamp.seconds) == (COMPLETED, 12)
    assert read_member(summary.metadata, "team") == "a"
    assert summary.create_time.seconds > 12
    (other_summary,) = (
        await journal.list(task_service_pb2.ListTasksRequest(account="other"))
    ).tasks
    assert other_summary.metadata == (await journal.snapshot(other)).task.metadata


@pytest.mark.parametrize("token", ["?", "AAAA", "bm9wZQ==", "MSAx MQ=="])
async def test_an_invalid_page_token_is_refused(journal: Journal, token: str) -> None:
    with pytest.raises(InvalidArgumentError, match="pageToken"):
        await journal.list(task_service_pb2.ListTasksRequest(account="acme", page_token=token))


@pytest.mark.parametrize("size", [-1, 101])
async def test_a_page_of_an_impossible_size_is_refused(journal: Journal, size: int) -> None:
    with pytest.raises(InvalidArgumentError, match="pageSize"):
        await journal.list(task_service_pb2.ListTasksRequest(account="acme", page_size=size))


@pytest.mark.parametrize(("moment", "matches"), [("0001-01-01", 1), ("9999-12-31", 0)])
async def test_times_out_of_the_storable_range_are_clamped(
    journal: Journal, moment: str, matches: int
) -> None:
    await create_task(journal)
    request = task_service_pb2.ListTasksRequest(account="acme")
    request.status_after.FromJsonString(f"{moment}T00:00:00Z")
    assert (await journal.list(request)).total_size == matches


async def test_rows_of_many_ended_tasks_are_not_kept_in_memory(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "journal.db")
    rows_before = sum(type(each) is TaskRow for each in gc.get_objects())
    tasks = [journal.new_task_id() for _ in range(1100)]
    for task_id in tasks:
        journal.create(task_id, created())
        last = journal.append(task_id, journal.epoch, [build_draft([completed()])])
    await last
    for _ in range(2):
        rows = sum(type(each) is TaskRow for each in gc.get_objects())
        assert rows - rows_before <= 1024
        assert all([(await journal.row(task_id)).is_ended for task_id in tasks])
    await journal.close()


async def test_keys_and_aliases_are_unique_among_writes_in_flight(journal: Journal) -> None:
    async def submit(number: int) -> tuple[CreateResult, str]:
        # Some of the writes share a commit, others come while it is prepared or written.
        for _ in range(number % 7):
            await asyncio.sleep(0)
        task_id = journal.new_task_id()
        result = await journal.create(task_id, created(), key="k", content_hash="h")
        return result, await journal.aliases.bind("acme", f"mine {number % 3}", task_id)

    async with asyncio.TaskGroup() as group:
        submits = [group.create_task(submit(number)) for number in range(60)]
    answers = [each.result() for each in submits]
    results = [result for result, _ in answers]
    assert sum(result.is_new for result in results) == 1
    assert len({result.task_id for result in results}) == 1
    for number, (_, bound) in enumerate(answers):
        assert bound == answers[number % 3][1]
        assert await journal.aliases.find("acme", f"mine {number % 3}") == bound


async def test_events_and_ends_in_flight_leave_no_gap(journal: Journal) -> None:
    task_ids = [journal.new_task_id() for _ in range(8)]

    async def write(task_id: str) -> None:
        journal.create(task_id, created())
        for number in range(20):
            draft = build_draft([(append if number else begin)("a", str(number))])
            append_future = journal.append(task_id, journal.epoch, [draft])
            if number % 3:
                await append_future
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
        with pytest.raises(TaskEndedError):
            await journal.append(task_id, journal.epoch, [build_draft([working()])])

    async with asyncio.TaskGroup() as group:
        for task_id in task_ids:
            group.create_task(write(task_id))
    for task_id in task_ids:
        batches = await journal.read(task_id, 0)
        assert [parse_header(sealed).first_sequence for sealed in batches] == list(range(1, 23))
        task = (await journal.snapshot(task_id)).task
        assert task.artifacts[0].parts[0].text == "".join(map(str, range(20)))


async def test_a_canceled_close_releases_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, synchronous="full")
    created_task = journal.create(journal.new_task_id(), created())
    closing = asyncio.get_running_loop().create_task(journal.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (await created_task).is_new
    await journal.close()
    await open_journal(path).close()


async def test_a_listener_that_fails_fails_no_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(tmp_path / "journal.db", synchronous="full")

    def fail(_rows: object) -> None:
        journal.on_rows_changed = None
        raise ValueError

    journal.on_rows_changed = fail
    first = journal.create(journal.new_task_id(), created())
    await asyncio.sleep(0)
    # The first commit is in the thread, so this one waits for the next.
    second = journal.create(journal.new_task_id(), created())
    assert (await first).is_new
    assert (await second).is_new
    await journal.close()
    assert caplog.text.count("journal.publication_failed") == 1
    assert "ValueError" in caplog.text


async def test_a_listener_that_fails_keeps_no_event_from_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(tmp_path / "journal.db")
    first, second = await create_task(journal), await create_task(journal)
    woken: list[str] = []

    def fail() -> None:
        raise ValueError("a fault")

    def note() -> None:
        woken.append(second)

    def note_rows(rows: Iterable[TaskRow]) -> None:
        woken.extend(row.task_id for row in rows)

    journal.subscribe(first, fail)
    journal.subscribe(second, note)
    journal.on_rows_changed = note_rows
    end = journal.append(first, journal.epoch, [build_draft([completed()])])
    await journal.append(second, journal.epoch, [build_draft([begin("a", "x")])])
    assert end.done()
    assert woken == [second, first]
    assert caplog.text.count("journal.listener_failed") == 1
    journal.unsubscribe(first, fail)
    await journal.close()


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_the_end_of_the_event_loop_closes_the_journal(
    tmp_path: Path, synchronous: Literal["normal", "full"]
) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path, synchronous=synchronous)
    others = asyncio.all_tasks()
    await create_task(journal)
    in_flight = journal.create(journal.new_task_id(), created())
    await asyncio.sleep(0)
    pending = journal.create(journal.new_task_id(), created())
    # `asyncio.run` does this at its end.
    for task in asyncio.all_tasks() - others:
        task.cancel()
    for write in (in_flight, pending):
        # A write has either its result or an error.
        with suppress(JournalUnavailableError):
            assert (await write).is_new
    with pytest.raises(JournalUnavailableError, match="closed"):
        await journal.create(journal.new_task_id(), created())
    await journal.close()
    await open_journal(path).close()
