"""A task's row in SQL: its columns, how it is written, and which ones a list shows."""

from typing import Final

from trunkline.journal.store import TaskFilter, TaskRow

# In the order of TaskRow's fields.
COLUMNS: Final = (
    "task_id, context_id, account, agent, state, status_time_ns, create_time_ns, "
    "parent_task_id, head, metadata, first_available, ended_ns"
)
INSERT: Final = "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
UPDATE: Final = (
    "UPDATE tasks SET state = ?, status_time_ns = ?, head = ?, metadata = ?, ended_ns = ? "
    "WHERE task_id = ?"
)


def select(rest: str) -> str:
    """Return a query for rows."""
    return " ".join(("SELECT", COLUMNS, "FROM tasks", rest))


SELECT_ONE: Final = select("WHERE task_id = ?")


def inserted(row: TaskRow) -> tuple[object, ...]:
    """Return the values of INSERT."""
    return (
        row.task_id,
        row.context_id,
        row.account,
        row.agent,
        row.state,
        row.status_time_ns,
        row.create_time_ns,
        row.parent_task_id,
        row.head,
        row.metadata,
        row.first_available,
        row.ended_ns,
    )


def updated(row: TaskRow) -> tuple[object, ...]:
    """Return the values of UPDATE."""
    return (
        row.state,
        row.status_time_ns,
        row.head,
        row.metadata,
        row.ended_ns,
        row.task_id,
    )


def conditions(wanted: TaskFilter) -> tuple[str, list[object]]:
    """What a list's rows must meet, as SQL; only what is asked for, so that an index serves it."""
    possible = {
        "account = ?": wanted.account,
        "agent = ?": wanted.agent or None,
        "context_id = ?": wanted.context_id or None,
        "state = ?": wanted.state,
        "status_time_ns >= ?": wanted.status_after_ns,
    }
    asked = {text: value for text, value in possible.items() if value is not None}
    return " AND ".join(asked), list(asked.values())
