"""Lookup of task rows, limited to the tasks of an account."""

from trunkline.errors import TaskNotFoundError
from trunkline.identity import ANONYMOUS_ACCOUNT
from trunkline.journal.journal import Journal, TaskRow


def find_row(journal: Journal, task_id: str) -> TaskRow | None:
    """Return the row of a task, if there is such a task."""
    try:
        return journal.row(task_id)
    except TaskNotFoundError:
        return None


def own_row(journal: Journal, task_id: str, account: str) -> TaskRow:
    """Return the row of a task that the account may see: else it doesn't exist.

    Raises:
        TaskNotFoundError: no such task of the account.
    """
    row = find_row(journal, task_id)
    if row is None or row.account != (account or ANONYMOUS_ACCOUNT):
        raise TaskNotFoundError(task_id)
    return row
