"""The conformance suite of journal stores. A store joins by a factory in FACTORIES."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.journal.builders import (
    TASK,
    TIME_NS,
    append,
    begin,
    completed,
    created,
    group,
    row,
    stored,
    working,
)
from harness.journal.postgres_server import new_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.sqlite import SqliteCatalog
from trunkline.journal.store import (
    AliasRecord,
    CommitGroup,
    JournalStore,
    OrphanedChild,
    StoredFold,
    SubmissionKey,
    TaskFilter,
    TaskRow,
    TaskStage,
    WebhookRow,
)
from trunkline.v1 import task_pb2

LIMIT = 64 * 1024
ENDED = task_pb2.TASK_STATE_COMPLETED

# Opens the same store at each call; the previous one is closed by then.
OpenStore: TypeAlias = Callable[[], Awaitable[JournalStore]]


async def sqlite_file(folder: Path, _stack: AsyncExitStack) -> OpenStore:
    return lambda: SqliteCatalog(folder).open("journal")


async def sqlite_file_full(folder: Path, _stack: AsyncExitStack) -> OpenStore:
    return lambda: SqliteCatalog(folder, synchronous="full").open("journal")


async def postgres_database(_folder: Path, stack: AsyncExitStack) -> OpenStore:
    url = await stack.enter_async_context(new_database())
    catalog = PostgresCatalog(await stack.enter_async_context(PostgresDatabase(url)))
    return lambda: catalog.open("journal")


FACTORIES = {
    "sqlite": sqlite_file,
    "sqlite, full": sqlite_file_full,
    "postgres": postgres_database,
}


class Reopenable:
    """A store that can be closed and opened again, as after a restart."""

    def __init__(self, open_store: OpenStore, store: JournalStore) -> None:
        self._open = open_store
        self.store = store

    async def reopen(self) -> JournalStore:
        """Open the store again."""
        await self.store.close()
        self.store = await self._open()
        return self.store

    async def before_and_after_restart(self) -> AsyncIterator[JournalStore]:
        """Yield the open store, and then the store after a restart."""
        yield self.store
        yield await self.reopen()


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
async def reopenable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopenable]:
    async with AsyncExitStack() as stack:
        open_store = await request.param(tmp_path, stack)
        reopenable_store = Reopenable(open_store, await open_store())
        yield reopenable_store
        await reopenable_store.store.close()


@pytest.fixture
def store(reopenable: Reopenable) -> JournalStore:
    return reopenable.store


async def find_row(store: JournalStore, task_id: str) -> TaskRow | None:
    return (await store.find_rows([task_id])).get(task_id)


async def find_key(store: JournalStore, key: str, *, now_ns: int) -> SubmissionKey | None:
    return (await store.find_keys([key], now_ns=now_ns)).get(key)


async def find_alias(store: JournalStore, account: str, alias: str) -> str | None:
    return (await store.find_aliases([(account, alias)])).get((account, alias))


FIRST = stored([created()], 1)
SECOND = stored([begin("a", "x", "y")], 2)
THIRD = stored([append("a", "z"), completed()], 4)


def ended(task_id: str = TASK, *, head: int, ended_ns: int = 1) -> TaskRow:
    return row(task_id, state=ENDED, head=head)._replace(ended_ns=ended_ns)


async def write_ended(
    store: JournalStore, task_id: str = TASK, *, ended_ns: int = 1
) -> list[bytes]:
    """Write an ended task of three commits, and return its batches."""
    batches = [
        stored([created()], 1, task_id=task_id),
        stored([begin("a", "x", "y")], 2, task_id=task_id),
        stored([append("a", "z"), completed()], 4, task_id=task_id),
    ]
    await store.commit(group(batches[0], made=[row(task_id)]))
    await store.commit(group(batches[1]))
    await store.commit(group(batches[2], changed=[ended(task_id, head=5, ended_ns=ended_ns)]))
    return [batch.sealed for batch in batches]


async def test_a_task_spread_over_many_commits_is_read_completely(
    reopenable: Reopenable,
) -> None:
    other = f"{TASK}-other"
    batches = [stored([created()], 1), stored([begin("a", "x")], 2)]
    await reopenable.store.commit(
        group(*batches, stored([created()], 1, task_id=other), made=[row(), row(other)])
    )
    for number in range(2, 62):
        commit_batches = [stored([append("a", "of the other")], number, task_id=other)]
        if number % 6 == 0:
            # Two batches in one commit, with another task's batch between them.
            at = len(batches) + 1
            batches += [stored([append("a", f"{at}")], at), stored([append("a", "and")], at + 1)]
            commit_batches = [batches[-2], *commit_batches, batches[-1]]
        await reopenable.store.commit(group(*commit_batches))
    batches.append(stored([completed()], len(batches) + 1))
    last = ended(head=len(batches))
    await reopenable.store.commit(group(batches[-1], changed=[last]))
    written = [batch.sealed for batch in batches]
    async for store in reopenable.before_and_after_restart():
        assert await store.read(TASK, 0, limit_bytes=2**30) == written
        assert await store.read(TASK, 7, limit_bytes=0) == written[7:8]


@pytest.mark.parametrize(
    ("after", "expected_count"), [(0, 3), (1, 2), (2, 2), (3, 1), (4, 1), (5, 0)]
)
async def test_reading_begins_with_the_batch_that_ends_after_the_cursor(
    reopenable: Reopenable, after: int, expected_count: int
) -> None:
    batches = await write_ended(reopenable.store)
    expected = batches[3 - expected_count :]
    assert await reopenable.store.read(TASK, after, limit_bytes=LIMIT) == expected
    assert await (await reopenable.reopen()).read(TASK, after, limit_bytes=LIMIT) == expected


async def test_reading_respects_the_limit_but_returns_at_least_one_batch(
    reopenable: Reopenable,
) -> None:
    first, second, _ = await write_ended(reopenable.store)
    async for store in reopenable.before_and_after_restart():
        assert await store.read(TASK, 0, limit_bytes=1) == [first]
        both_bytes = len(first) + len(second)
        assert await store.read(TASK, 0, limit_bytes=both_bytes) == [first, second]
        assert await store.read(TASK, 0, limit_bytes=both_bytes - 1) == [first]


async def test_an_unknown_task_has_no_batches_and_no_row(store: JournalStore) -> None:
    assert await store.read("journal1-unknown", 0, limit_bytes=LIMIT) == []
    assert await find_row(store, "journal1-unknown") is None


async def test_a_changed_row_replaces_state_time_and_metadata(reopenable: Reopenable) -> None:
    await reopenable.store.commit(group(FIRST, made=[row()]))
    changed = row(state=task_pb2.TASK_STATE_WORKING, head=2)._replace(
        status_time_ns=TIME_NS + 5,
        metadata=b"\x0a\x00",
    )
    await reopenable.store.commit(group(stored([working()], 2), changed=[changed]))
    assert await find_row(reopenable.store, TASK) == changed
    assert await find_row(await reopenable.reopen(), TASK) == changed


async def test_a_group_is_written_atomically(reopenable: Reopenable) -> None:
    store = reopenable.store
    await store.commit(group(FIRST, made=[row()]))
    other = f"{TASK}-other"
    other_batch = stored([created()], 1, task_id=other)
    with pytest.raises(JournalUnavailableError):
        # The second row exists already.
        await store.commit(group(other_batch, SECOND, made=[row(other), row()]))
    async for result in reopenable.before_and_after_restart():
        assert await find_row(result, other) is None
        assert await result.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed]
    await reopenable.store.commit(group(SECOND))
    assert await reopenable.store.read(TASK, 1, limit_bytes=LIMIT) == [SECOND.sealed]


async def test_keys_are_found_until_they_expire(reopenable: Reopenable) -> None:
    record = SubmissionKey("key", "hash", TASK, TIME_NS + 10)
    await reopenable.store.commit(CommitGroup([FIRST], {TASK: row()}, {}, [record]))
    async for store in reopenable.before_and_after_restart():
        assert await find_key(store, "key", now_ns=TIME_NS + 9) == record
        assert await find_key(store, "key", now_ns=TIME_NS + 10) is None
        assert await find_key(store, "other", now_ns=TIME_NS) is None


async def test_a_key_that_expired_can_be_used_again(store: JournalStore) -> None:
    await store.commit(
        CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, TIME_NS)])
    )
    other = f"{TASK}-other"
    renewed = SubmissionKey("key", "h2", other, TIME_NS + 20)
    other_batch = stored([created()], 1, task_id=other)
    await store.commit(CommitGroup([other_batch], {other: row(other)}, {}, [renewed]))
    assert await find_key(store, "key", now_ns=TIME_NS + 10) == renewed


async def test_renewing_the_lease_deletes_expired_keys(store: JournalStore) -> None:
    await store.commit(
        CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, 1)])
    )
    assert await find_key(store, "key", now_ns=0) is not None
    await store.renew_lease(60.0)
    assert await find_key(store, "key", now_ns=0) is None


async def test_unfinished_tasks_are_those_that_have_not_ended(reopenable: Reopenable) -> None:
    await write_ended(reopenable.store)
    young, old = row("journal1-young", time_ns=TIME_NS + 2), row("journal1-old")
    for task_row in (young, old):
        first = stored([created()], 1, task_id=task_row.task_id)
        await reopenable.store.commit(group(first, made=[task_row]))
    async for store in reopenable.before_and_after_restart():
        assert await store.list_unfinished() == [old, young]


async def test_tasks_of_the_same_commits_end_separately(reopenable: Reopenable) -> None:
    live = "journal1-live"
    live_batches = [
        stored([created()], 1, task_id=live),
        stored([begin("a", "x")], 2, task_id=live),
        stored([working()], 3, task_id=live),
    ]
    other_batch = (FIRST, SECOND, THIRD)
    for live_batch, other in zip(live_batches, other_batch, strict=True):
        made = [row(live), row()] if live_batch is live_batches[0] else []
        changed = [ended(head=5)] if live_batch is live_batches[2] else []
        await reopenable.store.commit(group(live_batch, other, made=made, changed=changed))
    async for store in reopenable.before_and_after_restart():
        assert await store.read(live, 0, limit_bytes=LIMIT) == [
            batch.sealed for batch in live_batches
        ]
        assert await store.read(TASK, 0, limit_bytes=LIMIT) == [
            batch.sealed for batch in other_batch
        ]
        assert [task_row.task_id for task_row in await store.list_unfinished()] == [live]


async def test_more_tasks_than_one_statement_takes_are_written_in_one_commit(
    reopenable: Reopenable,
) -> None:
    names = [f"journal1-{number:03}" for number in range(200)]
    firsts = [stored([created()], 1, task_id=name) for name in names]
    await reopenable.store.commit(group(*firsts, made=[row(name) for name in names]))
    seconds = [stored([working()], 2, task_id=name) for name in names]
    await reopenable.store.commit(group(*seconds))
    async for store in reopenable.before_and_after_restart():
        for first, second in zip(firsts, seconds, strict=True):
            written = [first.sealed, second.sealed]
            assert await store.read(first.task_id, 0, limit_bytes=LIMIT) == written


FOLD = StoredFold(b"the fold", epoch=3, forwarded={"child": 7})


async def test_tasks_that_ended_long_ago_are_found_oldest_first(reopenable: Reopenable) -> None:
    for name, ended_ns in (("journal1-b", 20), ("journal1-a", 10), ("journal1-c", 30)):
        await write_ended(reopenable.store, name, ended_ns=ended_ns)
    live = "journal1-live"
    await reopenable.store.commit(group(stored([created()], 1, task_id=live), made=[row(live)]))
    async for store in reopenable.before_and_after_restart():
        result = await store.list_ended(20, stage=TaskStage.READABLE, limit=10)
        assert [task_row.task_id[-1] for task_row in result] == ["a", "b"]
        result = await store.list_ended(99, stage=TaskStage.READABLE, limit=2)
        assert [task_row.task_id[-1] for task_row in result] == ["a", "b"]
        assert await store.list_ended(9, stage=TaskStage.READABLE, limit=10) == []
        assert await store.list_ended(99, stage=TaskStage.COMPACTED, limit=10) == []


async def test_a_compacted_task_has_a_fold_in_place_of_its_events(reopenable: Reopenable) -> None:
    await write_ended(reopenable.store, ended_ns=10)
    other = f"{TASK}-other"
    await write_ended(reopenable.store, other, ended_ns=11)
    expected = await reopenable.store.read(other, 0, limit_bytes=LIMIT)
    assert await reopenable.store.find_fold(TASK) is None
    await reopenable.store.compact({TASK: FOLD})
    async for store in reopenable.before_and_after_restart():
        assert await store.find_fold(TASK) == FOLD
        result = await find_row(store, TASK)
        assert result is not None
        assert (result.head, result.first_available, result.state) == (5, 6, ENDED)
        compacted = await store.list_ended(99, stage=TaskStage.COMPACTED, limit=10)
        assert [task_row.task_id for task_row in compacted] == [TASK]
    assert await reopenable.store.delete_events([TASK], limit=100) == [TASK]
    async for store in reopenable.before_and_after_restart():
        assert await store.read(TASK, 0, limit_bytes=LIMIT) == []
        assert await store.find_fold(TASK) == FOLD
        assert await store.read(other, 0, limit_bytes=LIMIT) == expected
        cleared = await store.list_ended(99, stage=TaskStage.CLEARED, limit=10)
        assert [task_row.task_id for task_row in cleared] == [TASK]


async def test_the_first_events_of_a_compacted_task_are_deleted_first(
    reopenable: Reopenable,
) -> None:
    other = f"{TASK}-other"
    await write_ended(reopenable.store, other, ended_ns=10)
    batches = [FIRST, *(stored([append("a", "x")], sequence) for sequence in range(2, 100))]
    batches.append(stored([completed()], 100))
    await reopenable.store.commit(group(*batches, made=[row()], changed=[ended(head=100)]))
    await reopenable.store.compact({TASK: FOLD, other: FOLD})
    firsts = []
    cleared: list[str] = []
    while remaining := await reopenable.store.read(TASK, 0, limit_bytes=2**30):
        firsts.append(parse_header(remaining[0]).first_sequence)
        assert remaining == [batch.sealed for batch in batches[firsts[-1] - 1 :]]
        task_ids = [name for name in (TASK, other) if name not in cleared]
        cleared += await reopenable.store.delete_events(task_ids, limit=30)
        await reopenable.reopen()
    assert firsts == [1, 31, 61, 91]
    # The rest of the last limit deleted the other task's events.
    assert cleared == [TASK, other]


async def test_a_deleted_task_leaves_nothing(reopenable: Reopenable) -> None:
    await write_ended(reopenable.store, ended_ns=10)
    await reopenable.store.compact({TASK: FOLD})
    await reopenable.store.delete_events([TASK], limit=100)
    await reopenable.store.delete_tasks([TASK, "journal1-unknown"])
    async for store in reopenable.before_and_after_restart():
        assert await find_row(store, TASK) is None
        assert await store.find_fold(TASK) is None
        assert await store.list_ended(99, stage=TaskStage.CLEARED, limit=10) == []
        assert (await store.list_rows(TaskFilter("acme"), limit=10)).total == 0


async def test_a_checkpoint_does_not_change_reads(reopenable: Reopenable) -> None:
    batches = await write_ended(reopenable.store)
    assert await reopenable.store.checkpoint()
    assert not reopenable.store.needs_checkpoint
    async for store in reopenable.before_and_after_restart():
        assert await store.read(TASK, 0, limit_bytes=LIMIT) == batches


async def test_a_journals_age_continues_after_a_restart(reopenable: Reopenable) -> None:
    before_ns = reopenable.store.clock.age_ns()
    time_ns = reopenable.store.clock.time_ns()
    after = (await reopenable.reopen()).clock
    assert after.age_ns() >= before_ns
    assert after.time_ns() >= time_ns


async def test_lists_are_by_status_time_newest_first_and_then_by_id(store: JournalStore) -> None:
    names = ("b1", "c2", "a1", "d0")
    rows = [row(f"journal1-{name}", time_ns=TIME_NS + int(name[1])) for name in names]
    for task_row in rows:
        first = stored([created()], 1, task_id=task_row.task_id)
        await store.commit(group(first, made=[task_row]))
    page = await store.list_rows(TaskFilter("acme"), limit=3)
    assert [task_row.task_id[-2:] for task_row in page.rows] == ["c2", "a1", "b1"]
    assert page.total == 4
    last = page.rows[-1]
    rest = await store.list_rows(
        TaskFilter("acme"), limit=3, after=(last.status_time_ns, last.task_id)
    )
    assert [task_row.task_id[-2:] for task_row in rest.rows] == ["d0"]
    assert rest.total == 4


@pytest.mark.parametrize(
    ("filter_", "result"),
    [
        (TaskFilter("acme"), {"plain", "math", "talk", "done", "late"}),
        (TaskFilter("other"), {"foreign"}),
        (TaskFilter("unknown"), set()),
        (TaskFilter("acme", agent="math"), {"math"}),
        (TaskFilter("acme", context_id="context-2"), {"talk"}),
        (TaskFilter("acme", state=ENDED), {"done"}),
        (TaskFilter("acme", status_after_ns=TIME_NS + 1), {"late"}),
        (TaskFilter("acme", agent="math", context_id="context-2"), set()),
    ],
)
async def test_lists_are_filtered(
    store: JournalStore, filter_: TaskFilter, result: set[str]
) -> None:
    rows = [
        row("plain"),
        row("math", agent="math"),
        row("talk", context_id="context-2"),
        row("done", state=ENDED),
        row("late", time_ns=TIME_NS + 1),
        row("foreign", account="other"),
    ]
    for task_row in rows:
        first = stored([created()], 1, task_id=task_row.task_id)
        await store.commit(group(first, made=[task_row]))
    page = await store.list_rows(filter_, limit=100)
    assert {task_row.task_id for task_row in page.rows} == result
    assert page.total == len(result)


async def test_orphaned_children_are_stored_until_they_are_deleted(reopenable: Reopenable) -> None:
    stray, other = OrphanedChild("c-1", "acme", 1.5), OrphanedChild("c-2", "", 2.5)
    later = replace(stray, until_s=3.5)
    for orphan in (stray, other, later):
        await reopenable.store.add_orphaned_child(orphan)
    async for store in reopenable.before_and_after_restart():
        assert sorted(await store.list_orphaned_children(), key=lambda child: child.task_id) == [
            later,
            other,
        ]
    await reopenable.store.delete_orphaned_child("c-1")
    await reopenable.store.delete_orphaned_child("unknown")
    async for store in reopenable.before_and_after_restart():
        assert await store.list_orphaned_children() == [other]


DAY_NS = 24 * 60 * 60 * 1_000_000_000


async def test_an_alias_refers_to_the_task_it_was_bound_to_last(reopenable: Reopenable) -> None:
    first, other = AliasRecord("acme", "mine", "t-1"), AliasRecord("", "mine", "t-2")
    await reopenable.store.commit(CommitGroup(aliases=[first, other]))
    await reopenable.store.commit(
        CommitGroup(aliases=[replace(first, task_id="t-3", replaces="t-1")])
    )
    async for store in reopenable.before_and_after_restart():
        assert await find_alias(store, "acme", "mine") == "t-3"
        assert await find_alias(store, "", "mine") == "t-2"
        assert await find_alias(store, "acme", "yours") is None


async def test_an_alias_without_a_task_expires_after_a_day(
    reopenable: Reopenable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopenable.store
    made, missing_id = f"{store.id}-made", f"{store.id}-never"
    ids = {"made": made, "never": missing_id, "elsewhere": "another0-task"}
    alias_records = [AliasRecord("", alias, task_id) for alias, task_id in ids.items()]
    await store.commit(CommitGroup(aliases=alias_records))
    await store.commit(group(stored([created()], 1, task_id=made), made=[row(made)]))
    await store.renew_lease(1.0)
    assert {alias for alias in ids if await find_alias(store, "", alias)} == set(ids)
    age_ns = store.clock.age_ns()
    monkeypatch.setattr(store.clock, "age_ns", lambda: age_ns + DAY_NS)
    await store.renew_lease(1.0)
    monkeypatch.undo()
    async for store in reopenable.before_and_after_restart():
        assert {alias for alias in ids if await find_alias(store, "", alias)} == {
            "made",
            "elsewhere",
        }


def webhook(task_id: str, config_id: str, state: int = 2, content: bytes = b"w") -> WebhookRow:
    return WebhookRow(task_id, config_id, state, content)


async def save_webhooks(store: JournalStore, *rows: WebhookRow) -> None:
    await store.commit(CommitGroup(webhooks={webhook_row.key: webhook_row for webhook_row in rows}))


async def test_the_last_version_of_a_webhook_is_stored(reopenable: Reopenable) -> None:
    await save_webhooks(
        reopenable.store, webhook(TASK, "a"), webhook(TASK, "b"), webhook("other", "a")
    )
    changed = webhook(TASK, "a", state=4, content=b"changed")
    await save_webhooks(reopenable.store, changed)
    await reopenable.store.commit(
        CommitGroup(webhooks={("other", "a"): None, ("no", "body"): None})
    )
    async for store in reopenable.before_and_after_restart():
        assert await store.find_webhooks() == [webhook(TASK, "b"), changed]


async def test_webhooks_are_listed_by_task_and_state_newest_first(store: JournalStore) -> None:
    rows = [webhook(TASK, str(number), state=number % 3) for number in range(6)]
    await save_webhooks(store, *rows)
    await save_webhooks(store, webhook("other", "x", state=1))
    assert await store.find_webhooks(task_id=TASK) == rows[::-1]
    assert await store.find_webhooks(task_id=TASK, states=(0, 2)) == [
        rows[at] for at in (5, 3, 2, 0)
    ]
    assert await store.find_webhooks(states=(1,), limit=2) == [
        webhook("other", "x", state=1),
        rows[4],
    ]
    assert await store.find_webhooks(task_id="unknown") == []


async def test_a_deleted_task_is_deleted_with_its_aliases_and_webhooks(
    reopenable: Reopenable,
) -> None:
    other = f"{TASK}-other"
    for task_id in (TASK, other):
        await write_ended(reopenable.store, task_id)
        await save_webhooks(reopenable.store, webhook(task_id, "a"))
        await reopenable.store.commit(
            CommitGroup(aliases=[AliasRecord("", f"for {task_id}", task_id)])
        )
    await reopenable.store.compact({TASK: StoredFold(b"fold", 1, {})})
    assert len(await reopenable.store.find_webhooks()) == 2
    await reopenable.store.delete_tasks([TASK])
    async for store in reopenable.before_and_after_restart():
        assert await store.find_webhooks() == [webhook(other, "a")]
        assert await find_alias(store, "", f"for {TASK}") is None
        assert await find_alias(store, "", f"for {other}") == other


async def test_a_write_after_the_close_says_that_the_store_is_closed(
    reopenable: Reopenable,
) -> None:
    closed = reopenable.store
    await reopenable.reopen()
    for write in (
        closed.commit(group(FIRST, made=[row()])),
        closed.renew_lease(10.0),
        closed.delete_orphaned_child("c-1"),
        closed.checkpoint(),
    ):
        with pytest.raises(JournalUnavailableError):
            await write
