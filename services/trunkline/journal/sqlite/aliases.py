"""The ids that clients chose, in SQL.

An alias is bound before its task is made, which may never be: it stays unproven for a day, and
goes then if its task isn't there.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

from trunkline.journal.store import AliasRecord

_UNPROVEN_LIFE_NS: Final = 24 * 60 * 60 * 1_000_000_000


def write(connection: sqlite3.Connection, bound: Iterable[AliasRecord], *, age_ns: int) -> None:
    """Bind aliases, those anew that were bound."""
    connection.executemany(
        "INSERT OR REPLACE INTO aliases VALUES (?, ?, ?, ?)",
        [(one.account, one.alias, one.task_id, age_ns) for one in bound],
    )


def find(connection: sqlite3.Connection, account: str, alias: str) -> str | None:
    """Return the id of the task that an alias stands for."""
    found = connection.execute(
        "SELECT task_id FROM aliases WHERE account = ? AND alias = ?", (account, alias)
    ).fetchone()
    return None if found is None else found[0]


def forget(connection: sqlite3.Connection, task_ids: Iterable[str]) -> None:
    """Keep no alias of these tasks."""
    connection.executemany(
        "DELETE FROM aliases WHERE task_id = ?", [(task_id,) for task_id in task_ids]
    )


def prove(connection: sqlite3.Connection, *, journal_id: str, age_ns: int) -> None:
    """Drop those that stand for no task after a day, each looked at once.

    Whether a task of another journal exists isn't known here.
    """
    until_ns = age_ns - _UNPROVEN_LIFE_NS
    connection.execute(
        "DELETE FROM aliases WHERE unproven_ns <= ? AND task_id LIKE ? "
        "AND task_id NOT IN (SELECT task_id FROM tasks)",
        (until_ns, f"{journal_id}-%"),
    )
    connection.execute("UPDATE aliases SET unproven_ns = NULL WHERE unproven_ns <= ?", (until_ns,))
