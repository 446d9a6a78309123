"""Ids of tasks and contexts sort by time and are unique; a filter recognizes added ids."""

import uuid

from trunkline.journal.events import new_context_id, new_task_id
from trunkline.journal.sqlite.task_id_filter import TaskIdFilter


def test_a_task_id_begins_with_its_journal_and_sorts_by_time() -> None:
    ids = [new_task_id("journal1") for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(task_id.startswith("journal1-") for task_id in ids)
    timestamps = [task_id.removeprefix("journal1-")[:8] for task_id in ids]
    assert timestamps == sorted(timestamps)


def test_a_context_id_is_a_uuid_of_version_7() -> None:
    ids = [new_context_id() for _ in range(100)]
    assert len(set(ids)) == 100
    for context_id in ids:
        parsed = uuid.UUID(context_id)
        assert str(parsed) == context_id
        assert (context_id[14], parsed.variant) == ("7", uuid.RFC_4122)
    assert [context_id[:13] for context_id in ids] == sorted(context_id[:13] for context_id in ids)


def test_a_filter_contains_added_ids_and_nearly_no_others() -> None:
    ids = TaskIdFilter()
    added = [f"journal1-{number}" for number in range(20_000)]
    ids.add(added)
    assert all(ids.might_contain(task_id) for task_id in added)
    others = [f"journal1-{number}" for number in range(20_000, 40_000)]
    assert sum(ids.might_contain(task_id) for task_id in others) < 200
