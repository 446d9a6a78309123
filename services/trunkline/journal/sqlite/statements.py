"""Reads and writes the tables `tasks`, `aliases` and `webhooks`."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from trunkline.encryption import Cipher, Keyring, is_encrypted
from trunkline.journal.store import AliasRecord, TaskFilter, TaskRow, WebhookKey, WebhookRow

# In the order of TaskRow's fields, so that `TaskRow(*row)` works.
TASK_COLUMNS: Final = (
    "task_id, context_id, account, agent, state, status_time_ns, create_time_ns, "
    "parent_task_id, head, metadata, first_available, ended_ns"
)
# A new task's stage is 0, `TaskStage.UNSETTLED`.
INSERT_TASK: Final = "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
UPDATE_TASK: Final = (
    "UPDATE tasks SET state = ?, status_time_ns = ?, head = ?, metadata = ?, ended_ns = ? "
    "WHERE task_id = ?"
)


def select_tasks(rest: str) -> str:
    """Return a query for task rows."""
    return " ".join(("SELECT", TASK_COLUMNS, "FROM tasks", rest))


SELECT_TASK: Final = select_tasks("WHERE task_id = ?")
# SQLite uses a partial index only if the query repeats the condition of the index literally.
SELECT_UNSETTLED: Final = select_tasks("WHERE stage = 0 ORDER BY create_time_ns")
SELECT_ENDED: Final = select_tasks(
    "WHERE stage > 0 AND stage = ? AND ended_ns <= ? ORDER BY ended_ns LIMIT ?"
)
SELECT_COMPACTED_IDS: Final = "SELECT task_id FROM tasks WHERE stage > 0 AND stage = ?"


def insert_values(row: TaskRow, cipher: Cipher | None) -> tuple[object, ...]:
    """Return the values of INSERT_TASK."""
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
        _encrypt_metadata(row, cipher),
        row.first_available,
        row.ended_ns,
    )


def update_values(row: TaskRow, cipher: Cipher | None) -> tuple[object, ...]:
    """Return the values of UPDATE_TASK."""
    return (
        row.state,
        row.status_time_ns,
        row.head,
        _encrypt_metadata(row, cipher),
        row.ended_ns,
        row.task_id,
    )


def _encrypt_metadata(row: TaskRow, cipher: Cipher | None) -> bytes:
    if cipher is None or not row.metadata:
        return row.metadata
    return cipher.encrypt(row.metadata, metadata_place(row.task_id))


def decrypt_metadata(row: TaskRow, cipher: Cipher | None) -> TaskRow:
    """Return a stored row with readable metadata."""
    if cipher is None or not is_encrypted(row.metadata):
        return row
    return replace(row, metadata=cipher.decrypt(row.metadata, metadata_place(row.task_id)))


def filter_conditions(task_filter: TaskFilter) -> tuple[str, list[object]]:
    """Return the conditions and values of a filter.

    They contain only the fields that are set, so that SQLite can use an index.
    """
    conditions = {
        "account = ?": task_filter.account,
        "agent = ?": task_filter.agent or None,
        "context_id = ?": task_filter.context_id or None,
        "state = ?": task_filter.state,
        "status_time_ns >= ?": task_filter.status_after_ns,
    }
    present = {text: value for text, value in conditions.items() if value is not None}
    return " AND ".join(present), list(present.values())


# The age at which an alias without a task is deleted: a day.
_UNPROVEN_LIFE_NS: Final = 24 * 60 * 60 * 1_000_000_000


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
    """Delete day-old aliases whose task would be in this journal but does not exist.

    An alias is bound before its task is created, which may fail. Each alias is examined once:
    `unproven_ns`, the journal's age at the binding, is then NULL.
    """
    until_ns = age_ns - _UNPROVEN_LIFE_NS
    connection.execute(
        "DELETE FROM aliases WHERE unproven_ns <= ? AND task_id LIKE ? "
        "AND task_id NOT IN (SELECT task_id FROM tasks)",
        (until_ns, f"{journal_id}-%"),
    )
    connection.execute("UPDATE aliases SET unproven_ns = NULL WHERE unproven_ns <= ?", (until_ns,))


def write_webhooks(
    connection: sqlite3.Connection,
    changed: Mapping[WebhookKey, WebhookRow | None],
    cipher: Cipher | None,
) -> None:
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
                cipher.encrypt(row.content, webhook_place(row.key)) if cipher else row.content,
            )
            for row in changed.values()
            if row is not None
        ],
    )
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ? AND config_id = ?",
        [key for key, row in changed.items() if row is None],
    )


def find_webhooks(
    connection: sqlite3.Connection,
    cipher: Cipher | None,
    *,
    task_id: str = "",
    states: Sequence[int] = (),
    limit: int | None = None,
) -> list[WebhookRow]:
    """Return webhooks of one task or of all, in any of the states, the newest first."""
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
    webhooks = [WebhookRow(*row) for row in rows]
    if cipher is None:
        return webhooks
    return [
        replace(row, content=cipher.decrypt(row.content, webhook_place(row.key)))
        for row in webhooks
    ]


def webhook_place(key: WebhookKey) -> str:
    """Return the place of a webhook, to which its encryption is bound."""
    return f"webhooks {key[0]} {key[1]}"


def metadata_place(task_id: str) -> str:
    """Return the place of a task's metadata, to which its encryption is bound."""
    return f"metadata {task_id}"


def delete_webhooks(connection: sqlite3.Connection, task_ids: Iterable[str]) -> None:
    """Delete the webhooks of these tasks."""
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ?", [(task_id,) for task_id in task_ids]
    )


def open_cipher(keyring: Keyring | None, journal_id: str, path: Path) -> Cipher | None:
    """Return the cipher of a journal. None: it is not encrypted."""
    if keyring is None or not keyring.is_encrypting:
        return None
    return keyring.cipher(f"journal {journal_id}", name=str(path))
