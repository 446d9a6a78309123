"""A host answers for tasks of journals that it does not have, from the store that hosts share."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from harness.journal.builders import append, begin, completed, created, fold_batches, message
from harness.journal.postgres_server import new_database
from harness.polling import poll
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import Settings
from trunkline.errors import (
    CursorExpiredError,
    InvalidArgumentError,
    PeerUnavailableError,
    TaskEndedError,
    TaskHostGoneError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal
from trunkline.journal.postgres import PostgresCatalog, PostgresReader
from trunkline.journal.store import LeaseState
from trunkline.tasks.host import TaskHost
from trunkline.tasks.outbox.webhook import Config, Webhook, to_row
from trunkline.v1 import event_pb2, message_service_pb2, task_pb2, task_service_pb2

LEASE_S = 1.0
LONG_S = 3600.0
CONTENT = bytes(range(256)) * 1000


@dataclass
class Mesh:
    """The store of two hosts: the test owns journals, and `host` has a journal of its own."""

    database: PostgresDatabase
    catalog: PostgresCatalog
    host: TaskHost

    async def open(self, name: str, *, takes_over: bool = False) -> Journal:
        """Open a journal with a long lease."""
        opening = self.catalog.take_over if takes_over else self.catalog.open
        store = await opening(name)
        await store.renew_lease(LONG_S)
        blobs = PostgresBlobStore(self.database, store.id, store.epoch)
        return Journal(store, await store.list_unfinished(), blobs=blobs)

    async def lose(self, journal: Journal) -> None:
        """Let the host of a journal die, and let its lease end."""
        await journal.close(for_takeover=True)
        stored = self.host.journals.stored
        assert stored is not None
        # A lease that was read a moment ago counts as live for a second.
        await poll(
            lambda: stored.find_lease(journal.id),
            lambda lease: lease is not None and not lease.is_live,
        )

    async def take_over(self, _journal_id: str) -> None:
        """Take over the journal `gone`, as `Takeover.take_at_once` does."""
        await self.host.journals.adopt(await self.open("gone", takes_over=True))

    async def read(self, task_id: str, *, after: int = 0, epoch: int = 0) -> list[bytes]:
        """Watch a task at the host until the watch ends, and return its batches."""
        watch = await self.host.watch(task_id, account="acme", after=after, epoch=epoch)
        return [batch async for batches in watch for batch in batches]


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database())
        database = await stack.enter_async_context(PostgresDatabase(url))
        catalog = PostgresCatalog(database)
        own_store = await catalog.open("host")
        blobs = PostgresBlobStore(database, own_store.id, own_store.epoch)
        own = await stack.enter_async_context(Journal(own_store, (), blobs=blobs))
        host = TaskHost(
            own,
            [],
            settings=Settings(lease_s=LEASE_S),
            reader=await PostgresReader.open(database),
        )
        await stack.enter_async_context(host)
        yield Mesh(database, catalog, host)


async def write(journal: Journal, task_id: str, *events: event_pb2.Event) -> None:
    await journal.append(task_id, journal.epoch, [build_draft(events)])


async def begin_task(journal: Journal) -> str:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await write(journal, task_id, begin("story", "once "))
    return task_id


async def end_task(journal: Journal, task_id: str) -> None:
    await write(journal, task_id, append("story", "upon a time", last=True))
    await write(journal, task_id, completed())


async def wait_until_moved(batches: AsyncIterator[list[bytes]]) -> None:
    with pytest.raises(PeerUnavailableError):
        await anext(batches)


async def read_rest(batches: AsyncIterator[list[bytes]]) -> list[bytes]:
    return [batch async for rest in batches for batch in rest]


def count(batches: Sequence[bytes]) -> list[int]:
    """Return the sequences of the events in batches."""
    headers = [parse_header(batch) for batch in batches]
    return [
        sequence
        for header in headers
        for sequence in range(header.first_sequence, header.first_sequence + header.count)
    ]


async def test_an_ended_task_is_shown_whoever_has_its_journal(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await end_task(journal, task_id)
    expected = await journal.snapshot(task_id)
    written = await journal.read(task_id, 0)

    assert await mesh.read(task_id) == written
    await journal.close(for_takeover=True)

    assert await mesh.host.snapshot(task_id, account="acme") == expected
    assert fold_batches(task_id, await mesh.read(task_id)) == expected
    for after in range(1, 5):
        batches = await mesh.read(task_id, after=after, epoch=journal.epoch)
        assert count(batches) == list(range(after + 1, 5))


async def test_cursors_and_accounts_are_checked_as_at_the_owner(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await end_task(journal, task_id)
    await journal.close()
    with pytest.raises(InvalidArgumentError):
        await mesh.read(task_id, after=5)
    with pytest.raises(CursorExpiredError):
        await mesh.read(task_id, after=3, epoch=journal.epoch + 1)
    with pytest.raises(TaskNotFoundError):
        await mesh.host.snapshot(task_id, account="other")
    with pytest.raises(TaskNotFoundError):
        await mesh.host.watch(task_id, account="other", after=0)
    with pytest.raises(TaskNotFoundError):
        await mesh.host.snapshot("nobodyss-0123456789abcdef", account="acme")
    with pytest.raises(TaskNotFoundError):
        await mesh.host.snapshot(f"{task_id}\0", account="acme")
    assert await mesh.host.resolve_alias("acme", "\0") == ""


async def test_each_event_can_be_read_elsewhere_as_soon_as_it_is_written(mesh: Mesh) -> None:
    journal = await mesh.open("lives")
    task_id = await begin_task(journal)
    for number in range(20):
        await write(journal, task_id, append("story", f"{number} "))
        snapshot = await mesh.host.snapshot(task_id, account="acme")
        assert snapshot == await journal.snapshot(task_id)
    await end_task(journal, task_id)
    ended = await mesh.host.snapshot(task_id, account="acme")
    assert ended.task.status.state == task_pb2.TASK_STATE_COMPLETED
    await journal.close()


async def test_a_live_watch_is_left_to_the_owner(mesh: Mesh) -> None:
    journal = await mesh.open("lives")
    task_id = await begin_task(journal)
    watch = await mesh.host.watch(task_id, account="acme", after=0)
    batches = aiter(watch)
    assert count(await anext(batches)) == [1, 2]
    await wait_until_moved(batches)
    with pytest.raises(TaskNotFoundError):
        await mesh.host.watch(task_id, account="other", after=0)
    await journal.close()


async def test_a_stream_of_an_orphan_continues_exactly_at_the_next_owner(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await journal.close(for_takeover=True)

    watch = await mesh.host.watch(task_id, account="acme", after=0)
    batches = aiter(watch)
    shown = await anext(batches)
    assert count(shown) == [1, 2]
    searches = asyncio.Semaphore(0)
    find_leases = PostgresReader.find_leases

    async def find_and_count(
        reader: PostgresReader, journal_ids: Collection[str]
    ) -> dict[str, LeaseState]:
        searches.release()
        return await find_leases(reader, journal_ids)

    monkeypatch.setattr(PostgresReader, "find_leases", find_and_count)
    async with asyncio.TaskGroup() as group:
        moved = group.create_task(wait_until_moved(batches))
        # A search that found a host would end the stream before the next search.
        for _ in range(4):
            await searches.acquire()
        assert not moved.done()
        taken = await mesh.open("gone", takes_over=True)
    last = parse_header(shown[-1])
    await taken.check_cursor(task_id, last.first_sequence + last.count - 1, last.epoch)
    await end_task(taken, task_id)
    assert count(await mesh.read(task_id, after=2, epoch=last.epoch)) == [3, 4]
    await taken.close()


async def test_a_stream_ends_if_the_next_owner_has_come_and_gone(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await journal.close(for_takeover=True)
    watch = await mesh.host.watch(task_id, account="acme", after=0)
    batches = aiter(watch)
    assert count(await anext(batches)) == [1, 2]

    # While the next owner lives, the stream is sent to it.
    taken = await mesh.open("gone", takes_over=True)
    await end_task(taken, task_id)
    await taken.close()
    # Another reader sees the end first.
    ended = await mesh.host.snapshot(task_id, account="acme")
    assert ended.sequence == 4
    async with asyncio.timeout(LONG_S):
        assert count(await read_rest(batches)) == [3, 4]


async def test_an_orphan_is_canceled_where_it_can_be_taken_over(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    with pytest.raises(TaskHostGoneError) as caught:
        await mesh.host.cancel(task_id, account="acme")
    assert float(caught.value.retry_after_s) > LONG_S / 2
    with pytest.raises(TaskNotFoundError):
        await mesh.host.cancel(task_id, account="other")

    await mesh.lose(journal)
    # Another host runs its agents.
    with pytest.raises(TaskHostGoneError) as caught:
        await mesh.host.cancel(task_id, account="acme")
    assert caught.value.retry_after_s == "1"

    mesh.host.journals.take_over = mesh.take_over
    canceled = await mesh.host.cancel(task_id, account="acme")
    assert canceled.task.status.state == task_pb2.TASK_STATE_CANCELED


async def test_an_ended_task_of_a_lost_journal_takes_no_changes(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await end_task(journal, task_id)
    await journal.close(for_takeover=True)
    with pytest.raises(TaskNotCancelableError):
        await mesh.host.cancel(task_id, account="acme")
    answer = message("more")
    answer.task_id = task_id
    with pytest.raises(TaskEndedError):
        await mesh.host.submit("echo", answer, message_service_pb2.Submission(account="acme"))


async def test_webhooks_of_a_lost_journal_are_listed(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    webhook = Webhook(config=Config(task_id=task_id, id="w", url="https://example.org/hook"))
    await journal.webhooks.save(to_row(webhook))
    await end_task(journal, task_id)
    await journal.close(for_takeover=True)
    configs, _ = await mesh.host.push_configs.list(task_id, account="acme")
    assert [config.id for config in configs] == ["w"]
    with pytest.raises(TaskNotFoundError):
        await mesh.host.push_configs.list(task_id, account="other")


async def test_a_list_of_the_store_has_the_tasks_of_all_hosts(mesh: Mesh) -> None:
    ids = []
    for name in ("gone", "lives"):
        journal = await mesh.open(name)
        ids += [await begin_task(journal), await begin_task(journal)]
        await journal.close(for_takeover=name == "gone")
    request = task_service_pb2.ListTasksRequest(account="acme", with_text=True)
    assert not (await mesh.host.list(request)).tasks

    request.whole_store, request.page_size = True, 3
    page = await mesh.host.list(request)
    assert page.total_size == 4
    request.page_token = page.next_page_token
    rest = await mesh.host.list(request)
    rows = [*page.tasks, *rest.tasks]
    assert [row.task_id for row in rows] == ids[::-1]
    assert {row.text for row in rows} == {"hello"}
    request.account, request.page_token = "other", ""
    assert not (await mesh.host.list(request)).tasks


async def test_a_file_of_a_lost_journal_is_read_by_its_account(mesh: Mesh) -> None:
    journal = await mesh.open("gone")
    task_id = await begin_task(journal)
    await end_task(journal, task_id)
    file = Reference.create(task_id, "file-1")
    assert journal.blobs is not None
    await journal.blobs.put(file, CONTENT, media_type="text/plain", filename="a.txt")
    await journal.close(for_takeover=True)

    blobs = await mesh.host.blobs(task_id, account="acme")
    assert (await blobs.get(file)).filename == "a.txt"
    assert b"".join([chunk async for chunk in blobs.read(file, offset=7)]) == CONTENT[7:]
    with pytest.raises(TaskNotFoundError):
        await mesh.host.blobs(task_id, account="other")
