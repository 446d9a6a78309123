"""Two hosts store a submission with the same key at the same time; other writes are not harmed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import cast

import pytest

from harness.journal.builders import append, begin, created
from harness.journal.postgres_server import new_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import MessageKeyReusedError, TaskExistsError, TaskNotFoundError
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.events import Draft, build_draft
from trunkline.journal.group_commit import CreateResult
from trunkline.journal.journal import Journal
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.store import CommitGroup, JournalStore


class SlowStore:
    """A store on whose next commit the journal of another host stores submissions first."""

    def __init__(self, store: JournalStore, rival: Journal) -> None:
        self._store = store
        self._rival = rival
        self.rival_keys: dict[str, str] = {}
        """The keys that the other host uses first, and the hashes of their messages."""
        self.rival_tasks: dict[str, str] = {}
        self.commits = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, group: CommitGroup) -> None:
        self.commits += 1
        while self.rival_keys:
            key, content_hash = self.rival_keys.popitem()
            task_id = self.rival_tasks[key] = self._rival.new_task_id()
            await self._rival.create(task_id, created(), key=key, content_hash=content_hash)
        await self._store.commit(group)


class Source:
    """A writer whose drafts are taken once."""

    def __init__(self, draft: Draft) -> None:
        self._drafts = [draft]
        self.head: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.done = self.head.done
        self.set_result = self.head.set_result
        self.set_exception = self.head.set_exception

    def take(self) -> Sequence[Draft]:
        return [self._drafts.pop()]


async def open_journal(
    stack: AsyncExitStack, database: PostgresDatabase, name: str, rival: Journal | None = None
) -> tuple[Journal, SlowStore | None]:
    store = await PostgresCatalog(database).open(name)
    slow = None if rival is None else SlowStore(store, rival)
    journal = Journal(
        cast("JournalStore", slow or store),
        await store.list_unfinished(),
        blobs=PostgresBlobStore(database, store.id, store.epoch),
    )
    stack.push_async_callback(journal.close)
    return journal, slow


@pytest.fixture
async def hosts() -> AsyncIterator[tuple[Journal, SlowStore]]:
    """The journal of a host, and its store, on which another host is faster."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database())
        database = await stack.enter_async_context(PostgresDatabase(url))
        rival, _ = await open_journal(stack, database, "echo.2")
        journal, store = await open_journal(stack, database, "echo", rival)
        assert store is not None
        yield journal, store


async def test_a_lost_race_for_a_key_fails_no_other_write_of_the_commit(
    hosts: tuple[Journal, SlowStore],
) -> None:
    journal, store = hosts
    running, lost, other, unkeyed = (journal.new_task_id() for _ in range(4))
    await journal.create(running, created())
    store.commits = 0
    store.rival_keys = {"lost": "hash", "reused": "another hash"}

    late = Source(build_draft([append("a", "late")]))
    writes: list[asyncio.Future[CreateResult]] = []
    begun = journal.append(running, journal.epoch, [build_draft([begin("a", "early")])])
    writes.append(journal.create(lost, created(), key="lost", content_hash="hash"))
    writes.append(journal.create(journal.new_task_id(), created(), key="reused", content_hash="h"))
    to_lost = journal.append(lost, journal.epoch, [build_draft([begin("a", "x")])])
    writes.append(journal.create(other, created(), key="other", content_hash="hash"))
    writes.append(journal.create(unkeyed, created()))
    journal.append_from(running, journal.epoch, late)
    await asyncio.wait(writes)

    exists, reused, *made = writes
    error = exists.exception()
    assert isinstance(error, TaskExistsError)
    assert error.task_id == store.rival_tasks["lost"]
    assert isinstance(reused.exception(), MessageKeyReusedError)
    assert [each.result() for each in made] == [
        CreateResult(other, is_new=True),
        CreateResult(unkeyed, is_new=True),
    ]
    assert (await begun, await late.head) == (2, 3)
    with pytest.raises(TaskNotFoundError):
        await to_lost
    # The group was stored in the second try.
    assert store.commits == 2
    assert {row.task_id for row in journal.list_unfinished()} == {running, other, unkeyed}
    text = (await journal.snapshot(running)).task.artifacts[0].parts[0].text
    assert text == "earlylate"


async def test_a_commit_of_nothing_but_a_lost_race_is_not_repeated(
    hosts: tuple[Journal, SlowStore],
) -> None:
    journal, store = hosts
    store.rival_keys = {"lost": "hash"}
    with pytest.raises(TaskExistsError):
        await journal.create(journal.new_task_id(), created(), key="lost", content_hash="hash")
    assert store.commits == 1
    assert not journal.list_unfinished()
