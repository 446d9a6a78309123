"""Watchers of an account's tasks get the latest row of each changed task, within a bound."""

from trunkline.journal.journal import TaskRow
from trunkline.task_states import StateValue
from trunkline.tasks.change_watchers import ChangedTasks, TaskChanges
from trunkline.tasks.lifecycle import State


def row(
    number: int, account: str = "a", *, state: StateValue = State.TASK_STATE_WORKING
) -> TaskRow:
    return TaskRow(f"j-{number}", "c", account, "echo", state, status_time_ns=0, create_time_ns=0)


async def test_a_watcher_gets_the_latest_row_of_each_task_of_its_account() -> None:
    changes = TaskChanges()
    ended = row(1, state=State.TASK_STATE_COMPLETED)
    with changes.watch("a") as first, changes.watch("a") as second, changes.watch("b") as other:
        changes.publish([row(1), row(2), row(9, "b")])
        changes.publish([ended])
        assert await first.take() == ([row(2), ended], False)
        assert await second.take() == ([row(2), ended], False)
        assert await other.take() == ([row(9, "b")], False)
    changes.publish([row(1)])


async def test_a_watcher_that_is_far_behind_learns_that_changes_are_missing() -> None:
    watcher = ChangedTasks(limit=2)
    for number in range(4):
        watcher.add(f"j-{number}", row(number))
    assert await watcher.take() == ([], True)
    watcher.add("j-7", row(7))
    assert await watcher.take() == ([row(7)], False)
