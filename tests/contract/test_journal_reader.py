"""A reader of a store returns what the owners of the journals wrote, also while they write."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from harness.journal.builders import append, begin, completed, created, group, row, stored
from harness.journal.postgres_server import new_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.journal.postgres import PostgresCatalog, PostgresReader
from trunkline.journal.store import (
    AliasRecord,
    ClaimedError,
    CommitGroup,
    JournalReader,
    JournalStore,
    SealedBatch,
    StoredFold,
    TaskFilter,
    WebhookRow,
)
from trunkline.v1 import task_pb2

LIMIT = 64 * 1024
EVENTS = 60


@dataclass(frozen=True)
class SharedStore:
    """Two journals of one store, and a reader in another process's place."""

    first: JournalStore
    second: JournalStore
    reader: JournalReader


@pytest.fixture
async def shared() -> AsyncIterator[SharedStore]:
    async with (
        new_database() as url,
        PostgresDatabase(url) as of_hosts,
        PostgresDatabase(url) as of_reader,
    ):
        catalog = PostgresCatalog(of_hosts)
        first, second = await catalog.open("math"), await catalog.open("echo")
        yield SharedStore(first, second, await PostgresReader.open(of_reader))
        await first.close()
        await second.close()


async def write_task(store: JournalStore, *, time_ns: int = 1) -> tuple[str, list[SealedBatch]]:
    """Write an ended task of three commits; return its id and its batches."""
    task_id = f"{store.id}-{time_ns:016x}"
    batches = [
        stored([created()], 1, task_id=task_id),
        stored([begin("a", "x", "y")], 2, task_id=task_id),
        stored([append("a", "z"), completed()], 4, task_id=task_id),
    ]
    made = row(task_id, time_ns=time_ns)
    ended = made._replace(state=task_pb2.TASK_STATE_COMPLETED, head=5, ended_ns=time_ns)
    await store.commit(group(batches[0], made=[made]))
    await store.commit(group(batches[1]))
    await store.commit(group(batches[2], changed=[ended]))
    return task_id, batches


async def test_the_reader_and_the_owner_read_the_same_from_each_cursor(
    shared: SharedStore,
) -> None:
    for store in (shared.first, shared.second):
        task_id, batches = await write_task(store)
        for after in range(6):
            expected = await store.read(task_id, after, limit_bytes=LIMIT)
            assert await shared.reader.read(task_id, after, limit_bytes=LIMIT) == expected
        assert expected == []
        whole = await shared.reader.read(task_id, 0, limit_bytes=LIMIT)
        assert whole == [batch.sealed for batch in batches]
        assert await shared.reader.find_rows([task_id]) == await store.find_rows([task_id])


async def test_events_are_read_in_order_while_the_owner_writes_them(shared: SharedStore) -> None:
    store, task_id = shared.first, f"{shared.first.id}-{1:016x}"
    batches = [stored([created()], 1, task_id=task_id), stored([begin("a", "x")], 2)]
    batches[1] = stored([begin("a", "x")], 2, task_id=task_id)
    batches += [stored([append("a", "y")], n, task_id=task_id) for n in range(3, EVENTS)]

    async def write() -> None:
        await store.commit(group(batches[0], made=[row(task_id)]))
        for batch in batches[1:]:
            await store.commit(group(batch))

    read: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        while len(read) < len(batches):
            is_over = writing.done()
            read += await shared.reader.read(task_id, len(read), limit_bytes=LIMIT)
            head = (await shared.reader.find_rows([task_id])).get(task_id, row(head=0)).head
            assert head >= len(read)
            assert read == [batch.sealed for batch in batches[: len(read)]]
            assert not is_over or len(read) == len(batches)


async def test_the_reader_finds_folds_aliases_and_webhooks_of_all_journals(
    shared: SharedStore,
) -> None:
    for number, store in enumerate((shared.first, shared.second), 1):
        task_id, _ = await write_task(store, time_ns=number)
        webhook = WebhookRow(task_id, "w", 1, b"content")
        await store.commit(
            CommitGroup(
                aliases=[AliasRecord("acme", f"alias-{number}", task_id)],
                webhooks={webhook.key: webhook},
            )
        )
        fold = StoredFold(b"snapshot", 1, {"origin": 2})
        await store.compact({task_id: fold})
        assert await shared.reader.find_fold(task_id) == fold
        name = ("acme", f"alias-{number}")
        assert await shared.reader.find_aliases([name]) == {name: task_id}
        assert await shared.reader.find_webhooks(task_id=task_id) == [webhook]
    assert len(await shared.reader.find_webhooks()) == 2
    assert await shared.reader.find_fold("unknown-task") is None


async def test_an_alias_is_bound_once_over_all_journals(shared: SharedStore) -> None:
    name = ("acme", "chosen")
    await shared.first.commit(CommitGroup(aliases=[AliasRecord(*name, "first-1")]))
    await shared.second.commit(CommitGroup(aliases=[AliasRecord(*name, "second-2", "first-1")]))
    # The former journal has seen neither.
    for outdated in ("", "first-1"):
        with pytest.raises(ClaimedError):
            await shared.first.commit(
                CommitGroup(aliases=[AliasRecord(*name, "first-3", outdated)])
            )
    await shared.first.commit(CommitGroup(aliases=[AliasRecord(*name, "first-4", "second-2")]))
    for reader in (shared.reader, shared.first, shared.second):
        assert await reader.find_aliases([name]) == {name: "first-4"}


async def test_a_list_has_the_tasks_of_all_journals_by_status_time(shared: SharedStore) -> None:
    written = [
        (await write_task(store, time_ns=number))[0]
        for number, store in enumerate([shared.first, shared.second] * 3, 1)
    ]
    await shared.first.commit(
        group(
            stored([created("other")], 1, task_id=f"{shared.first.id}-other"),
            made=[row(f"{shared.first.id}-other", account="other")],
        )
    )
    wanted = TaskFilter("acme")
    page = await shared.reader.list_rows(wanted, limit=4)
    last = page.rows[-1]
    rest = await shared.reader.list_rows(wanted, limit=4, after=(last.status_time_ns, last.task_id))
    assert [each.task_id for each in (*page.rows, *rest.rows)] == written[::-1]
    assert page.total == rest.total == 6


async def test_leases_are_live_until_the_owner_releases_or_loses_them(shared: SharedStore) -> None:
    await shared.first.renew_lease(60)
    ids = [shared.first.id, shared.second.id, "unknown"]
    leases = await shared.reader.find_leases(ids)
    assert leases.keys() == set(ids[:2])
    assert leases[shared.first.id].is_live
    assert 50 < leases[shared.first.id].remaining_s <= 60

    await shared.first.close(for_takeover=True)
    await shared.second.close()
    leases = await shared.reader.find_leases(ids)
    assert leases[shared.first.id].owner
    assert not any(lease.is_live for lease in leases.values())


async def test_hosts_of_one_database_have_one_store_id() -> None:
    async with new_database() as one, new_database() as other:
        ids = []
        for url in (one, one, other):
            async with PostgresDatabase(url) as database:
                ids.append((await PostgresReader.open(database)).store_id)
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
