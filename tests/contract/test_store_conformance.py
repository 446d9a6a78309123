"""The conformance suite of journal stores. A store joins by a factory in FACTORIES."""

from collections.abc import Callable, Iterator
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
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite import SqliteStore
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
OpenStore: TypeAlias = Callable[[], JournalStore]


def sqlite_file(folder: Path) -> OpenStore:
    return lambda: SqliteStore.open(folder / "journal.db")


def sqlite_file_full(folder: Path) -> OpenStore:
    return lambda: SqliteStore.open(folder / "journal.db", synchronous="full")


FACTORIES = {"sqlite": sqlite_file, "sqlite, full": sqlite_file_full}


class Reopenable:
    """A store that can be closed and opened again, as after a restart."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open = open_store
        self.store = open_store()

    def reopen(self) -> JournalStore:
        self.store.close()
        self.store = self._open()
        return self.store

    def before_and_after_restart(self) -> Iterator[JournalStore]:
        """Yield the open store, and then the store after a restart."""
        yield self.store
        yield self.reopen()


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
def reopenable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopenable]:
    reopenable_store = Reopenable(request.param(tmp_path))
    yield reopenable_store
    reopenable_store.store.close()


@pytest.fixture
def store(reopenable: Reopenable) -> JournalStore:
    return reopenable.store


FIRST = stored([created()], 1)
SECOND = stored([begin("a", "x", "y")], 2)
THIRD = stored([append("a", "z"), completed()], 4)


def ended(task_id: str = TASK, *, head: int, ended_ns: int = 1) -> TaskRow:
    return replace(row(task_id, state=ENDED, head=head), ended_ns=ended_ns)


def write_ended(store: JournalStore, task_id: str = TASK, *, ended_ns: int = 1) -> list[bytes]:
    """Write an ended task of three commits, and return its batches."""
    batches = [
        stored([created()], 1, task_id=task_id),
        stored([begin("a", "x", "y")], 2, task_id=task_id),
        stored([append("a", "z"), completed()], 4, task_id=task_id),
    ]
    store.commit(group(batches[0], made=[row(task_id)]))
    store.commit(group(batches[1]))
    store.commit(group(batches[2], changed=[ended(task_id, head=5, ended_ns=ended_ns)]))
    return [batch.sealed for batch in batches]


def test_a_task_spread_over_many_commits_is_read_completely(
    reopenable: Reopenable,
) -> None:
    other = f"{TASK}-other"
    batches = [stored([created()], 1), stored([begin("a", "x")], 2)]
    reopenable.store.commit(
        group(*batches, stored([created()], 1, task_id=other), made=[row(), row(other)])
    )
    for number in range(2, 62):
        commit_batches = [stored([append("a", "of the other")], number, task_id=other)]
        if number % 6 == 0:
            # Two batches in one commit, with another task's batch between them.
            at = len(batches) + 1
            batches += [stored([append("a", f"{at}")], at), stored([append("a", "and")], at + 1)]
            commit_batches = [batches[-2], *commit_batches, batches[-1]]
        reopenable.store.commit(group(*commit_batches))
    batches.append(stored([completed()], len(batches) + 1))
    last = ended(head=len(batches))
    reopenable.store.commit(group(batches[-1], changed=[last]))
    written = [batch.sealed for batch in batches]
    for store in reopenable.before_and_after_restart():
        assert store.read(TASK, 0, limit_bytes=2**30) == written
        assert store.read(TASK, 7, limit_bytes=0) == written[7:8]


def test_committed_batches_are_read_unchanged(store: JournalStore) -> None:
    store.commit(group(FIRST, SECOND, made=[row()]))
    store.commit(group(THIRD))
    assert store.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed, SECOND.sealed, THIRD.sealed]


@pytest.mark.parametrize(
    ("after", "expected_count"), [(0, 3), (1, 2), (2, 2), (3, 1), (4, 1), (5, 0)]
)
def test_reading_begins_with_the_batch_that_ends_after_the_cursor(
    reopenable: Reopenable, after: int, expected_count: int
) -> None:
    batches = write_ended(reopenable.store)
    expected = batches[3 - expected_count :]
    assert reopenable.store.read(TASK, after, limit_bytes=LIMIT) == expected
    assert reopenable.reopen().read(TASK, after, limit_bytes=LIMIT) == expected


def test_reading_respects_the_limit_but_returns_at_least_one_batch(reopenable: Reopenable) -> None:
    first, second, _ = write_ended(reopenable.store)
    for store in reopenable.before_and_after_restart():
        assert store.read(TASK, 0, limit_bytes=1) == [first]
        both_bytes = len(first) + len(second)
        assert store.read(TASK, 0, limit_bytes=both_bytes) == [first, second]
        assert store.read(TASK, 0, limit_bytes=both_bytes - 1) == [first]


def test_tasks_of_one_commit_are_read_separately(reopenable: Reopenable) -> None:
    other = f"{TASK}-other"
    other_batch = stored([created("b")], 1, task_id=other)
    reopenable.store.commit(group(FIRST, other_batch, SECOND, made=[row(), row(other)]))
    for store in reopenable.before_and_after_restart():
        assert store.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed, SECOND.sealed]
        assert store.read(other, 0, limit_bytes=LIMIT) == [other_batch.sealed]


def test_an_unknown_task_has_no_batches_and_no_row(store: JournalStore) -> None:
    assert store.read("journal1-unknown", 0, limit_bytes=LIMIT) == []
    assert store.find_row("journal1-unknown") is None


def test_a_row_is_found_with_its_latest_head(reopenable: Reopenable) -> None:
    reopenable.store.commit(group(FIRST, made=[row()]))
    reopenable.store.commit(group(SECOND))
    assert reopenable.store.find_row(TASK) == row(head=3)
    assert reopenable.reopen().find_row(TASK) == row(head=3)


def test_a_changed_row_replaces_state_time_and_metadata(reopenable: Reopenable) -> None:
    reopenable.store.commit(group(FIRST, made=[row()]))
    changed = replace(
        row(state=task_pb2.TASK_STATE_WORKING, head=2),
        status_time_ns=TIME_NS + 5,
        metadata=b"\x0a\x00",
    )
    reopenable.store.commit(group(stored([working()], 2), changed=[changed]))
    assert reopenable.store.find_row(TASK) == changed
    assert reopenable.reopen().find_row(TASK) == changed


def test_a_group_is_written_atomically(reopenable: Reopenable) -> None:
    store = reopenable.store
    store.commit(group(FIRST, made=[row()]))
    other = f"{TASK}-other"
    other_batch = stored([created()], 1, task_id=other)
    with pytest.raises(JournalUnavailableError):
        # The second row exists already.
        store.commit(group(other_batch, SECOND, made=[row(other), row()]))
    for result in reopenable.before_and_after_restart():
        assert result.find_row(other) is None
        assert result.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed]
    reopenable.store.commit(group(SECOND))
    assert reopenable.store.read(TASK, 1, limit_bytes=LIMIT) == [SECOND.sealed]


def test_keys_are_found_until_they_expire(reopenable: Reopenable) -> None:
    record = SubmissionKey("key", "hash", TASK, TIME_NS + 10)
    reopenable.store.commit(CommitGroup([FIRST], {TASK: row()}, {}, [record]))
    for store in reopenable.before_and_after_restart():
        assert store.find_key("key", now_ns=TIME_NS + 9) == record
        assert store.find_key("key", now_ns=TIME_NS + 10) is None
        assert store.find_key("other", now_ns=TIME_NS) is None


def test_a_key_that_expired_can_be_used_again(store: JournalStore) -> None:
    store.commit(
        CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, TIME_NS)])
    )
    other = f"{TASK}-other"
    renewed = SubmissionKey("key", "h2", other, TIME_NS + 20)
    other_batch = stored([created()], 1, task_id=other)
    store.commit(CommitGroup([other_batch], {other: row(other)}, {}, [renewed]))
    assert store.find_key("key", now_ns=TIME_NS + 10) == renewed


def test_renewing_the_lease_deletes_expired_keys(store: JournalStore) -> None:
    store.commit(CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, 1)]))
    assert store.find_key("key", now_ns=0) is not None
    store.renew_lease(60.0)
    assert store.find_key("key", now_ns=0) is None


def test_unfinished_tasks_are_those_that_have_not_ended(reopenable: Reopenable) -> None:
    write_ended(reopenable.store)
    young, old = row("journal1-young", time_ns=TIME_NS + 2), row("journal1-old")
    for task_row in (young, old):
        first = stored([created()], 1, task_id=task_row.task_id)
        reopenable.store.commit(group(first, made=[task_row]))
    for store in reopenable.before_and_after_restart():
        assert store.list_unfinished() == [old, young]


def test_tasks_of_the_same_commits_end_separately(reopenable: Reopenable) -> None:
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
        reopenable.store.commit(group(live_batch, other, made=made, changed=changed))
    for store in reopenable.before_and_after_restart():
        assert store.read(live, 0, limit_bytes=LIMIT) == [batch.sealed for batch in live_batches]
        assert store.read(TASK, 0, limit_bytes=LIMIT) == [batch.sealed for batch in other_batch]
        assert [task_row.task_id for task_row in store.list_unfinished()] == [live]


def test_more_tasks_than_one_statement_takes_are_written_in_one_commit(
    reopenable: Reopenable,
) -> None:
    names = [f"journal1-{number:03}" for number in range(200)]
    firsts = [stored([created()], 1, task_id=name) for name in names]
    reopenable.store.commit(group(*firsts, made=[row(name) for name in names]))
    seconds = [stored([working()], 2, task_id=name) for name in names]
    reopenable.store.commit(group(*seconds))
    for store in reopenable.before_and_after_restart():
        for first, second in zip(firsts, seconds, strict=True):
            written = [first.sealed, second.sealed]
            assert store.read(first.task_id, 0, limit_bytes=LIMIT) == written


FOLD = StoredFold(b"the fold", epoch=3, forwarded={"child": 7})


def test_tasks_that_ended_long_ago_are_found_oldest_first(reopenable: Reopenable) -> None:
    for name, ended_ns in (("journal1-b", 20), ("journal1-a", 10), ("journal1-c", 30)):
        write_ended(reopenable.store, name, ended_ns=ended_ns)
    live = "journal1-live"
    reopenable.store.commit(group(stored([created()], 1, task_id=live), made=[row(live)]))
    for store in reopenable.before_and_after_restart():
        result = store.list_ended(20, stage=TaskStage.READABLE, limit=10)
        assert [task_row.task_id[-1] for task_row in result] == ["a", "b"]
        result = store.list_ended(99, stage=TaskStage.READABLE, limit=2)
        assert [task_row.task_id[-1] for task_row in result] == ["a", "b"]
        assert store.list_ended(9, stage=TaskStage.READABLE, limit=10) == []
        assert store.list_ended(99, stage=TaskStage.COMPACTED, limit=10) == []


def test_a_compacted_task_has_a_fold_in_place_of_its_events(reopenable: Reopenable) -> None:
    write_ended(reopenable.store, ended_ns=10)
    other = f"{TASK}-other"
    write_ended(reopenable.store, other, ended_ns=11)
    expected = reopenable.store.read(other, 0, limit_bytes=LIMIT)
    assert reopenable.store.find_fold(TASK) is None
    reopenable.store.compact({TASK: FOLD})
    for store in reopenable.before_and_after_restart():
        assert store.find_fold(TASK) == FOLD
        result = store.find_row(TASK)
        assert result is not None
        assert (result.head, result.first_available, result.state) == (5, 6, ENDED)
        compacted = store.list_ended(99, stage=TaskStage.COMPACTED, limit=10)
        assert [task_row.task_id for task_row in compacted] == [TASK]
    assert reopenable.store.delete_events([TASK], limit=100) == [TASK]
    for store in reopenable.before_and_after_restart():
        assert store.read(TASK, 0, limit_bytes=LIMIT) == []
        assert store.find_fold(TASK) == FOLD
        assert store.read(other, 0, limit_bytes=LIMIT) == expected
        cleared = store.list_ended(99, stage=TaskStage.CLEARED, limit=10)
        assert [task_row.task_id for task_row in cleared] == [TASK]


def test_the_first_events_of_a_compacted_task_are_deleted_first(reopenable: Reopenable) -> None:
    other = f"{TASK}-other"
    write_ended(reopenable.store, other, ended_ns=10)
    batches = [FIRST, *(stored([append("a", "x")], sequence) for sequence in range(2, 100))]
    batches.append(stored([completed()], 100))
    reopenable.store.commit(group(*batches, made=[row()], changed=[ended(head=100)]))
    reopenable.store.compact({TASK: FOLD, other: FOLD})
    firsts = []
    cleared: list[str] = []
    while remaining := reopenable.store.read(TASK, 0, limit_bytes=2**30):
        firsts.append(parse_header(remaining[0]).first_sequence)
        assert remaining == [batch.sealed for batch in batches[firsts[-1] - 1 :]]
        task_ids = [name for name in (TASK, other) if name not in cleared]
        cleared += reopenable.store.delete_events(task_ids, limit=30)
        reopenable.reopen()
    assert firsts == [1, 31, 61, 91]
    # The rest of the last limit deleted the other task's events.
    assert cleared == [TASK, other]


def test_a_deleted_task_leaves_nothing(reopenable: Reopenable) -> None:
    write_ended(reopenable.store, ended_ns=10)
    reopenable.store.compact({TASK: FOLD})
    reopenable.store.delete_events([TASK], limit=100)
    reopenable.store.delete_tasks([TASK, "journal1-unknown"])
    for store in reopenable.before_and_after_restart():
        assert store.find_row(TASK) is None
        assert store.find_fold(TASK) is None
        assert store.list_ended(99, stage=TaskStage.CLEARED, limit=10) == []
        assert store.list_rows(TaskFilter("acme"), limit=10).total == 0


def test_a_checkpoint_does_not_change_reads(reopenable: Reopenable) -> None:
    batches = write_ended(reopenable.store)
    assert reopenable.store.checkpoint()
    assert not reopenable.store.needs_checkpoint
    for store in reopenable.before_and_after_restart():
        assert store.read(TASK, 0, limit_bytes=LIMIT) == batches


def test_a_journals_age_continues_after_a_restart(reopenable: Reopenable) -> None:
    before_ns = reopenable.store.clock.age_ns()
    time_ns = reopenable.store.clock.time_ns()
    after = reopenable.reopen().clock
    assert after.age_ns() >= before_ns
    assert after.time_ns() >= time_ns


def test_lists_are_by_status_time_newest_first_and_then_by_id(store: JournalStore) -> None:
    names = ("b1", "c2", "a1", "d0")
    rows = [row(f"journal1-{name}", time_ns=TIME_NS + int(name[1])) for name in names]
    for task_row in rows:
        first = stored([created()], 1, task_id=task_row.task_id)
        store.commit(group(first, made=[task_row]))
    page = store.list_rows(TaskFilter("acme"), limit=3)
    assert [task_row.task_id[-2:] for task_row in page.rows] == ["c2", "a1", "b1"]
    assert page.total == 4
    last = page.rows[-1]
    rest = store.list_rows(TaskFilter("acme"), limit=3, after=(last.status_time_ns, last.task_id))
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
def test_lists_are_filtered(store: JournalStore, filter_: TaskFilter, result: set[str]) -> None:
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
        store.commit(group(first, made=[task_row]))
    page = store.list_rows(filter_, limit=100)
    assert {task_row.task_id for task_row in page.rows} == result
    assert page.total == len(result)


def test_a_store_keeps_its_id_and_after_a_clean_shutdown_its_epoch(reopenable: Reopenable) -> None:
    before = (reopenable.store.id, reopenable.store.epoch)
    after = reopenable.reopen()
    assert (after.id, after.epoch) == before
    assert len(after.id) == 8


def test_orphaned_children_are_stored_until_they_are_deleted(reopenable: Reopenable) -> None:
    stray, other = OrphanedChild("c-1", "acme", 1.5), OrphanedChild("c-2", "", 2.5)
    later = replace(stray, until_s=3.5)
    for orphan in (stray, other, later):
        reopenable.store.add_orphaned_child(orphan)
    for store in reopenable.before_and_after_restart():
        assert sorted(store.list_orphaned_children(), key=lambda child: child.task_id) == [
            later,
            other,
        ]
    reopenable.store.delete_orphaned_child("c-1")
    reopenable.store.delete_orphaned_child("unknown")
    for store in reopenable.before_and_after_restart():
        assert store.list_orphaned_children() == [other]


DAY_NS = 24 * 60 * 60 * 1_000_000_000


def test_an_alias_refers_to_the_task_it_was_bound_to_last(reopenable: Reopenable) -> None:
    first, other = AliasRecord("acme", "mine", "t-1"), AliasRecord("", "mine", "t-2")
    reopenable.store.commit(CommitGroup(aliases=[first, other]))
    reopenable.store.commit(CommitGroup(aliases=[replace(first, task_id="t-3")]))
    for store in reopenable.before_and_after_restart():
        assert store.find_alias("acme", "mine") == "t-3"
        assert store.find_alias("", "mine") == "t-2"
        assert store.find_alias("acme", "yours") is None


def test_an_alias_without_a_task_expires_after_a_day(
    reopenable: Reopenable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopenable.store
    made, missing_id = f"{store.id}-made", f"{store.id}-never"
    ids = {"made": made, "never": missing_id, "elsewhere": "another0-task"}
    alias_records = [AliasRecord("", alias, task_id) for alias, task_id in ids.items()]
    store.commit(CommitGroup(aliases=alias_records))
    store.commit(group(stored([created()], 1, task_id=made), made=[row(made)]))
    store.renew_lease(1.0)
    assert {alias for alias in ids if store.find_alias("", alias)} == set(ids)
    age_ns = store.clock.age_ns()
    monkeypatch.setattr(store.clock, "age_ns", lambda: age_ns + DAY_NS)
    store.renew_lease(1.0)
    monkeypatch.undo()
    for store in reopenable.before_and_after_restart():
        assert {alias for alias in ids if store.find_alias("", alias)} == {"made", "elsewhere"}


def webhook(task_id: str, config_id: str, state: int = 2, content: bytes = b"w") -> WebhookRow:
    return WebhookRow(task_id, config_id, state, content)


def save_webhooks(store: JournalStore, *rows: WebhookRow) -> None:
    store.commit(CommitGroup(webhooks={webhook_row.key: webhook_row for webhook_row in rows}))


def test_the_last_version_of_a_webhook_is_stored(reopenable: Reopenable) -> None:
    save_webhooks(reopenable.store, webhook(TASK, "a"), webhook(TASK, "b"), webhook("other", "a"))
    changed = webhook(TASK, "a", state=4, content=b"changed")
    save_webhooks(reopenable.store, changed)
    reopenable.store.commit(CommitGroup(webhooks={("other", "a"): None, ("no", "body"): None}))
    for store in reopenable.before_and_after_restart():
        assert store.find_webhooks() == [webhook(TASK, "b"), changed]


def test_webhooks_are_listed_by_task_and_state_newest_first(store: JournalStore) -> None:
    rows = [webhook(TASK, str(number), state=number % 3) for number in range(6)]
    save_webhooks(store, *rows)
    save_webhooks(store, webhook("other", "x", state=1))
    assert store.find_webhooks(task_id=TASK) == rows[::-1]
    assert store.find_webhooks(task_id=TASK, states=(0, 2)) == [rows[at] for at in (5, 3, 2, 0)]
    assert store.find_webhooks(states=(1,), limit=2) == [webhook("other", "x", state=1), rows[4]]
    assert store.find_webhooks(task_id="unknown") == []


def test_a_task_and_its_webhook_are_written_together(reopenable: Reopenable) -> None:
    commit_group = group(FIRST, made=[row()])
    commit_group.webhooks[TASK, "a"] = webhook(TASK, "a")
    reopenable.store.commit(commit_group)
    for store in reopenable.before_and_after_restart():
        assert store.find_row(TASK) is not None
        assert store.find_webhooks() == [webhook(TASK, "a")]


def test_a_deleted_task_is_deleted_with_its_aliases_and_webhooks(reopenable: Reopenable) -> None:
    other = f"{TASK}-other"
    for task_id in (TASK, other):
        write_ended(reopenable.store, task_id)
        save_webhooks(reopenable.store, webhook(task_id, "a"))
        reopenable.store.commit(CommitGroup(aliases=[AliasRecord("", f"for {task_id}", task_id)]))
    reopenable.store.compact({TASK: StoredFold(b"fold", 1, {})})
    assert len(reopenable.store.find_webhooks()) == 2
    reopenable.store.delete_tasks([TASK])
    for store in reopenable.before_and_after_restart():
        assert store.find_webhooks() == [webhook(other, "a")]
        assert store.find_alias("", f"for {TASK}") is None
        assert store.find_alias("", f"for {other}") == other
