"""Stores a journal in one SQLite file; see `schema` for its tables."""

import asyncio
import contextlib
import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, Self, TypeVar

from google.protobuf.message import DecodeError

from trunkline.core.database import (
    FileLock,
    Synchronous,
    connect,
    create_file,
    find_holder,
    has_lock,
    kill_holder,
    open_read_only,
    transaction,
    translate_all_errors,
    translate_errors,
)
from trunkline.core.encryption import Keyring
from trunkline.errors import JournalUnavailableError
from trunkline.journal.clock import Clock
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite import statements
from trunkline.journal.sqlite.migration import prepare_content, write_data_key
from trunkline.journal.sqlite.row_cipher import (
    RowCipher,
    event_place,
    fold_place,
    statement_place,
)
from trunkline.journal.sqlite.schema import (
    Claim,
    Ownership,
    claim_journal,
    read_clock,
    read_ownership,
    release_journal,
    write_clock,
)
from trunkline.journal.sqlite.writer import PAGE_BYTES, Checkpointer, EventRow, SqliteWriter
from trunkline.journal.store import (
    AliasName,
    ClaimedError,
    CommitGroup,
    OrphanedChild,
    SealedBatch,
    StoredFold,
    SubmissionKey,
    TaskFilter,
    TaskPage,
    TaskRow,
    TaskStage,
    WebhookRow,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

SELECT_EVENTS: Final = (
    "SELECT sequence, body FROM events "
    "WHERE task = (SELECT number FROM tasks WHERE task_id = ?) AND sequence > ? ORDER BY sequence"
)
_SELECT_PREVIOUS: Final = (
    "SELECT coalesce(max(sequence), 0) FROM events "
    "WHERE task = (SELECT number FROM tasks WHERE task_id = ?) AND sequence <= ?"
)
_SELECT_LAST_EVENTS: Final = (
    "SELECT sequence, body FROM events WHERE task = ? ORDER BY sequence DESC LIMIT 2"
)
# Deletes up to ?2 events of a task, the oldest first.
DELETE_EVENTS: Final = (
    "DELETE FROM events WHERE task = (SELECT number FROM tasks WHERE task_id = ?1) "
    "AND sequence < coalesce((SELECT sequence FROM events "
    "WHERE task = (SELECT number FROM tasks WHERE task_id = ?1) "
    "ORDER BY sequence LIMIT 1 OFFSET ?2), 9223372036854775807)"
)
_RESTORE: Final = "restore a copy, or use another data directory"
# The time that a process has to become the owner after it has locked a journal.
_CLAIM_S: Final = 10.0
# The time to wait for the end of a killed process.
_KILL_S: Final = 10.0
_POLL_S: Final = 0.002


class SqliteStore:
    """A `JournalStore` on SQLite in WAL mode.

    With `normal`, commits survive the death of the process. A write takes microseconds then, so it
    runs at once. With `full`, commits also survive a power failure. Each write waits for the disk,
    so all writes run in a thread, in the order of their calls. Reads always run at once.
    """

    def __init__(
        self,
        path: Path,
        claim: Claim,
        synchronous: Synchronous,
        lock: FileLock,
        keyring: Keyring | None,
    ) -> None:
        """Use a claimed file and its lock. `open` and `take_over` claim one."""
        self._path = path
        self._keyring = keyring
        # `prepare_content` has encrypted all content.
        self._cipher = RowCipher.open(keyring, claim.journal_id, path, is_strict=True)
        self._lock = lock
        self._write_executor = (
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
            if synchronous == "full"
            else None
        )
        # A checkpoint waits for the disk, too.
        self._checkpoint_executor = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="journal-log"
        )
        self.id: str = claim.journal_id
        self.epoch: int = claim.epoch
        self.needs_checkpoint: bool = False
        self._is_closed = False
        self.was_lost: bool = claim.was_lost
        # The numbers of unfinished tasks.
        self._numbers: dict[str, int] = {}
        self._next_number = 1
        # The heads of unfinished tasks that are not in their rows yet; see `_save_heads`.
        self._unsaved_heads: dict[str, int] = {}
        with contextlib.ExitStack() as undo:
            self._writer = SqliteWriter(path, claim.epoch, synchronous, claim.journal_id)
            undo.callback(self._writer.connection.close)
            self._reader = connect(path)
            undo.callback(self._reader.close)
            self._checkpointer = Checkpointer(path)
            undo.callback(self._checkpointer.close)
            self.clock: Clock = Clock(read_clock(self._reader))
            with translate_all_errors(path):
                self._load()
            if keyring is not None and keyring.is_encrypting:
                keyring.add_encrypted_journal(path.name)
            undo.pop_all()

    @classmethod
    def open(
        cls, path: Path, *, synchronous: Synchronous = "normal", keyring: Keyring | None = None
    ) -> Self:
        """Open a journal's file, or create it, and become its only owner.

        A journal of an earlier version is converted. If the keyring has data keys, all content is
        encrypted.

        Raises:
            ConfigurationError: it is encrypted under a key that the keyring does not have.
            JournalUnavailableError: it has a living owner, it can't be read or written, or an
                unfinished task was changed by another program.
        """
        create_file(path)
        with contextlib.ExitStack() as undo:
            lock = FileLock.acquire(path)
            undo.callback(lock.close)
            with _open_claiming(path) as connection:
                claim = claim_journal(
                    connection,
                    path,
                    lambda file, journal_id: prepare_content(file, journal_id, path, keyring),
                )
                try:
                    store = cls(path, claim, synchronous, lock, keyring)
                except BaseException:
                    # A journal that waits for a takeover must wait for the next attempt.
                    release_journal(connection, claim.epoch, for_takeover=claim.was_lost)
                    raise
            undo.pop_all()
            return store

    @classmethod
    def take_over(
        cls, path: Path, *, synchronous: Synchronous = "normal", keyring: Keyring | None = None
    ) -> Self:
        """Kill the process whose lease has expired, and open its journal.

        It blocks until that process is gone. Of concurrent takeovers, one succeeds.

        Raises:
            JournalUnavailableError: the lease holds, the process can't be killed, another takeover
                was faster, or the file can't be opened.
        """
        if not _read_ownership(path).is_released:
            _remove_holder(path)
        return cls.open(path, synchronous=synchronous, keyring=keyring)

    async def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction; see `JournalStore`."""
        await self._run(self._commit, group)

    def _commit(self, group: CommitGroup) -> None:
        created = dict(zip(group.created, itertools.count(self._next_number), strict=False))
        events = self._event_rows(group.batches, created)
        if group.created or group.changed or group.keys or group.aliases or group.webhooks:
            with self._writer.transaction(events) as connection:
                self._write_rows(connection, group, created)
        else:
            self._writer.insert_events(events)
        self._numbers.update(created)
        self._next_number += len(created)
        for batch in group.batches:
            self._unsaved_heads[batch.task_id] = batch.first_sequence + batch.count - 1
        for row in group.changed.values():
            if row.is_ended:
                self._numbers.pop(row.task_id, None)
                self._unsaved_heads.pop(row.task_id, None)
        self.needs_checkpoint = self._checkpointer.add_written(
            sum([len(body) for _, _, body in events]), tasks=len(events)
        )

    async def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return batches that end after the sequence `after`; see `JournalStore`."""
        batches: list[bytes] = []
        with (
            translate_errors(self._path),
            contextlib.closing(self._reader.execute(SELECT_EVENTS, (task_id, after))) as rows,
        ):
            previous = self._previous(task_id, after)
            for sequence, body in rows:
                sealed = body
                if self._cipher.is_encrypting:
                    sealed = self._cipher.decrypt(body, event_place(task_id, previous, sequence))
                    previous = sequence
                limit_bytes -= len(sealed)
                if batches and limit_bytes < 0:
                    break
                batches.append(sealed)
        return batches

    async def find_rows(self, task_ids: Collection[str]) -> dict[str, TaskRow]:
        """Return the rows of those tasks that exist; see `JournalStore`."""
        return {row.task_id: row for row in self._read_rows(self._reader, task_ids)}

    async def find_keys(self, keys: Collection[str], *, now_ns: int) -> dict[str, SubmissionKey]:
        """Return those idempotency keys that have not expired; see `JournalStore`."""
        found: dict[str, SubmissionKey] = {}
        with translate_errors(self._path):
            for key in keys:
                columns = self._reader.execute(
                    "SELECT key, content_hash, task_id, expires_ns FROM keys "
                    "WHERE key = ? AND expires_ns > ?",
                    (key, now_ns),
                ).fetchone()
                if columns is not None:
                    found[key] = SubmissionKey(*columns)
        return found

    async def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task."""
        with translate_errors(self._path):
            columns = self._reader.execute(
                "SELECT snapshot, epoch, forwarded FROM folds "
                "WHERE task = (SELECT number FROM tasks WHERE task_id = ?)",
                (task_id,),
            ).fetchone()
        if columns is None:
            return None
        snapshot, epoch, forwarded = columns
        snapshot = self._cipher.decrypt(snapshot, fold_place(task_id, epoch, forwarded))
        return StoredFold(snapshot, epoch, json.loads(forwarded))

    async def find_aliases(self, names: Collection[AliasName]) -> dict[AliasName, str]:
        """Return the task ids that aliases are bound to; see `JournalStore`."""
        with translate_errors(self._path):
            bound = {name: statements.find_alias(self._reader, *name) for name in names}
        return {name: task_id for name, task_id in bound.items() if task_id is not None}

    async def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks, the newest first; see `JournalStore`."""
        with translate_errors(self._path):
            return statements.find_webhooks(
                self._reader, self._cipher, task_id=task_id, states=states, limit=limit
            )

    async def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return a page of rows; see `JournalStore`."""
        conditions = task_filter.list_conditions()
        where = " AND ".join(f"{text} ?" for text in conditions)
        values = list(conditions.values())
        with translate_errors(self._path):
            (total,) = self._reader.execute(
                " ".join(("SELECT count(*) FROM tasks WHERE", where)), values
            ).fetchone()
            if after is not None:
                where += " AND (status_time_ns < ? OR (status_time_ns = ? AND task_id > ?))"
                values += [after[0], after[0], after[1]]
            order = "ORDER BY status_time_ns DESC, task_id LIMIT ?"
            rows = self._reader.execute(
                statements.select_tasks(" ".join(("WHERE", where, order))), [*values, limit]
            ).fetchall()
        return TaskPage([statements.parse_task(row, self._cipher) for row in rows], total)

    async def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        return self._select_tasks(statements.SELECT_UNFINISHED)

    async def list_ended(self, age_ns: int, *, stage: TaskStage, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended long ago; see `JournalStore`."""
        return self._select_tasks(statements.SELECT_ENDED, stage, age_ns, limit)

    async def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds; see `JournalStore`."""
        await self._run(self._compact, folds)

    def _compact(self, folds: Mapping[str, StoredFold]) -> None:
        with self._writer.transaction() as connection:
            for task_id, fold in folds.items():
                forwarded = json.dumps(dict(fold.forwarded))
                place = fold_place(task_id, fold.epoch, forwarded)
                connection.execute(
                    "INSERT INTO folds SELECT number, ?, ?, ? FROM tasks WHERE task_id = ?",
                    (fold.epoch, self._cipher.encrypt(fold.snapshot, place), forwarded, task_id),
                )
            self._set_stage(connection, folds, TaskStage.COMPACTED)
        self.needs_checkpoint = self._checkpointer.add_written(
            sum(len(fold.snapshot) for fold in folds.values()), tasks=len(folds)
        )

    async def delete_events(self, task_ids: Sequence[str], *, limit: int) -> list[str]:
        """Delete the oldest events of compacted tasks; see `JournalStore`."""
        return await self._run(self._delete_events, task_ids, limit=limit)

    def _delete_events(self, task_ids: Sequence[str], *, limit: int) -> list[str]:
        cleared: list[str] = []
        with self._writer.transaction() as connection:
            remaining = limit
            for task_id in task_ids:
                # A reader checks only that the first batch of a read is there.
                deleted = connection.execute(DELETE_EVENTS, (task_id, remaining)).rowcount
                if deleted == remaining:
                    break
                remaining -= deleted
                cleared.append(task_id)
            self._set_stage(connection, cleared, TaskStage.CLEARED)
        self.needs_checkpoint = self._checkpointer.add_written(0, tasks=limit)
        return cleared

    async def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks; see `JournalStore`."""
        await self._run(self._delete_tasks, task_ids)

    def _delete_tasks(self, task_ids: Sequence[str]) -> None:
        with self._writer.transaction() as connection:
            values = [(task_id,) for task_id in task_ids]
            connection.executemany(
                "DELETE FROM folds WHERE task = (SELECT number FROM tasks WHERE task_id = ?)",
                values,
            )
            connection.executemany("DELETE FROM tasks WHERE task_id = ?", values)
            statements.delete_aliases(connection, task_ids)
            statements.delete_webhooks(connection, task_ids)
        self.needs_checkpoint = self._checkpointer.add_written(0, tasks=len(task_ids))

    async def checkpoint(self) -> bool:
        """Move the write-ahead log into the file; see `JournalStore`."""
        self._check_open()
        is_complete = await asyncio.wrap_future(
            self._checkpoint_executor.submit(self._checkpointer.run)
        )
        if is_complete:
            self.needs_checkpoint = False
        return is_complete

    def vacuum(self) -> None:
        """Rewrite the whole file without its unused space. No write runs meanwhile."""
        with translate_errors(self._path):
            self._writer.connection.execute("VACUUM")

    async def renew_lease(self, lease_s: float) -> None:
        """Extend the lease, and delete expired keys and aliases; see `JournalStore`."""
        await self._run(self._renew_lease, lease_s)

    def _renew_lease(self, lease_s: float) -> None:
        self._writer.check_file()
        with self._writer.transaction() as connection:
            until_s = time.monotonic() + lease_s
            connection.execute("UPDATE meta SET lease_until_s = ?", (until_s,))
            write_clock(connection, self.clock, self.epoch)
            connection.execute(
                "DELETE FROM keys WHERE rowid IN "
                "(SELECT rowid FROM keys WHERE expires_ns <= ? LIMIT 1000)",
                (self.clock.age_ns(),),
            )
            statements.expire_aliases(connection, journal_id=self.id, age_ns=self.clock.age_ns())
            if self._keyring is not None and self._keyring.refresh():
                write_data_key(connection, self._keyring)
            self._save_heads(connection)

    async def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task."""
        await self._run(self._add_orphaned_child, child)

    def _add_orphaned_child(self, child: OrphanedChild) -> None:
        statement = child.user_statement.encode()
        stored = self._cipher.encrypt(statement, statement_place(child.task_id))
        with self._writer.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO orphaned_children VALUES (?, ?, ?, ?)",
                (child.task_id, child.account, child.until_s, stored),
            )

    async def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a child of an ended task."""
        await self._run(self._delete_orphaned_child, task_id)

    def _delete_orphaned_child(self, task_id: str) -> None:
        with self._writer.transaction() as connection:
            connection.execute("DELETE FROM orphaned_children WHERE task_id = ?", (task_id,))

    async def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        with translate_errors(self._path):
            rows = self._reader.execute(
                "SELECT task_id, account, until_s, user_statement FROM orphaned_children"
            ).fetchall()
            return [
                OrphanedChild(
                    task_id,
                    account,
                    until_s,
                    self._cipher.decrypt(statement, statement_place(task_id)).decode(),
                )
                for task_id, account, until_s, statement in rows
            ]

    async def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal; see `JournalStore`. It blocks."""
        self._is_closed = True
        if self._write_executor is not None:
            self._write_executor.shutdown()
        self._checkpoint_executor.shutdown()
        connection = self._writer.connection
        with translate_errors(self._path):
            try:
                with transaction(connection):
                    if read_ownership(connection, self._path).epoch == self.epoch:
                        write_clock(connection, self.clock, self.epoch)
                        self._save_heads(connection)
                        release_journal(connection, self.epoch, for_takeover=for_takeover)
            finally:
                self._checkpointer.close()
                self._reader.close()
                connection.close()
                self._lock.close()

    def _write_rows(
        self, connection: sqlite3.Connection, group: CommitGroup, numbers: Mapping[str, int]
    ) -> None:
        """Write all of a group but its events. `numbers` has the numbers of created tasks."""
        if group.created:
            rows = {numbers[row.task_id]: row for row in group.created_rows}
            try:
                statements.insert_tasks(connection, rows, self._cipher)
            except sqlite3.IntegrityError as error:
                raise ClaimedError(str(self._path), "it has a task with this id") from error
        if group.changed:
            statements.update_tasks(connection, group.updated_rows, self._cipher)
        if group.keys:
            connection.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)",
                [(key.key, key.content_hash, key.task_id, key.expires_ns) for key in group.keys],
            )
        if group.aliases:
            statements.write_aliases(connection, group.aliases, age_ns=self.clock.age_ns())
        if group.webhooks:
            statements.write_webhooks(connection, group, self._cipher)

    def _event_rows(
        self, batches: Sequence[SealedBatch], created: Mapping[str, int]
    ) -> list[EventRow]:
        """Return the rows of batches. `created` has the numbers of tasks that are new."""
        numbers = self._numbers
        bodies = self._cipher.encrypt_events(batches)
        return [
            (
                numbers.get(batch.task_id) or created[batch.task_id],
                batch.first_sequence + batch.count - 1,
                body,
            )
            for batch, body in zip(batches, bodies, strict=True)
        ]

    def _save_heads(self, connection: sqlite3.Connection) -> None:
        """Write the heads of unfinished tasks to their rows.

        If another program removes the last events of a task afterwards, the journal is refused.
        """
        rows = self._read_rows(connection, self._unsaved_heads)
        statements.update_tasks(connection, rows, self._cipher)
        self._unsaved_heads.clear()

    async def _run(self, write: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a write at once, or in the thread if it waits for the disk.

        Raises:
            JournalUnavailableError: the store is closed.
        """
        if self._write_executor is None:
            return write(*args, **kwargs)
        self._check_open()
        return await asyncio.wrap_future(self._write_executor.submit(write, *args, **kwargs))

    def _check_open(self) -> None:
        if self._is_closed:
            raise JournalUnavailableError(str(self._path), "it is closed; open it again")

    def _read_rows(self, connection: sqlite3.Connection, task_ids: Iterable[str]) -> list[TaskRow]:
        with translate_errors(self._path):
            return statements.read_tasks(connection, task_ids, self._cipher)

    def _set_stage(
        self, connection: sqlite3.Connection, task_ids: Iterable[str], stage: TaskStage
    ) -> None:
        connection.executemany(
            "UPDATE tasks SET stage = ? WHERE task_id = ?",
            [(stage, task_id) for task_id in task_ids],
        )

    def _select_tasks(self, query: str, *values: int) -> list[TaskRow]:
        with translate_errors(self._path):
            rows = self._reader.execute(query, values).fetchall()
        return [statements.parse_task(columns, self._cipher) for columns in rows]

    def _previous(self, task_id: str, after: int) -> int:
        """Return the last sequence of the batch before the first that ends after `after`."""
        if not self._cipher.is_encrypting:
            return 0
        previous: int = self._reader.execute(_SELECT_PREVIOUS, (task_id, after)).fetchone()[0]
        return previous

    def _load(self) -> None:
        """Read the numbers of unfinished tasks, and continue the clock after the last event.

        Raises:
            JournalUnavailableError: the last events of an unfinished task are missing or changed.
        """
        (last_number,) = self._reader.execute("SELECT max(number) FROM tasks").fetchone()
        self._next_number = (last_number or 0) + 1
        for number, *columns in self._reader.execute(statements.SELECT_NUMBERED).fetchall():
            row = statements.parse_task(columns, self._cipher)
            if statements.lacks_events(columns):
                problem = f"the last events of task {row.task_id} are missing"
                raise JournalUnavailableError(str(self._path), f"{problem}; {_RESTORE}")
            self._numbers[row.task_id] = number
            self._advance_clock(row.task_id, number)
        ended = self._reader.execute(statements.SELECT_LAST_ENDED).fetchone()
        if ended is not None:
            # Damage of an ended task is reported when the task is read.
            with contextlib.suppress(JournalUnavailableError, DecodeError):
                self._advance_clock(*ended)

    def _advance_clock(self, task_id: str, number: int) -> None:
        """Continue the clock after the last event of a task."""
        (sequence, body), *before = self._reader.execute(_SELECT_LAST_EVENTS, (number,)).fetchall()
        previous = before[0][0] if before else 0
        sealed = self._cipher.decrypt(body, event_place(task_id, previous, sequence))
        self.clock.advance_to(parse_header(sealed).time.ToNanoseconds())


@contextlib.contextmanager
def _open_claiming(path: Path) -> Iterator[sqlite3.Connection]:
    with translate_all_errors(path), contextlib.closing(connect(path)) as connection:
        # A file that exists keeps its size of pages.
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        # The owner and the epoch must survive a power failure. Otherwise two owners could write
        # different events under the same epoch.
        connection.execute("PRAGMA synchronous = FULL")
        # Plain content that `prepare_content` encrypts is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        yield connection


def _read_ownership(path: Path) -> Ownership:
    with open_read_only(path) as connection:
        return read_ownership(connection, path)


def _remove_holder(path: Path) -> None:
    """Kill the process that has a journal open although its lease has expired.

    Only the process that holds the lock is killed. If the journal names another owner, the holder
    is about to become the owner, and has some time for that.
    """
    started_s = time.monotonic()
    killed_s: float | None = None
    while True:
        # Read in this order: the next holder of the lock is the journal's owner only later.
        holder = find_holder(path)
        ownership = _read_ownership(path)
        now_s = time.monotonic()
        if ownership.expired_for_s < 0:
            problem = (
                f"process {ownership.owner.pid} has it; "
                f"its lease holds {-ownership.expired_for_s:.1f} s"
            )
            raise JournalUnavailableError(str(path), problem)
        if holder is None:
            return
        if has_lock(path):
            raise JournalUnavailableError(str(path), "this process has it open already")
        if killed_s is None and (holder == ownership.owner or now_s > started_s + _CLAIM_S):
            kill_holder(path, holder)
            killed_s = now_s
        if killed_s is not None and now_s > killed_s + _KILL_S:
            name = f"process {holder.pid}" if holder.pid else "a process elsewhere"
            problem = f"{name} has it and can't be killed; kill it, then try again"
            raise JournalUnavailableError(str(path), problem)
        time.sleep(_POLL_S)
