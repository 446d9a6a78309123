"""The conformance suite of journal catalogs. A catalog joins by a factory in FACTORIES."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.journal.builders import TASK, completed, created, group, row, stored, working
from harness.journal.postgres_server import new_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import InvalidArgumentError, JournalUnavailableError, TaskNotFoundError
from trunkline.journal.catalog import JournalCatalog
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.sqlite import SqliteCatalog
from trunkline.journal.store import LIVE_WEBHOOKS, CommitGroup, JournalStore, WebhookRow
from trunkline.v1 import webhook_service_pb2


async def sqlite_folder(folder: Path, _stack: AsyncExitStack) -> JournalCatalog:
    return SqliteCatalog(folder)


async def postgres_database(_folder: Path, stack: AsyncExitStack) -> JournalCatalog:
    url = await stack.enter_async_context(new_database())
    return PostgresCatalog(await stack.enter_async_context(PostgresDatabase(url)))


FACTORIES = {"sqlite": sqlite_folder, "postgres": postgres_database}


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
async def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalCatalog]:
    async with AsyncExitStack() as stack:
        yield await request.param(tmp_path / "journals", stack)


async def add_task(store: JournalStore) -> None:
    """Add an unfinished task of the agent `echo`."""
    await store.commit(group(stored([created()]), made=[row()]))


async def lose(catalog: JournalCatalog, name: str, *, has_task: bool = True) -> JournalStore:
    """Make a journal whose host has died; return its closed store."""
    store = await catalog.open(name)
    if has_task:
        await add_task(store)
    await store.close(for_takeover=True)
    return store


async def test_a_new_catalog_has_no_journals(catalog: JournalCatalog) -> None:
    assert await catalog.list_names() == frozenset()
    assert await catalog.find_orphans() == []
    assert await catalog.list_agents("math") is None
    assert not await catalog.is_in_use("math")
    assert not await catalog.is_leased("abcdefgh")


async def test_an_open_journal_has_one_owner(catalog: JournalCatalog) -> None:
    store = await catalog.open("math")
    await store.renew_lease(60.0)
    assert await catalog.list_names() == {"math"}
    assert await catalog.is_in_use("math")
    assert await catalog.is_leased(store.id)
    assert await catalog.find_orphans() == []
    for open_again in (catalog.open, catalog.take_over, catalog.delete_if_empty):
        with pytest.raises(JournalUnavailableError):
            await open_again("math")
    await store.close()
    assert not await catalog.is_in_use("math")
    assert not await catalog.is_leased(store.id)


async def test_a_released_journal_is_an_orphan(catalog: JournalCatalog) -> None:
    """A host that ends may find nobody who takes its tasks, and another one starts later."""
    store = await catalog.open("one")
    await add_task(store)
    await store.renew_lease(0.0)
    await store.close()
    await (await catalog.open("empty")).close()
    orphans = {orphan.name: orphan for orphan in await catalog.find_orphans(rereads=True)}
    assert orphans.keys() == {"one", "empty"}
    assert all(orphan.was_released for orphan in orphans.values())
    assert orphans["one"].agents == {"echo"}
    assert orphans["empty"].is_empty
    taken = await catalog.take_over("one")
    assert [row.task_id for row in await taken.list_unfinished()] == [TASK]
    await taken.close()


@pytest.mark.parametrize("state", LIVE_WEBHOOKS)
async def test_an_orphan_says_whether_deliveries_may_follow(
    catalog: JournalCatalog, state: int
) -> None:
    states = {"live": state, "done": webhook_service_pb2.WEBHOOK_STATE_DONE}
    for name, saved in states.items():
        store = await catalog.open(name)
        webhook = WebhookRow(f"{store.id}-1", "hook", saved, b"")
        await store.commit(CommitGroup(webhooks={webhook.key: webhook}))
        await store.close()
    orphans = await catalog.find_orphans(rereads=True)
    assert {orphan.name for orphan in orphans if orphan.has_webhooks} == {"live"}


async def test_a_released_journal_is_opened_again_with_its_id(
    catalog: JournalCatalog,
) -> None:
    store = await catalog.open("math.2")
    await add_task(store)
    await store.close()
    assert await catalog.list_agents("math.2") == frozenset({"echo"})
    again = await catalog.open("math.2")
    assert again.id == store.id
    # Other openings than takeovers may increase the epoch, too.
    assert again.epoch >= store.epoch
    assert [unfinished.task_id for unfinished in await again.list_unfinished()] == [TASK]
    await again.close()


async def test_an_orphan_is_taken_over_once_with_the_next_epoch(catalog: JournalCatalog) -> None:
    store = await lose(catalog, "math")
    (orphan,) = await catalog.find_orphans()
    assert (orphan.name, orphan.journal_id) == ("math", store.id)
    assert orphan.agents == {"echo"}
    assert not orphan.is_empty
    assert not orphan.was_released
    taken: list[JournalStore] = []

    async def take() -> None:
        try:
            taken.append(await catalog.take_over("math"))
        except JournalUnavailableError:
            return

    async with asyncio.TaskGroup() as takers:
        for _ in range(4):
            takers.create_task(take())
    (winner,) = taken
    assert (winner.id, winner.epoch) == (store.id, store.epoch + 1)
    assert await catalog.find_orphans() == []
    await winner.close()


async def test_a_journal_is_read_again_before_the_end_of_its_lease_on_request(
    catalog: JournalCatalog,
) -> None:
    store = await catalog.open("math")
    await store.renew_lease(60.0)
    assert await catalog.find_orphans() == []
    await store.close(for_takeover=True)
    assert [orphan.name for orphan in await catalog.find_orphans(rereads=True)] == ["math"]


async def test_a_search_tells_for_how_long_all_journals_have_owners(
    catalog: JournalCatalog,
) -> None:
    # In a database, each search also moves the clock of leases on.
    is_searched_often = isinstance(catalog, PostgresCatalog)
    await catalog.find_orphans()
    assert catalog.leased_for_s == (0.0 if is_searched_often else math.inf)
    stores = [await catalog.open(name) for name in ("one", "two")]
    for store, lease_s in zip(stores, (60.0, 120.0), strict=True):
        await store.renew_lease(lease_s)
    await catalog.find_orphans()
    assert is_searched_often or 0 < catalog.leased_for_s <= 60
    for store in stores:
        await store.close(for_takeover=True)
    await catalog.find_orphans(rereads=True)
    assert catalog.leased_for_s <= 0


async def test_only_a_journal_without_tasks_is_deleted(catalog: JournalCatalog) -> None:
    await lose(catalog, "full")
    await lose(catalog, "empty", has_task=False)
    assert {orphan.name: orphan.is_empty for orphan in await catalog.find_orphans()} == {
        "full": False,
        "empty": True,
    }
    assert [await catalog.delete_if_empty(name) for name in ("full", "empty")] == [False, True]
    assert await catalog.list_names() == {"full"}
    # It is still an orphan.
    assert [orphan.name for orphan in await catalog.find_orphans()] == ["full"]


async def test_no_orphan_hides_another(catalog: JournalCatalog) -> None:
    names = {f"math.{number}" for number in range(120)}
    for name in names:
        await lose(catalog, name, has_task=False)
    assert {orphan.name for orphan in await catalog.find_orphans()} == names


async def test_a_canceled_open_leaves_the_journal_as_it_was(catalog: JournalCatalog) -> None:
    store = await lose(catalog, "math")
    async with asyncio.TaskGroup() as openings:
        opening = openings.create_task(catalog.open("math"))
        await asyncio.sleep(0)
        opening.cancel()
    assert opening.cancelled()
    assert not await catalog.is_in_use("math")
    (orphan,) = await catalog.find_orphans()
    assert orphan.journal_id == store.id


# An index can't compress it.
LONG = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(100))


@pytest.mark.parametrize(
    "bad", ["a\0b", "a\ud800b", LONG], ids=["NUL", "surrogate", "longer than an index"]
)
async def test_a_journal_refuses_texts_that_not_every_store_accepts(
    catalog: JournalCatalog, bad: str
) -> None:
    journal = Journal(await catalog.open("math"), [])
    task_id = journal.new_task_id()
    refused: list[asyncio.Future[Any]] = [
        journal.create(task_id + bad, created()),
        journal.create(task_id, created(), key=bad),
        journal.aliases.bind(bad, "alias", task_id),
        journal.aliases.bind("account", bad, task_id),
        journal.webhooks.save(WebhookRow(task_id, bad, 0, b"")),
    ]
    if "\ud800" not in bad:
        # Protobuf refuses it.
        for field_name in ("context_id", "account", "caller", "agent"):
            event = created()
            setattr(event.created, field_name, bad)
            refused.append(journal.create(task_id, event))
    for future in refused:
        with pytest.raises(InvalidArgumentError):
            await future
    # Reads find nothing under them.
    with pytest.raises(TaskNotFoundError):
        await journal.row(task_id + bad)
    assert await journal.aliases.find("account", bad) is None
    assert await journal.webhooks.find(task_id=bad) == []
    assert (await journal.create(task_id, created())).is_new
    # A write of the same commit is stored although another one is refused.
    far = working()
    far.status.status.timestamp.FromJsonString("9999-01-01T00:00:00Z")
    late = journal.append(task_id, journal.epoch, [build_draft([far])])
    kept = journal.append(task_id, journal.epoch, [build_draft([working()])])
    with pytest.raises(InvalidArgumentError):
        await late
    assert await kept == 2
    await journal.close()


async def test_a_first_attempt_whose_id_exists_attaches_to_the_task(
    catalog: JournalCatalog,
) -> None:
    """Its id is not looked up before the commit, so the store refuses it."""
    journal = Journal(await catalog.open("math"), [])
    task_id, other_id = journal.new_task_id(), journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    await journal.close()
    store = await catalog.open("math")
    async with Journal(store, await store.list_unfinished()) as journal:
        repeated = journal.create(task_id, created(), is_first_attempt=True)
        other = journal.create(other_id, created(), is_first_attempt=True)
        started = journal.append(other_id, journal.epoch, [build_draft([working()])])
        assert ((await repeated).is_new, (await repeated).head) == (False, 2)
        assert ((await other).is_new, await started) == (True, 2)
        assert await journal.head(task_id) == 2
