"""The tables of a journal's file, and its ownership by one process.

Each batch of events is one row of `events`, under the number of its task and its last sequence.
Some time after the end of a task, a row of `folds` replaces its events. `TaskStage` says how far
this has come.

A lease is measured by the machine's monotonic clock. It counts from boot and is the same in all
processes, so changes of the wall clock do not affect leases.
"""

import secrets
import sqlite3
import string
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from trunkline.core.database.process import OwnerProcess, boot_id
from trunkline.errors import JournalUnavailableError
from trunkline.journal.clock import Clock, ClockReading

SCHEMA_VERSION: Final = 6
OLDEST_VERSION: Final = 4
"""The oldest version whose journals can be opened; see `migration`."""
# Marks the file as ours in SQLite's header: "TRNK".
_APPLICATION_ID: Final = 0x54524E4B
_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_ID_LENGTH: Final = 8
# The lease before its first renewal. A stored lease longer than the longest one is from an
# earlier boot.
_FIRST_LEASE_S: Final = 10.0
_LONGEST_LEASE_S: Final = 3600.0
# The owner's pid in an abandoned journal. Takeovers kill only the process that holds the lock.
_ABANDONED_PID: Final = 1

_TABLES: Final = (
    """CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        journal_id TEXT NOT NULL,
        schema_version INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner_pid INTEGER NOT NULL,
        owner_started TEXT NOT NULL,
        lease_until_s REAL NOT NULL,
        time_ns INTEGER NOT NULL,
        age_ns INTEGER NOT NULL,
        noted_ns INTEGER NOT NULL,
        noted_boot TEXT NOT NULL,
        noted_since_boot_ns INTEGER NOT NULL,
        data_key INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE keys (
        key TEXT PRIMARY KEY,
        content_hash TEXT NOT NULL,
        task_id TEXT NOT NULL,
        expires_ns INTEGER NOT NULL
    )""",
    "CREATE INDEX keys_by_expiry ON keys (expires_ns)",
    """CREATE TABLE aliases (
        account TEXT NOT NULL,
        alias TEXT NOT NULL,
        task_id TEXT NOT NULL,
        unproven_ns INTEGER,
        PRIMARY KEY (account, alias)
    ) WITHOUT ROWID""",
    "CREATE INDEX aliases_by_task ON aliases (task_id)",
    "CREATE INDEX aliases_unproven ON aliases (unproven_ns) WHERE unproven_ns IS NOT NULL",
    """CREATE TABLE webhooks (
        number INTEGER PRIMARY KEY,
        task_id TEXT NOT NULL,
        config_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        content BLOB NOT NULL,
        UNIQUE (task_id, config_id)
    )""",
    "CREATE INDEX webhooks_by_state ON webhooks (state, number)",
)
CONTENT_TABLES: Final = (
    """CREATE TABLE tasks (
        number INTEGER PRIMARY KEY,
        task_id TEXT NOT NULL UNIQUE,
        context_id TEXT NOT NULL,
        account TEXT NOT NULL,
        agent TEXT NOT NULL,
        state INTEGER NOT NULL,
        status_time_ns INTEGER NOT NULL,
        create_time_ns INTEGER NOT NULL,
        parent_task_id TEXT NOT NULL,
        head INTEGER NOT NULL,
        metadata BLOB NOT NULL,
        ended_ns INTEGER NOT NULL,
        stage INTEGER NOT NULL
    )""",
    "CREATE INDEX tasks_by_account ON tasks (account, status_time_ns DESC, task_id)",
    "CREATE INDEX tasks_by_context ON tasks (account, context_id, status_time_ns DESC, task_id)",
    "CREATE INDEX tasks_by_agent ON tasks (account, agent, status_time_ns DESC, task_id)",
    "CREATE INDEX tasks_unfinished ON tasks (create_time_ns) WHERE ended_ns = 0",
    "CREATE INDEX tasks_by_end ON tasks (stage, ended_ns) WHERE ended_ns > 0",
    """CREATE TABLE events (
        task INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (task, sequence)
    ) WITHOUT ROWID""",
    """CREATE TABLE folds (
        task INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        snapshot BLOB NOT NULL,
        forwarded TEXT NOT NULL
    )""",
    """CREATE TABLE orphaned_children (
        task_id TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        until_s REAL NOT NULL,
        user_statement BLOB NOT NULL
    ) WITHOUT ROWID""",
)
"""The tables that a migration writes anew."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a journal, and the end of its lease by the monotonic clock."""

    journal_id: str
    epoch: int
    owner: OwnerProcess
    lease_until_s: float

    @property
    def is_released(self) -> bool:
        """The last owner released the journal, or there was none."""
        return self.owner.pid == 0

    @property
    def expired_for_s(self) -> float:
        """Seconds since the end of the lease, or since boot if the lease is from an earlier one.

        A negative number means that the lease holds for that time.
        """
        now_s = time.monotonic()
        if not self.owner.is_from_this_boot or self.lease_until_s > now_s + _LONGEST_LEASE_S:
            return now_s
        return now_s - self.lease_until_s

    @property
    def is_lease_in_use(self) -> bool:
        """The lease holds, and its owner is alive."""
        return self.expired_for_s < 0 and self.owner.is_alive


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of claiming a journal: this process owns it."""

    journal_id: str
    epoch: int
    was_lost: bool
    """The previous owner did not release it."""


def read_ownership(connection: sqlite3.Connection, path: Path) -> Ownership:
    """Return the owner of a journal.

    Raises:
        JournalUnavailableError: the file is not a journal, or has another schema version.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise _not_ours(path)
    version = read_version(connection)
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        raise JournalUnavailableError(
            str(path),
            f"its schema is {version} and this program's {SCHEMA_VERSION}; "
            "use the program that wrote it, or another data directory",
        )
    journal_id, epoch, pid, started, lease_until_s = connection.execute(
        "SELECT journal_id, epoch, owner_pid, owner_started, lease_until_s FROM meta"
    ).fetchone()
    return Ownership(journal_id, epoch, OwnerProcess(pid, started), lease_until_s)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the version of a journal's schema."""
    version: int = connection.execute("SELECT schema_version FROM meta").fetchone()[0]
    return version


class PrepareContent(Protocol):
    """Brings the content of a journal to the form of this version, in the caller's transaction."""

    def __call__(self, connection: sqlite3.Connection, journal_id: str) -> None:
        """Change the content. Any error undoes the claim of the journal."""
        ...


def claim_journal(
    connection: sqlite3.Connection, path: Path, prepare: PrepareContent | None = None
) -> Claim:
    """Create the tables if there are none, prepare the content, and become the owner, at once.

    The caller holds the journal's lock, so no other process of this version is its owner. If the
    previous owner did not release the journal, the epoch increases, so that writes of that owner
    fail.

    Raises:
        JournalUnavailableError: the file is not a journal, or has another schema version; or its
            owner is a process of an earlier version, which locks no journals, and its lease holds.
    """
    connection.execute("BEGIN IMMEDIATE")
    _create_tables(connection, path)
    ownership = read_ownership(connection, path)
    owner = OwnerProcess.this_process()
    # If the owner is this process, it has closed the journal: the caller has the lock.
    if ownership.owner != owner and ownership.is_lease_in_use:
        raise JournalUnavailableError(
            str(path),
            f"process {ownership.owner.pid} of an earlier version has it open; stop it, or use "
            "another data directory",
        )
    if prepare is not None:
        prepare(connection, ownership.journal_id)
    epoch = ownership.epoch if ownership.is_released else ownership.epoch + 1
    connection.execute(
        "UPDATE meta SET epoch = ?, owner_pid = ?, owner_started = ?, lease_until_s = ?",
        (epoch, owner.pid, owner.started, time.monotonic() + _FIRST_LEASE_S),
    )
    connection.execute("COMMIT")
    return Claim(ownership.journal_id, epoch, was_lost=not ownership.is_released)


def release_journal(
    connection: sqlite3.Connection, epoch: int, *, for_takeover: bool = False
) -> None:
    """Release a journal, so that its next owner needs no takeover.

    With `for_takeover`, it looks as if its owner died just now, so that another host takes it over.
    """
    pid, started = (_ABANDONED_PID, f"{boot_id()}/left") if for_takeover else (0, "")
    connection.execute(
        "UPDATE meta SET owner_pid = ?, owner_started = ?, lease_until_s = ? WHERE epoch = ?",
        (pid, started, time.monotonic(), epoch),
    )


def create_copy(
    connection: sqlite3.Connection, path: Path, journal_id: str, epoch: int, reading: ClockReading
) -> None:
    """Create the tables of a copied journal, which looks abandoned by its owner."""
    _create_tables(connection, path)
    connection.execute("UPDATE meta SET journal_id = ?, epoch = ?", (journal_id, epoch))
    write_clock(connection, Clock(reading), epoch)
    mark_abandoned(connection)


def mark_abandoned(connection: sqlite3.Connection) -> None:
    """Make a copy of a journal look abandoned by its owner. Do nothing to other databases."""
    if connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID:
        connection.execute(
            "UPDATE meta SET owner_pid = ?, owner_started = 'copied', lease_until_s = 0",
            (_ABANDONED_PID,),
        )


def read_clock(connection: sqlite3.Connection) -> ClockReading:
    """Return the last reading of the journal's clock that was stored."""
    return ClockReading(
        *connection.execute(
            "SELECT time_ns, age_ns, noted_ns, noted_boot, noted_since_boot_ns FROM meta"
        ).fetchone()
    )


def write_clock(connection: sqlite3.Connection, clock: Clock, epoch: int) -> None:
    """Store a reading of the journal's clock, unless the epoch has changed."""
    reading = clock.reading()
    connection.execute(
        "UPDATE meta SET time_ns = ?, age_ns = ?, noted_ns = ?, noted_boot = ?, "
        "noted_since_boot_ns = ? WHERE epoch = ?",
        (
            reading.time_ns,
            reading.age_ns,
            reading.wall_ns,
            reading.boot,
            reading.since_boot_ns,
            epoch,
        ),
    )


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == _APPLICATION_ID:
        return
    if application_id or connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise _not_ours(path)
    for statement in (*_TABLES, *CONTENT_TABLES):
        connection.execute(statement)
    journal_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    connection.execute(
        "INSERT INTO meta VALUES (1, ?, ?, 1, 0, '', 0, 0, 0, 0, '', 0, 0)",
        (journal_id, SCHEMA_VERSION),
    )
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _not_ours(path: Path) -> JournalUnavailableError:
    return JournalUnavailableError(
        str(path), "it is another program's database; use another data directory"
    )
