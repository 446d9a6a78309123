"""Ids of tasks and contexts sort by time and are unique; a filter recognizes added ids."""

import uuid

from trunkline.journal.events import new_context_id, new_task_id
from trunkline.journal.sqlite.task_id_filter import TaskIdFilter


def test_a_task_id_begins_with_its_journal_and_sorts_by_time() -> None:
    ids = [new_task_id("journal1") for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(one.startswith("journal1-") for one in ids)
    timestamps = [one.removeprefix("journal1-")[:8] for one in ids]
    assert timestamps == sorted(timestamps)


def test_a_context_id_is_a_uuid_of_version_7() -> None:
    ids = [new_context_id() for _ in range(100)]
    assert len(set(ids)) == 100
    for one in ids:
        parsed = uuid.UUID(one)
        assert str(parsed) == one
        assert (one[14], parsed.variant) == ("7", uuid.RFC_4122)
    assert [one[:13] for one in ids] == sorted(one[:13] for one in ids)


def test_a_filter_contains_added_ids_and_nearly_no_others() -> None:
    ids = TaskIdFilter()
    added = [f"journal1-{number}" for number in range(20_000)]
    ids.add(added)
    assert all(ids.might_contain(one) for one in added)
    others = [f"journal1-{number}" for number in range(20_000, 40_000)]
    assert sum(ids.might_contain(one) for one in others) < 200
