"""What every store owes the journal. A store joins by a factory in FACTORIES."""

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
    WebhookRow,
)
from trunkline.v1 import task_pb2

LIMIT = 64 * 1024
ENDED = task_pb2.TASK_STATE_COMPLETED

# Opens the same store each time it is called; the one before is closed by then.
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
        self.now = open_store()

    def again(self) -> JournalStore:
        self.now.close()
        self.now = self._open()
        return self.now

    def lives(self) -> Iterator[JournalStore]:
        """The store as it is, and then as it is after a restart."""
        yield self.now
        yield self.again()

    def settled(self) -> JournalStore:
        while self.now.has_backlog():
            self.now.settle(budget_bytes=1)
        return self.now


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
def reopenable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopenable]:
    one = Reopenable(request.param(tmp_path))
    yield one
    one.now.close()


@pytest.fixture
def store(reopenable: Reopenable) -> JournalStore:
    return reopenable.now


FIRST = stored([created()], 1)
SECOND = stored([begin("a", "x", "y")], 2)
THIRD = stored([append("a", "z"), completed()], 4)


def write_ended(store: JournalStore, task_id: str = TASK, *, ended_ns: int = 0) -> list[bytes]:
    """Write a task of three commits that has ended, and return its batches."""
    batches = [
        stored([created()], 1, task_id=task_id),
        stored([begin("a", "x", "y")], 2, task_id=task_id),
        stored([append("a", "z"), completed()], 4, task_id=task_id),
    ]
    store.commit(group(batches[0], made=[row(task_id)]))
    store.commit(group(batches[1]))
    last = replace(row(task_id, state=ENDED, head=5), ended_ns=ended_ns)
    store.commit(group(batches[2], changed=[last]))
    return [one.sealed for one in batches]


def test_a_task_that_is_thinly_spread_over_commits_is_read_and_settled_whole(
    reopenable: Reopenable,
) -> None:
    other = f"{TASK}-other"
    batches = [stored([created()], 1), stored([begin("a", "x")], 2)]
    reopenable.now.commit(
        group(*batches, stored([created()], 1, task_id=other), made=[row(), row(other)])
    )
    for number in range(2, 62):
        told = [stored([append("a", "of the other")], number, task_id=other)]
        if number % 6 == 0:
            # Two in one commit, with something between them.
            at = len(batches) + 1
            batches += [stored([append("a", f"{at}")], at), stored([append("a", "and")], at + 1)]
            told = [batches[-2], *told, batches[-1]]
        reopenable.now.commit(group(*told))
    batches.append(stored([completed()], len(batches) + 1))
    last = row(state=ENDED, head=len(batches))
    reopenable.now.commit(group(batches[-1], changed=[last]))
    written = [one.sealed for one in batches]
    for store in reopenable.lives():
        assert store.read(TASK, 0, limit_bytes=2**30) == written
        assert store.read(TASK, 7, limit_bytes=0) == written[7:8]
    reopenable.settled()
    for store in reopenable.lives():
        assert store.read(TASK, 0, limit_bytes=2**30) == written


def test_what_is_committed_is_read_as_it_was_written(store: JournalStore) -> None:
    store.commit(group(FIRST, SECOND, made=[row()]))
    store.commit(group(THIRD))
    assert store.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed, SECOND.sealed, THIRD.sealed]


@pytest.mark.parametrize(("after", "left"), [(0, 3), (1, 2), (2, 2), (3, 1), (4, 1), (5, 0)])
def test_reading_begins_with_the_batch_that_ends_behind_the_cursor(
    reopenable: Reopenable, after: int, left: int
) -> None:
    batches = write_ended(reopenable.now)
    expected = batches[3 - left :]
    assert reopenable.now.read(TASK, after, limit_bytes=LIMIT) == expected
    assert reopenable.again().read(TASK, after, limit_bytes=LIMIT) == expected
    assert reopenable.settled().read(TASK, after, limit_bytes=LIMIT) == expected
    assert reopenable.again().read(TASK, after, limit_bytes=LIMIT) == expected


def test_reading_keeps_to_the_limit_but_gives_one_batch_at_least(reopenable: Reopenable) -> None:
    first, second, _ = write_ended(reopenable.now)
    for store in (reopenable.now, reopenable.settled()):
        assert store.read(TASK, 0, limit_bytes=1) == [first]
        both = len(first) + len(second)
        assert store.read(TASK, 0, limit_bytes=both) == [first, second]
        assert store.read(TASK, 0, limit_bytes=both - 1) == [first]


def test_tasks_of_one_commit_are_read_apart(reopenable: Reopenable) -> None:
    other = f"{TASK}-other"
    theirs = stored([created("b")], 1, task_id=other)
    reopenable.now.commit(group(FIRST, theirs, SECOND, made=[row(), row(other)]))
    for store in reopenable.lives():
        assert store.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed, SECOND.sealed]
        assert store.read(other, 0, limit_bytes=LIMIT) == [theirs.sealed]


def test_nothing_is_read_of_a_task_that_is_not_there(store: JournalStore) -> None:
    assert store.read("journal1-nobody", 0, limit_bytes=LIMIT) == []
    assert store.find_row("journal1-nobody") is None


def test_a_row_is_found_with_its_latest_head(reopenable: Reopenable) -> None:
    reopenable.now.commit(group(FIRST, made=[row()]))
    reopenable.now.commit(group(SECOND))
    assert reopenable.now.find_row(TASK) == row(head=3)
    assert reopenable.again().find_row(TASK) == row(head=3)


def test_a_changed_row_replaces_state_time_and_metadata(reopenable: Reopenable) -> None:
    reopenable.now.commit(group(FIRST, made=[row()]))
    changed = replace(
        row(state=task_pb2.TASK_STATE_WORKING, head=2),
        status_time_ns=TIME_NS + 5,
        metadata=b"\x0a\x00",
    )
    reopenable.now.commit(group(stored([working()], 2), changed=[changed]))
    assert reopenable.now.find_row(TASK) == changed
    assert reopenable.again().find_row(TASK) == changed


def test_a_group_is_written_as_a_whole_or_not_at_all(reopenable: Reopenable) -> None:
    store = reopenable.now
    store.commit(group(FIRST, made=[row()]))
    other = f"{TASK}-other"
    theirs = stored([created()], 1, task_id=other)
    with pytest.raises(JournalUnavailableError):
        # The second row is there already.
        store.commit(group(theirs, SECOND, made=[row(other), row()]))
    for found in reopenable.lives():
        assert found.find_row(other) is None
        assert found.read(TASK, 0, limit_bytes=LIMIT) == [FIRST.sealed]
    reopenable.now.commit(group(SECOND))
    assert reopenable.now.read(TASK, 1, limit_bytes=LIMIT) == [SECOND.sealed]


def test_keys_are_found_until_they_expire(reopenable: Reopenable) -> None:
    record = SubmissionKey("key", "hash", TASK, TIME_NS + 10)
    reopenable.now.commit(CommitGroup([FIRST], {TASK: row()}, {}, [record]))
    for store in reopenable.lives():
        assert store.find_key("key", now_ns=TIME_NS + 9) == record
        assert store.find_key("key", now_ns=TIME_NS + 10) is None
        assert store.find_key("other", now_ns=TIME_NS) is None


def test_a_key_that_expired_can_be_used_again(store: JournalStore) -> None:
    store.commit(
        CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, TIME_NS)])
    )
    other = f"{TASK}-other"
    renewed = SubmissionKey("key", "h2", other, TIME_NS + 20)
    theirs = stored([created()], 1, task_id=other)
    store.commit(CommitGroup([theirs], {other: row(other)}, {}, [renewed]))
    assert store.find_key("key", now_ns=TIME_NS + 10) == renewed


def test_renewing_the_lease_forgets_keys_that_expired_long_ago(store: JournalStore) -> None:
    store.commit(CommitGroup([FIRST], {TASK: row()}, {}, [SubmissionKey("key", "h", TASK, 1)]))
    assert store.find_key("key", now_ns=0) is not None
    store.renew_lease(60.0)
    assert store.find_key("key", now_ns=0) is None


def test_unfinished_tasks_are_those_that_have_not_ended(reopenable: Reopenable) -> None:
    write_ended(reopenable.now)
    young, old = row("journal1-young", time_ns=TIME_NS + 2), row("journal1-old")
    for one in (young, old):
        first = stored([created()], 1, task_id=one.task_id)
        reopenable.now.commit(group(first, made=[one]))
    for store in reopenable.lives():
        assert store.list_unfinished() == [old, young]


def test_settling_leaves_nothing_to_settle_and_changes_nothing(reopenable: Reopenable) -> None:
    batches = write_ended(reopenable.now)
    live = "journal1-live"
    reopenable.now.commit(group(stored([created()], 1, task_id=live), made=[row(live)]))
    assert reopenable.now.has_backlog()
    reopenable.settled()
    for store in reopenable.lives():
        assert not store.has_backlog()
        assert store.read(TASK, 0, limit_bytes=LIMIT) == batches
        assert store.find_row(TASK) == row(state=ENDED, head=5)
        assert len(store.read(live, 0, limit_bytes=LIMIT)) == 1


def test_settling_leaves_alone_what_others_wrote_in_the_same_commits(
    reopenable: Reopenable,
) -> None:
    live = "journal1-live"
    ours = [
        stored([created()], 1, task_id=live),
        stored([begin("a", "x")], 2, task_id=live),
        stored([working()], 3, task_id=live),
    ]
    theirs = (FIRST, SECOND, THIRD)
    for one, other in zip(ours, theirs, strict=True):
        made = [row(live), row()] if one is ours[0] else []
        changed = [row(state=ENDED, head=5)] if one is ours[2] else []
        reopenable.now.commit(group(one, other, made=made, changed=changed))
    reopenable.settled()
    for store in reopenable.lives():
        assert store.read(live, 0, limit_bytes=LIMIT) == [one.sealed for one in ours]
        assert store.read(TASK, 0, limit_bytes=LIMIT) == [one.sealed for one in theirs]


def test_settling_goes_on_after_a_restart(reopenable: Reopenable) -> None:
    write_ended(reopenable.now)
    assert reopenable.again().has_backlog()
    assert not reopenable.settled().has_backlog()


def test_settling_may_be_cut_short_anywhere(reopenable: Reopenable) -> None:
    batches = {name: write_ended(reopenable.now, name) for name in ("journal1-a", "journal1-b")}
    steps = 0
    while reopenable.now.has_backlog():
        reopenable.now.settle(budget_bytes=1)
        steps += 1
        reopenable.again()
        for name, expected in batches.items():
            assert reopenable.now.read(name, 0, limit_bytes=LIMIT) == expected
    assert steps > 1


def test_a_long_task_is_settled_in_bites(reopenable: Reopenable) -> None:
    text = "x" * 10_000
    batches = [FIRST, stored([begin("a", text)], 2)]
    batches += [stored([append("a", text)], sequence) for sequence in range(3, 40)]
    batches.append(stored([completed()], 40))
    for one in batches:
        made = [row()] if one is FIRST else []
        changed = [row(state=ENDED, head=40)] if one is batches[-1] else []
        reopenable.now.commit(group(one, made=made, changed=changed))
    expected = [one.sealed for one in batches]
    reopenable.now.settle(budget_bytes=100_000)
    assert reopenable.now.has_backlog()
    big = 2**30
    assert reopenable.now.read(TASK, 0, limit_bytes=big) == expected
    assert reopenable.settled().read(TASK, 0, limit_bytes=big) == expected
    assert reopenable.now.read(TASK, 20, limit_bytes=big) == expected[20:]
    assert reopenable.again().read(TASK, 20, limit_bytes=25_000) == expected[20:22]


FOLD = StoredFold(b"what is left", epoch=3, forwarded={"child": 7})


def write_settled(reopenable: Reopenable, task_id: str, *, ended_ns: int) -> None:
    """Write a task that ended then, and settle it."""
    write_ended(reopenable.now, task_id, ended_ns=ended_ns)
    reopenable.settled()


def test_tasks_that_ended_long_ago_are_found_oldest_first(reopenable: Reopenable) -> None:
    for name, ended_ns in (("journal1-b", 20), ("journal1-a", 10), ("journal1-c", 30)):
        write_settled(reopenable, name, ended_ns=ended_ns)
    live = "journal1-live"
    reopenable.now.commit(group(stored([created()], 1, task_id=live), made=[row(live)]))
    for store in reopenable.lives():
        found = store.list_ended(20, is_compacted=False, limit=10)
        assert [one.task_id[-1] for one in found] == ["a", "b"]
        found = store.list_ended(99, is_compacted=False, limit=2)
        assert [one.task_id[-1] for one in found] == ["a", "b"]
        assert store.list_ended(9, is_compacted=False, limit=10) == []
        assert store.list_ended(99, is_compacted=True, limit=10) == []


def test_a_compacted_task_has_a_fold_in_place_of_its_events(reopenable: Reopenable) -> None:
    write_settled(reopenable, TASK, ended_ns=10)
    other = f"{TASK}-other"
    write_settled(reopenable, other, ended_ns=11)
    expected = reopenable.now.read(other, 0, limit_bytes=LIMIT)
    assert reopenable.now.find_fold(TASK) is None
    reopenable.now.compact({TASK: FOLD})
    for store in reopenable.lives():
        assert store.find_fold(TASK) == FOLD
        found = store.find_row(TASK)
        assert found is not None
        assert (found.head, found.first_available, found.state) == (5, 6, ENDED)
        assert store.has_backlog()
    reopenable.settled()
    for store in reopenable.lives():
        assert not store.has_backlog()
        assert store.read(TASK, 0, limit_bytes=LIMIT) == []
        assert store.find_fold(TASK) == FOLD
        assert store.read(other, 0, limit_bytes=LIMIT) == expected
        compacted = store.list_ended(99, is_compacted=True, limit=10)
        assert [one.task_id for one in compacted] == [TASK]


def test_the_first_events_of_a_compacted_task_go_first(reopenable: Reopenable) -> None:
    text = "x" * 10_000
    batches = [FIRST, stored([begin("a", text)], 2)]
    batches += [stored([append("a", text)], sequence) for sequence in range(3, 100)]
    batches.append(stored([completed()], 100))
    for one in batches:
        made = [row()] if one is FIRST else []
        changed = [row(state=ENDED, head=100)] if one is batches[-1] else []
        reopenable.now.commit(group(one, made=made, changed=changed))
    reopenable.settled()
    reopenable.now.compact({TASK: FOLD})
    firsts = []
    while reopenable.now.has_backlog():
        left = reopenable.now.read(TASK, 0, limit_bytes=2**30)
        firsts.append(parse_header(left[0]).first_sequence)
        assert left == [one.sealed for one in batches[firsts[-1] - 1 :]]
        reopenable.now.settle(budget_bytes=1)
    assert firsts == sorted(firsts)
    assert len(set(firsts)) > 1


def test_nothing_is_left_of_a_task_that_is_forgotten(reopenable: Reopenable) -> None:
    write_settled(reopenable, TASK, ended_ns=10)
    reopenable.now.compact({TASK: FOLD})
    reopenable.settled()
    reopenable.now.delete_tasks([TASK, "journal1-nobody"])
    for store in reopenable.lives():
        assert store.find_row(TASK) is None
        assert store.find_fold(TASK) is None
        assert store.list_ended(99, is_compacted=True, limit=10) == []
        assert store.list_rows(TaskFilter("acme"), limit=10).total == 0


def test_a_log_is_shortened_without_a_change_to_what_is_read(reopenable: Reopenable) -> None:
    batches = write_ended(reopenable.now)
    assert reopenable.now.checkpoint()
    assert not reopenable.now.needs_checkpoint
    for store in reopenable.lives():
        assert store.read(TASK, 0, limit_bytes=LIMIT) == batches


def test_a_journals_age_goes_on_after_a_restart(reopenable: Reopenable) -> None:
    before_ns = reopenable.now.clock.age_ns()
    time_ns = reopenable.now.clock.time_ns()
    after = reopenable.again().clock
    assert after.age_ns() >= before_ns
    assert after.time_ns() >= time_ns


def test_lists_are_by_status_time_newest_first_and_then_by_id(store: JournalStore) -> None:
    names = ("b1", "c2", "a1", "d0")
    rows = [row(f"journal1-{name}", time_ns=TIME_NS + int(name[1])) for name in names]
    for one in rows:
        first = stored([created()], 1, task_id=one.task_id)
        store.commit(group(first, made=[one]))
    page = store.list_rows(TaskFilter("acme"), limit=3)
    assert [one.task_id[-2:] for one in page.rows] == ["c2", "a1", "b1"]
    assert page.total == 4
    last = page.rows[-1]
    rest = store.list_rows(TaskFilter("acme"), limit=3, after=(last.status_time_ns, last.task_id))
    assert [one.task_id[-2:] for one in rest.rows] == ["d0"]
    assert rest.total == 4


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (TaskFilter("acme"), {"plain", "math", "talk", "done", "late"}),
        (TaskFilter("other"), {"foreign"}),
        (TaskFilter("nobody"), set()),
        (TaskFilter("acme", agent="math"), {"math"}),
        (TaskFilter("acme", context_id="context-2"), {"talk"}),
        (TaskFilter("acme", state=ENDED), {"done"}),
        (TaskFilter("acme", status_after_ns=TIME_NS + 1), {"late"}),
        (TaskFilter("acme", agent="math", context_id="context-2"), set()),
    ],
)
def test_lists_show_what_is_asked_for(
    store: JournalStore, wanted: TaskFilter, found: set[str]
) -> None:
    rows = [
        row("plain"),
        row("math", agent="math"),
        row("talk", context_id="context-2"),
        row("done", state=ENDED),
        row("late", time_ns=TIME_NS + 1),
        row("foreign", account="other"),
    ]
    for one in rows:
        first = stored([created()], 1, task_id=one.task_id)
        store.commit(group(first, made=[one]))
    page = store.list_rows(wanted, limit=100)
    assert {one.task_id for one in page.rows} == found
    assert page.total == len(found)


def test_a_store_keeps_its_id_and_after_a_clean_end_its_epoch(reopenable: Reopenable) -> None:
    before = (reopenable.now.id, reopenable.now.epoch)
    after = reopenable.again()
    assert (after.id, after.epoch) == before
    assert len(after.id) == 8


def test_strays_are_kept_until_they_are_dropped(reopenable: Reopenable) -> None:
    stray, other = OrphanedChild("c-1", "acme", 1.5), OrphanedChild("c-2", "", 2.5)
    later = replace(stray, until_s=3.5)
    for one in (stray, other, later):
        reopenable.now.add_orphaned_child(one)
    for store in reopenable.lives():
        assert sorted(store.list_orphaned_children(), key=lambda kept: kept.task_id) == [
            later,
            other,
        ]
    reopenable.now.delete_orphaned_child("c-1")
    reopenable.now.delete_orphaned_child("never kept")
    for store in reopenable.lives():
        assert store.list_orphaned_children() == [other]


DAY_NS = 24 * 60 * 60 * 1_000_000_000


def test_an_alias_stands_for_the_task_it_was_bound_to_last(reopenable: Reopenable) -> None:
    first, other = AliasRecord("acme", "mine", "t-1"), AliasRecord("", "mine", "t-2")
    reopenable.now.commit(CommitGroup(aliases=[first, other]))
    reopenable.now.commit(CommitGroup(aliases=[replace(first, task_id="t-3")]))
    for store in reopenable.lives():
        assert store.find_alias("acme", "mine") == "t-3"
        assert store.find_alias("", "mine") == "t-2"
        assert store.find_alias("acme", "yours") is None


def test_an_alias_whose_task_never_came_goes_after_a_day(
    reopenable: Reopenable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopenable.now
    made, never = f"{store.id}-made", f"{store.id}-never"
    ids = {"made": made, "never": never, "elsewhere": "another0-task"}
    bound = [AliasRecord("", alias, task_id) for alias, task_id in ids.items()]
    store.commit(CommitGroup(aliases=bound))
    store.commit(group(stored([created()], 1, task_id=made), made=[row(made)]))
    store.renew_lease(1.0)
    assert {alias for alias in ids if store.find_alias("", alias)} == set(ids)
    age_ns = store.clock.age_ns()
    monkeypatch.setattr(store.clock, "age_ns", lambda: age_ns + DAY_NS)
    store.renew_lease(1.0)
    monkeypatch.undo()
    for store in reopenable.lives():
        assert {alias for alias in ids if store.find_alias("", alias)} == {"made", "elsewhere"}


def webhook(task_id: str, config_id: str, state: int = 2, content: bytes = b"w") -> WebhookRow:
    return WebhookRow(task_id, config_id, state, content)


def keep(store: JournalStore, *rows: WebhookRow) -> None:
    store.commit(CommitGroup(webhooks={one.key: one for one in rows}))


def test_webhooks_are_kept_as_they_were_written_last(reopenable: Reopenable) -> None:
    keep(reopenable.now, webhook(TASK, "a"), webhook(TASK, "b"), webhook("other", "a"))
    changed = webhook(TASK, "a", state=4, content=b"changed")
    keep(reopenable.now, changed)
    reopenable.now.commit(CommitGroup(webhooks={("other", "a"): None, ("no", "body"): None}))
    for store in reopenable.lives():
        assert store.find_webhooks() == [webhook(TASK, "b"), changed]


def test_webhooks_are_found_by_task_and_state_the_last_made_first(store: JournalStore) -> None:
    rows = [webhook(TASK, str(number), state=number % 3) for number in range(6)]
    keep(store, *rows)
    keep(store, webhook("other", "x", state=1))
    assert store.find_webhooks(task_id=TASK) == rows[::-1]
    assert store.find_webhooks(task_id=TASK, states=(0, 2)) == [rows[at] for at in (5, 3, 2, 0)]
    assert store.find_webhooks(states=(1,), limit=2) == [webhook("other", "x", state=1), rows[4]]
    assert store.find_webhooks(task_id="nobody") == []


def test_a_task_and_its_webhook_are_written_together(reopenable: Reopenable) -> None:
    one = group(FIRST, made=[row()])
    one.webhooks[TASK, "a"] = webhook(TASK, "a")
    reopenable.now.commit(one)
    for store in reopenable.lives():
        assert store.find_row(TASK) is not None
        assert store.find_webhooks() == [webhook(TASK, "a")]


def test_what_is_forgotten_takes_its_aliases_and_webhooks_along(reopenable: Reopenable) -> None:
    other = f"{TASK}-other"
    for task_id in (TASK, other):
        write_ended(reopenable.now, task_id)
        keep(reopenable.now, webhook(task_id, "a"))
        reopenable.now.commit(CommitGroup(aliases=[AliasRecord("", f"for {task_id}", task_id)]))
    reopenable.settled().compact({TASK: StoredFold(b"fold", 1, {})})
    assert len(reopenable.now.find_webhooks()) == 2
    reopenable.now.delete_tasks([TASK])
    for store in reopenable.lives():
        assert store.find_webhooks() == [webhook(other, "a")]
        assert store.find_alias("", f"for {TASK}") is None
        assert store.find_alias("", f"for {other}") == other
