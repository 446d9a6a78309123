"""Brings the content of a journal to the form of this version when a host opens the journal.

Journals of versions 4 and 5 had one row of `commits` for each transaction, with the batches of many
tasks. The events of an ended task were moved to rows of `settled`. After its compaction, a
row of `folds` was in their place. Version 5 also had hash chains, which end here.

Everything happens in the transaction in which the host claims the journal. After a crash, the next
host begins again.
"""

import json
import logging
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.core.database.packing import unpack_spans
from trunkline.core.encryption import Keyring, is_encrypted
from trunkline.core.task_states import TERMINAL
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite.row_cipher import (
    RowCipher,
    event_place,
    fold_place,
    statement_place,
    webhook_place,
)
from trunkline.journal.sqlite.schema import CONTENT_TABLES, SCHEMA_VERSION, read_version
from trunkline.journal.sqlite.statements import parse_task, select_tasks, update_tasks
from trunkline.journal.store import TaskRow, TaskStage

logger = logging.getLogger(__name__)

_REPLACED: Final = (
    "it has the format of an earlier version, but was encrypted in the present one before: another "
    "program replaced it; restore a copy or use another data directory"
)
# The values of `stage` of earlier versions: the events of such a task are in `commits`, or its
# events were replaced by a fold.
_UNSETTLED: Final = 0
_COMPACTED: Final = 2
_INSERT_EVENT: Final = "INSERT INTO events VALUES (?, ?, ?)"


def prepare_content(
    connection: sqlite3.Connection, journal_id: str, path: Path, keyring: Keyring | None
) -> None:
    """Convert a journal of an earlier version, and encrypt all content if the keyring has a key.

    Raises:
        ConfigurationError: the journal is encrypted under a key that the keyring does not have.
        JournalUnavailableError: its content can't be read, or another program replaced it.
    """
    _check_data_key(connection, path, keyring)
    was_encrypted = keyring is not None and keyring.has_encrypted_journal(path.name)
    cipher = RowCipher.open(keyring, journal_id, path, is_strict=False)
    version = read_version(connection)
    if version != SCHEMA_VERSION:
        if was_encrypted:
            raise JournalUnavailableError(str(path), _REPLACED)
        convert(connection, cipher)
        logger.info("journal.converted", extra={"journal": journal_id, "version": version})
    if keyring is not None and keyring.is_encrypting:
        if not was_encrypted:
            _encrypt_plain_content(connection, cipher)
        write_data_key(connection, keyring)


def write_data_key(connection: sqlite3.Connection, keyring: Keyring) -> None:
    """Store the id of the data key of new content, so that a lost keyring is noticed at the start.

    Without data keys, this does nothing.
    """
    if keyring.is_encrypting:
        connection.execute("UPDATE meta SET data_key = ?", (keyring.current_id,))


def _check_data_key(connection: sqlite3.Connection, path: Path, keyring: Keyring | None) -> None:
    """Check that the keyring has the data key that the journal was last written with."""
    has_column = connection.execute(
        "SELECT 1 FROM pragma_table_info('meta') WHERE name = 'data_key'"
    ).fetchone()
    if not has_column:
        # Version 4 had no encryption.
        connection.execute("ALTER TABLE meta ADD COLUMN data_key INTEGER NOT NULL DEFAULT 0")
    (key_id,) = connection.execute("SELECT data_key FROM meta").fetchone()
    if key_id and not (keyring is not None and keyring.has_data_key(key_id)):
        found = "no keyring" if keyring is None else f"not in {keyring.path}"
        problem = (
            f"is encrypted under the data key {key_id:08x}: {found}; restore the keyring "
            "that belongs to this journal: without it the journal can't be read"
        )
        raise ConfigurationError(f"journal {path}", problem)


def convert(connection: sqlite3.Connection, cipher: RowCipher) -> None:
    """Convert the content of version 4 or 5 to the tables of this version.

    An ended task whose events can't be read stays in this state: its stored bytes are copied.

    Raises:
        JournalUnavailableError: the events of unfinished tasks can't be read.
        DecodeError, struct.error: they can't be decoded.
    """
    for index in ("tasks_by_account", "tasks_by_context", "tasks_by_agent", "tasks_by_end"):
        connection.execute(f"DROP INDEX {index}")
    for table in ("tasks", "folds"):
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in CONTENT_TABLES:
        connection.execute(statement)
    numbers = _copy_tasks(connection)
    _copy_commits(connection, cipher, numbers)
    _copy_settled(connection, cipher, numbers)
    connection.execute(
        "INSERT INTO folds SELECT tasks.number, epoch, snapshot, forwarded "
        "FROM old_folds JOIN tasks USING (task_id)"
    )
    _copy_orphaned_children(connection)
    _bind_metadata(connection, cipher)
    for table in ("old_tasks", "old_folds", "commits", "settled", "strays"):
        connection.execute(f"DROP TABLE {table}")
    for table in ("stray_users", "chain_gaps", "chain_head"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute("UPDATE meta SET schema_version = ?", (SCHEMA_VERSION,))


def _copy_tasks(connection: sqlite3.Connection) -> dict[str, int]:
    """Copy the rows of tasks. Return the numbers of tasks whose events are in `commits`."""
    connection.execute(
        "INSERT INTO tasks (task_id, context_id, account, agent, state, status_time_ns, "
        "create_time_ns, parent_task_id, head, metadata, ended_ns, stage) "
        "SELECT task_id, context_id, account, agent, state, status_time_ns, create_time_ns, "
        "parent_task_id, head, metadata, "
        "CASE WHEN state IN (SELECT value FROM json_each(?)) THEN max(ended_ns, 1) ELSE 0 END, "
        "CASE WHEN stage >= ? THEN ? ELSE ? END FROM old_tasks ORDER BY create_time_ns, task_id",
        (json.dumps(sorted(TERMINAL)), _COMPACTED, TaskStage.CLEARED, TaskStage.READABLE),
    )
    return dict(
        connection.execute(
            "SELECT task_id, number FROM tasks JOIN old_tasks USING (task_id) "
            "WHERE old_tasks.stage = ?",
            (_UNSETTLED,),
        )
    )


def _copy_commits(
    connection: sqlite3.Connection, cipher: RowCipher, numbers: dict[str, int]
) -> None:
    """Copy the batches of these tasks. Batches of other tasks in `commits` are not needed."""
    for commit_id, stored in connection.execute("SELECT id, payload FROM commits ORDER BY id"):
        for sealed in _unpack(cipher.decrypt(stored, f"commits {commit_id}")):
            task_id = parse_header(sealed).task_id
            if task_id in numbers:
                _insert_event(connection, cipher, numbers[task_id], sealed)


def _copy_settled(
    connection: sqlite3.Connection, cipher: RowCipher, unsettled: dict[str, int]
) -> None:
    """Copy the events of ended tasks.

    Rows of unsettled tasks are copies of events in `commits`. Rows of compacted tasks were to be
    deleted.
    """
    rows = connection.execute(
        "SELECT tasks.number, task_id, first_sequence, last_sequence, payload FROM settled "
        "JOIN tasks USING (task_id) WHERE stage = ? ORDER BY tasks.number, first_sequence",
        (TaskStage.READABLE,),
    )
    for number, task_id, first, last, stored in rows:
        if task_id in unsettled:
            continue
        try:
            payload = cipher.decrypt(stored, f"settled {task_id} {first} {last}")
            batches = list(_unpack(payload))
            for sealed in batches:
                parse_header(sealed)
        except (JournalUnavailableError, DecodeError, struct.error):
            connection.execute(_INSERT_EVENT, (number, last, stored))
            continue
        for sealed in batches:
            _insert_event(connection, cipher, number, sealed)


def _insert_event(
    connection: sqlite3.Connection, cipher: RowCipher, number: int, sealed: bytes
) -> None:
    header = parse_header(sealed)
    previous = header.first_sequence - 1
    sequence = previous + header.count
    body = cipher.encrypt(sealed, event_place(header.task_id, previous, sequence))
    connection.execute(_INSERT_EVENT, (number, sequence, body))


def _unpack(payload: bytes) -> Iterator[bytes]:
    for offset, size_bytes in unpack_spans(payload):
        yield payload[offset : offset + size_bytes]


def _copy_orphaned_children(connection: sqlite3.Connection) -> None:
    # The table of users was added to version 4 later.
    connection.execute(
        "CREATE TABLE IF NOT EXISTS stray_users (task_id TEXT PRIMARY KEY, user_statement TEXT)"
    )
    connection.execute(
        "INSERT INTO orphaned_children SELECT task_id, account, until_s, "
        "CAST(coalesce(user_statement, '') AS BLOB) FROM strays LEFT JOIN stray_users "
        "USING (task_id)"
    )


def _bind_metadata(connection: sqlite3.Connection, cipher: RowCipher) -> None:
    """Bind the metadata of all tasks to the columns of their rows, and correct the heads."""
    for *stored, _, last in connection.execute(select_tasks("ORDER BY number")):
        row = TaskRow(*stored)
        try:
            metadata = cipher.decrypt(row.metadata, f"metadata {row.task_id}")
        except JournalUnavailableError:
            continue  # The row stays damaged. A journal with such an unfinished task is refused.
        head = row.head if last is None else last
        update_tasks(connection, [row._replace(metadata=metadata, head=head)], cipher)


def _encrypt_plain_content(connection: sqlite3.Connection, cipher: RowCipher) -> None:
    """Encrypt all rows that were written before a key was set."""
    for columns in connection.execute(select_tasks("ORDER BY number")):
        row = TaskRow(*columns[:-2])
        if not is_encrypted(row.metadata):
            update_tasks(connection, [parse_task(columns, cipher)], cipher)
    _encrypt(
        connection,
        cipher,
        "UPDATE events SET body = ? WHERE task = ? AND sequence = ?",
        (
            ((number, sequence), event_place(task_id, previous, sequence), body)
            for number, task_id, previous, sequence, body in connection.execute(
                "SELECT task, task_id, lag(sequence, 1, 0) OVER (PARTITION BY task "
                "ORDER BY sequence), sequence, body FROM events JOIN tasks ON number = task"
            )
        ),
    )
    _encrypt(
        connection,
        cipher,
        "UPDATE folds SET snapshot = ? WHERE task = ?",
        (
            ((number,), fold_place(task_id, epoch, forwarded), snapshot)
            for number, task_id, epoch, forwarded, snapshot in connection.execute(
                "SELECT task, task_id, epoch, forwarded, snapshot FROM folds "
                "JOIN tasks ON number = task"
            )
        ),
    )
    _encrypt(
        connection,
        cipher,
        "UPDATE webhooks SET content = ? WHERE number = ?",
        (
            ((number,), webhook_place((task_id, config_id)), content)
            for number, task_id, config_id, content in connection.execute(
                "SELECT number, task_id, config_id, content FROM webhooks"
            )
        ),
    )
    _encrypt(
        connection,
        cipher,
        "UPDATE orphaned_children SET user_statement = ? WHERE task_id = ?",
        (
            ((task_id,), statement_place(task_id), statement)
            for task_id, statement in connection.execute(
                "SELECT task_id, user_statement FROM orphaned_children"
            )
        ),
    )


def _encrypt(
    connection: sqlite3.Connection,
    cipher: RowCipher,
    update: str,
    rows: Iterable[tuple[tuple[object, ...], str, bytes]],
) -> None:
    """Encrypt the plain ones of these rows: the key, the place and the content of each."""
    for key, place, stored in rows:
        if not is_encrypted(stored):
            connection.execute(update, (cipher.encrypt(stored, place), *key))
