"""Reads and writes the tables `tasks`, `aliases` and `webhooks`."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from trunkline.journal.sqlite.row_cipher import RowCipher, webhook_place
from trunkline.journal.store import (
    TASK_COLUMNS,
    UNPROVEN_ALIAS_NS,
    AliasRecord,
    CommitGroup,
    TaskRow,
    WebhookRow,
)

_INSERT_TASK: Final = "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
_METADATA: Final = TaskRow._fields.index("metadata")
_UPDATE_TASK: Final = (
    "UPDATE tasks SET state = ?, status_time_ns = ?, head = ?, metadata = ?, ended_ns = ? "
    "WHERE task_id = ?"
)


def select_tasks(rest: str) -> str:
    """Return a query for task rows, whose results `parse_task` parses."""
    last = "CASE WHEN ended_ns = 0 THEN (SELECT max(sequence) FROM events WHERE task = number) END"
    return " ".join(("SELECT", TASK_COLUMNS, ", stage,", last, "FROM tasks", rest))


# One query reads up to this many tasks. Its text depends on their number, so the limit keeps the
# number of prepared statements below the size of the connection's cache.
_TASKS_PER_QUERY: Final = 32
# SQLite uses a partial index only if the query repeats the condition of the index literally.
SELECT_UNFINISHED: Final = select_tasks("WHERE ended_ns = 0 ORDER BY create_time_ns")
SELECT_NUMBERED: Final = SELECT_UNFINISHED.replace("SELECT", "SELECT number,", 1)
SELECT_ENDED: Final = select_tasks(
    "WHERE ended_ns > 0 AND stage = ? AND ended_ns <= ? ORDER BY ended_ns LIMIT ?"
)
SELECT_LAST_ENDED: Final = (
    "SELECT task_id, number FROM tasks WHERE ended_ns > 0 AND stage = 0 "
    "ORDER BY ended_ns DESC LIMIT 1"
)


def parse_task(columns: Sequence[Any], cipher: RowCipher) -> TaskRow:
    """Return a task's row, with its current head.

    Raises:
        JournalUnavailableError: the row was changed by another program; see `RowCipher`.
    """
    *stored, stage, last = columns
    return cipher.decrypt_metadata(TaskRow(*stored)).at_stage(stage, last)


@cache
def select_by_id(count: int) -> str:
    """Return a query for the rows of so many tasks."""
    return select_tasks(f"WHERE task_id IN ({', '.join('?' * count)})")


def read_tasks(
    connection: sqlite3.Connection, task_ids: Iterable[str], cipher: RowCipher
) -> list[TaskRow]:
    """Return the rows of those tasks that exist, in any order."""
    wanted = tuple(task_ids)
    rows: list[TaskRow] = []
    for begin in range(0, len(wanted), _TASKS_PER_QUERY):
        some = wanted[begin : begin + _TASKS_PER_QUERY]
        found = connection.execute(select_by_id(len(some)), some).fetchall()
        rows += [parse_task(columns, cipher) for columns in found]
    return rows


def lacks_events(columns: Sequence[Any]) -> bool:
    """Return whether the stored head of an unfinished task is after its last event."""
    head, last = columns[8], columns[-1]
    return last is None or last < head


def insert_tasks(
    connection: sqlite3.Connection, rows: Mapping[int, TaskRow], cipher: RowCipher
) -> None:
    """Insert new tasks, by their numbers."""
    connection.executemany(
        _INSERT_TASK,
        [
            (number, *row[:_METADATA], cipher.encrypt_metadata(row), row.ended_ns)
            for number, row in rows.items()
        ],
    )


def update_tasks(
    connection: sqlite3.Connection, rows: Iterable[TaskRow], cipher: RowCipher
) -> None:
    """Update the columns that can change, besides the stage."""
    connection.executemany(
        _UPDATE_TASK,
        [
            (
                row.state,
                row.status_time_ns,
                row.head,
                cipher.encrypt_metadata(row),
                row.ended_ns,
                row.task_id,
            )
            for row in rows
        ],
    )


def write_aliases(
    connection: sqlite3.Connection, records: Iterable[AliasRecord], *, age_ns: int
) -> None:
    """Bind aliases. They replace bindings of the same names."""
    connection.executemany(
        "INSERT OR REPLACE INTO aliases VALUES (?, ?, ?, ?)",
        [(record.account, record.alias, record.task_id, age_ns) for record in records],
    )


def find_alias(connection: sqlite3.Connection, account: str, alias: str) -> str | None:
    """Return the id of the task that an alias is bound to."""
    row = connection.execute(
        "SELECT task_id FROM aliases WHERE account = ? AND alias = ?", (account, alias)
    ).fetchone()
    return None if row is None else row[0]


def delete_aliases(connection: sqlite3.Connection, task_ids: Iterable[str]) -> None:
    """Delete the aliases of these tasks."""
    connection.executemany(
        "DELETE FROM aliases WHERE task_id = ?", [(task_id,) for task_id in task_ids]
    )


def expire_aliases(connection: sqlite3.Connection, *, journal_id: str, age_ns: int) -> None:
    """Delete old aliases whose task would be in this journal; see UNPROVEN_ALIAS_NS."""
    until_ns = age_ns - UNPROVEN_ALIAS_NS
    connection.execute(
        "DELETE FROM aliases WHERE unproven_ns <= ? AND task_id LIKE ? "
        "AND task_id NOT IN (SELECT task_id FROM tasks)",
        (until_ns, f"{journal_id}-%"),
    )
    connection.execute("UPDATE aliases SET unproven_ns = NULL WHERE unproven_ns <= ?", (until_ns,))


def write_webhooks(connection: sqlite3.Connection, group: CommitGroup, cipher: RowCipher) -> None:
    """Store or delete webhooks. A new one gets the next number, which is their order."""
    connection.executemany(
        "INSERT INTO webhooks (task_id, config_id, state, content) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (task_id, config_id) "
        "DO UPDATE SET state = excluded.state, content = excluded.content",
        [
            (
                row.task_id,
                row.config_id,
                row.state,
                cipher.encrypt(row.content, webhook_place(row.key)),
            )
            for row in group.stored_webhooks
        ],
    )
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ? AND config_id = ?",
        group.deleted_webhooks,
    )


def find_webhooks(
    connection: sqlite3.Connection,
    cipher: RowCipher,
    *,
    task_id: str = "",
    states: Sequence[int] = (),
    limit: int | None = None,
) -> list[WebhookRow]:
    """Return webhooks of one task or of all, in any of the states, the newest first.

    Raises:
        JournalUnavailableError: one of them was changed by another program; see `RowCipher`.
    """
    conditions = ["task_id = ?"] if task_id else []
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
    query = "SELECT task_id, config_id, state, content FROM webhooks"
    if conditions:
        query = " ".join((query, "WHERE", " AND ".join(conditions)))
    values: list[object] = [task_id] if task_id else []
    # In SQLite, a negative limit is no limit.
    values += [*states, -1 if limit is None else limit]
    rows = connection.execute(" ".join((query, "ORDER BY number DESC LIMIT ?")), values)
    return [
        WebhookRow(found, config, state, cipher.decrypt(content, webhook_place((found, config))))
        for found, config, state, content in rows
    ]


def delete_webhooks(connection: sqlite3.Connection, task_ids: Iterable[str]) -> None:
    """Delete the webhooks of these tasks."""
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ?", [(task_id,) for task_id in task_ids]
    )
