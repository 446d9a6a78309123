"""The webhooks of tasks, in SQL."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from trunkline.journal.store import WebhookKey, WebhookRow


def write(connection: sqlite3.Connection, changed: Mapping[WebhookKey, WebhookRow | None]) -> None:
    """Keep webhooks as they are now; one that is new is numbered behind all others."""
    connection.executemany(
        "INSERT INTO webhooks (task_id, config_id, state, content) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (task_id, config_id) "
        "DO UPDATE SET state = excluded.state, content = excluded.content",
        [
            (row.task_id, row.config_id, row.state, row.content)
            for row in changed.values()
            if row is not None
        ],
    )
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ? AND config_id = ?",
        [key for key, row in changed.items() if row is None],
    )


def find(
    connection: sqlite3.Connection, *, task_id: str, states: Sequence[int], limit: int | None
) -> list[WebhookRow]:
    """Return webhooks, of one task or of all, in any of the states; the last made first."""
    conditions = ["task_id = ?"] if task_id else []
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
    query = "SELECT task_id, config_id, state, content FROM webhooks"
    if conditions:
        query = " ".join((query, "WHERE", " AND ".join(conditions)))
    values: list[object] = [task_id] if task_id else []
    # A negative limit is none.
    values += [*states, -1 if limit is None else limit]
    found = connection.execute(" ".join((query, "ORDER BY number DESC LIMIT ?")), values)
    return [WebhookRow(*row) for row in found]


def forget(connection: sqlite3.Connection, task_ids: Iterable[str]) -> None:
    """Keep no webhook of these tasks."""
    connection.executemany(
        "DELETE FROM webhooks WHERE task_id = ?", [(task_id,) for task_id in task_ids]
    )
