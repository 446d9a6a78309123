"""Stores a journal in one SQLite file; see `schema` for its tables."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from trunkline.database import (
    FileLock,
    Synchronous,
    connect,
    create_file,
    find_holder,
    has_lock,
    kill_holder,
    open_read_only,
    translate_all_errors,
    translate_errors,
)
from trunkline.encryption import Keyring
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.clock import Clock
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite import statements
from trunkline.journal.sqlite.batch_index import BatchIndex, pack_batches, unpack_spans
from trunkline.journal.sqlite.chain import (
    COMMITS,
    FOLDS,
    HashChains,
    Link,
    commit_place,
    fold_place,
    settled_place,
    stray_place,
)
from trunkline.journal.sqlite.chain_walk import ChainWalk, describe_change
from trunkline.journal.sqlite.schema import (
    Claim,
    Ownership,
    TaskStage,
    claim_journal,
    read_clock,
    read_ownership,
    release_journal,
    write_clock,
)
from trunkline.journal.sqlite.settling import Settler, delete_settled, read_batches
from trunkline.journal.sqlite.task_id_filter import TaskIdFilter
from trunkline.journal.sqlite.writer import (
    Checkpointer,
    CommitRow,
    SqliteWriter,
)
from trunkline.journal.store import (
    CommitGroup,
    OrphanedChild,
    SealedBatch,
    StoredFold,
    SubmissionKey,
    TaskFilter,
    TaskPage,
    TaskRow,
    WebhookRow,
)

# The time that a process has to become the owner after it has locked a journal.
_CLAIM_S: Final = 10.0
# The time to wait for the end of a killed process.
_KILL_S: Final = 10.0
_POLL_S: Final = 0.002


class SqliteStore:
    """A `JournalStore` on SQLite in WAL mode.

    With `normal`, commits survive the death of the process. With `full`, they also survive a power
    failure, and each commit waits for the disk: call `commit` in a thread then.
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
        self._cipher = statements.open_cipher(keyring, claim.journal_id, path)
        self._chains = HashChains(claim.journal_id, keyring)
        self._lock = lock
        self.id: str = claim.journal_id
        self.epoch: int = claim.epoch
        self.needs_checkpoint: bool = False
        self.was_lost: bool = claim.was_lost
        """The previous owner did not release the journal."""
        with contextlib.ExitStack() as undo:
            self._writer = SqliteWriter(path, claim.epoch, synchronous, claim.journal_id)
            undo.callback(self._writer.connection.close)
            self._reader = connect(path)
            undo.callback(self._reader.close)
            self._checkpointer = Checkpointer(path)
            undo.callback(self._checkpointer.close)
            self.clock: Clock = Clock(read_clock(self._reader))
            self._batch_index = BatchIndex()
            self._task_ids = TaskIdFilter()
            self._settler = Settler(str(path), self._batch_index, self._chains, self._cipher)
            with translate_all_errors(path), self._writer.transaction():
                self._load()
                self._sign()
            if keyring is not None:
                keyring.add_chain(path.name)
            undo.pop_all()

    @classmethod
    def open(
        cls, path: Path, *, synchronous: Synchronous = "normal", keyring: Keyring | None = None
    ) -> Self:
        """Open a journal's file, or create it, and become its only owner.

        The keyring signs the journal and, if it has data keys, encrypts it.

        Raises:
            ConfigurationError: it is encrypted under a key that the keyring does not have.
            JournalUnavailableError: it has a living owner, it can't be read or written, or its
                events were changed by another program.
        """
        create_file(path)
        with contextlib.ExitStack() as undo:
            lock = FileLock.acquire(path)
            undo.callback(lock.close)
            with _open_claiming(path) as connection:
                had_chains = keyring is not None and keyring.has_chain(path.name)
                claim = claim_journal(connection, path, had_chains=had_chains)
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

    def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction; see `JournalStore`."""
        if not group.batches:
            self._commit_rows(group)
            return
        payload, spans = pack_batches(batch.sealed for batch in group.batches)
        commit_id = self._chains.next_number(COMMITS)
        stored: bytes | bytearray = payload
        if self._cipher is not None:
            stored = self._cipher.encrypt(payload, commit_place(commit_id))
        link = self._chains.follow(COMMITS, stored)
        row = CommitRow(commit_id, stored, link.hash)
        if group.created or group.changed or group.keys or group.aliases or group.webhooks:
            with self._writer.transaction(row):
                self._write_rows(group)
        else:
            self._writer.insert_commit(row)
        self._chains.add(COMMITS, link)
        self._settler.recent_commits.add(commit_id, payload)
        self._task_ids.add(group.created)
        self.needs_checkpoint = self._checkpointer.add_written(len(payload))
        self._batch_index.add(commit_id, group.batches, spans)
        if group.changed:
            self._settler.add_ended(row.task_id for row in group.changed.values() if row.is_ended)

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return batches that end after the sequence `after`; see `JournalStore`."""
        with translate_errors(self._path):
            positions = self._batch_index.find(task_id, after, limit_bytes=limit_bytes)
            if positions is not None:
                return read_batches(self._reader, positions, str(self._path), self._cipher)
            return self._read_settled(task_id, after, limit_bytes)

    def find_row(self, task_id: str) -> TaskRow | None:
        """Return the row of a task."""
        if not self._task_ids.might_contain(task_id):
            return None
        with translate_errors(self._path):
            columns = self._reader.execute(statements.SELECT_TASK, (task_id,)).fetchone()
        return None if columns is None else self._row(columns)

    def find_key(self, key: str, *, now_ns: int) -> SubmissionKey | None:
        """Return an idempotency key unless it has expired."""
        with translate_errors(self._path):
            columns = self._reader.execute(
                "SELECT key, content_hash, task_id, expires_ns FROM keys "
                "WHERE key = ? AND expires_ns > ?",
                (key, now_ns),
            ).fetchone()
        return None if columns is None else SubmissionKey(*columns)

    def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task."""
        with translate_errors(self._path):
            columns = self._reader.execute(
                "SELECT snapshot, epoch, forwarded FROM folds WHERE task_id = ?", (task_id,)
            ).fetchone()
        if columns is None:
            return None
        snapshot, epoch, forwarded = columns
        if self._cipher is not None:
            snapshot = self._cipher.decrypt(snapshot, fold_place(task_id, epoch, forwarded))
        return StoredFold(snapshot, epoch, json.loads(forwarded))

    def find_alias(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias is bound to."""
        with translate_errors(self._path):
            return statements.find_alias(self._reader, account, alias)

    def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks, the newest first; see `JournalStore`."""
        with translate_errors(self._path):
            return statements.find_webhooks(
                self._reader, self._cipher, task_id=task_id, states=states, limit=limit
            )

    def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return a page of rows; see `JournalStore`."""
        where, values = statements.filter_conditions(task_filter)
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
        return TaskPage([self._row(columns) for columns in rows], total)

    def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        return [row for row in self._unsettled() if not row.is_ended]

    def list_ended(self, age_ns: int, *, is_compacted: bool, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended long ago; see `JournalStore`."""
        with translate_errors(self._path):
            rows = self._reader.execute(
                statements.SELECT_ENDED,
                (TaskStage.CLEARED if is_compacted else TaskStage.SETTLED, age_ns, limit),
            ).fetchall()
        return [self._row(columns) for columns in rows]

    def has_backlog(self) -> bool:
        """Return whether `settle` has work; see `JournalStore`."""
        return self._settler.has_work

    def settle(self, *, budget_bytes: int) -> bool:
        """Settle some ended tasks and delete unneeded rows; see `JournalStore`."""
        with self._chains.transaction(), self._writer.transaction():
            if self._settler.has_unused_commits:
                # The clock's latest time may be stored only in a row that this step deletes.
                write_clock(self._writer.connection, self.clock, self.epoch)
            self._settler.run_step(self._writer.connection, budget_bytes)
            self._sign()
        self._settler.confirm()
        self.needs_checkpoint = self._checkpointer.add_written(2 * budget_bytes)
        return self._settler.has_more

    def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds; see `JournalStore`."""
        with self._chains.transaction(), self._writer.transaction():
            self._writer.connection.executemany(
                "INSERT INTO folds VALUES (?, ?, ?, ?, ?, ?)",
                [self._fold_values(task_id, fold) for task_id, fold in folds.items()],
            )
            self._writer.connection.executemany(
                "UPDATE tasks SET stage = ?, first_available = head + 1 WHERE task_id = ?",
                [(TaskStage.COMPACTED, task_id) for task_id in folds],
            )
            self._sign()
        self._settler.add_compacted(folds)
        self.needs_checkpoint = self._checkpointer.add_written(
            sum(len(fold.snapshot) for fold in folds.values())
        )

    def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks; see `JournalStore`."""
        with self._chains.transaction(), self._writer.transaction():
            values = [(task_id,) for task_id in task_ids]
            links = self._writer.connection.execute(
                "SELECT number, hash FROM folds WHERE task_id IN (SELECT value FROM json_each(?))",
                (json.dumps(task_ids),),
            )
            self._chains.remove(self._writer.connection, FOLDS, [Link(*row) for row in links])
            self._writer.connection.executemany("DELETE FROM folds WHERE task_id = ?", values)
            self._writer.connection.executemany("DELETE FROM tasks WHERE task_id = ?", values)
            statements.delete_aliases(self._writer.connection, task_ids)
            statements.delete_webhooks(self._writer.connection, task_ids)
            self._sign()
        self.needs_checkpoint = self._checkpointer.add_written(0)

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file; see `JournalStore`."""
        is_complete = self._checkpointer.run()
        if is_complete:
            self.needs_checkpoint = False
        return is_complete

    def vacuum(self) -> None:
        """Rewrite the whole file without its unused space. The caller has the file alone."""
        with self._writer.exclusive() as connection:
            connection.execute("VACUUM")

    def renew_lease(self, lease_s: float) -> None:
        """Extend the lease, and delete expired keys and aliases; see `JournalStore`."""
        self._writer.check_file()
        with self._writer.transaction():
            until_s = time.monotonic() + lease_s
            self._writer.connection.execute("UPDATE meta SET lease_until_s = ?", (until_s,))
            write_clock(self._writer.connection, self.clock, self.epoch)
            self._writer.connection.execute(
                "DELETE FROM keys WHERE rowid IN "
                "(SELECT rowid FROM keys WHERE expires_ns <= ? LIMIT 1000)",
                (self.clock.age_ns(),),
            )
            statements.expire_aliases(
                self._writer.connection, journal_id=self.id, age_ns=self.clock.age_ns()
            )
            if self._keyring is not None and self._keyring.refresh():
                self._write_data_key()
            self._sign()

    def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task."""
        with self._writer.transaction():
            self._writer.connection.execute(
                "INSERT OR REPLACE INTO strays VALUES (?, ?, ?)",
                (child.task_id, child.account, child.until_s),
            )
            statement: str | bytes = child.user_statement
            if self._cipher is not None and statement:
                statement = self._cipher.encrypt(
                    child.user_statement.encode(), stray_place(child.task_id)
                )
            self._writer.connection.execute(
                "INSERT OR REPLACE INTO stray_users VALUES (?, ?)", (child.task_id, statement)
            )

    def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a child of an ended task."""
        with self._writer.transaction():
            self._writer.connection.execute("DELETE FROM strays WHERE task_id = ?", (task_id,))
            self._writer.connection.execute("DELETE FROM stray_users WHERE task_id = ?", (task_id,))

    def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        with translate_errors(self._path):
            rows = self._reader.execute(
                "SELECT task_id, account, until_s, coalesce(user_statement, '') "
                "FROM strays LEFT JOIN stray_users USING (task_id)"
            ).fetchall()
        return [
            OrphanedChild(task_id, account, until_s, self._decrypt_statement(statement, task_id))
            for task_id, account, until_s, statement in rows
        ]

    def _decrypt_statement(self, stored: str | bytes, task_id: str) -> str:
        if isinstance(stored, str) or self._cipher is None:
            return str(stored)
        return self._cipher.decrypt(stored, stray_place(task_id)).decode()

    def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal; see `JournalStore`."""
        with self._writer.exclusive() as connection:
            try:
                write_clock(connection, self.clock, self.epoch)
                self._chains.sign(connection, epoch=self.epoch, is_closed=True)
                release_journal(connection, self.epoch, for_takeover=for_takeover)
            finally:
                self._checkpointer.close()
                self._reader.close()
                connection.close()
                self._lock.close()

    def _commit_rows(self, group: CommitGroup) -> None:
        """Write a group that has only aliases or webhooks."""
        with self._writer.transaction():
            self._write_rows(group)
        self.needs_checkpoint = self._checkpointer.add_written(0)

    def _write_rows(self, group: CommitGroup) -> None:
        connection = self._writer.connection
        if group.created:
            connection.executemany(
                statements.INSERT_TASK,
                [statements.insert_values(row, self._cipher) for row in group.created.values()],
            )
        if group.changed:
            connection.executemany(
                statements.UPDATE_TASK,
                [statements.update_values(row, self._cipher) for row in group.changed.values()],
            )
        if group.keys:
            connection.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)",
                [(key.key, key.content_hash, key.task_id, key.expires_ns) for key in group.keys],
            )
        if group.aliases:
            statements.write_aliases(connection, group.aliases, age_ns=self.clock.age_ns())
        if group.webhooks:
            statements.write_webhooks(connection, group.webhooks, self._cipher)

    def _fold_values(self, task_id: str, fold: StoredFold) -> tuple[object, ...]:
        """Return the row of `folds` of a task, encrypted and linked."""
        forwarded = json.dumps(dict(fold.forwarded))
        place = fold_place(task_id, fold.epoch, forwarded)
        snapshot = fold.snapshot
        if self._cipher is not None:
            snapshot = self._cipher.encrypt(snapshot, place)
        link = self._chains.follow(FOLDS, snapshot, place)
        self._chains.add(FOLDS, link)
        return (task_id, fold.epoch, snapshot, forwarded, *link)

    def _sign(self) -> None:
        self._chains.sign(self._writer.connection, epoch=self.epoch)

    def _write_data_key(self) -> None:
        """Store the data key of new content, so that a lost keyring is noticed at the start."""
        if self._keyring is not None and self._keyring.is_encrypting:
            self._writer.connection.execute(
                "UPDATE meta SET data_key = ?", (self._keyring.current_id,)
            )

    def _check_data_key(self) -> None:
        """Check that the keyring has the data key that the journal was last written with.

        Raises:
            ConfigurationError: it has not.
        """
        (key_id,) = self._writer.connection.execute("SELECT data_key FROM meta").fetchone()
        if key_id and not (self._keyring is not None and self._keyring.has_data_key(key_id)):
            keyring = "no keyring" if self._keyring is None else f"not in {self._keyring.path}"
            problem = (
                f"is encrypted under the data key {key_id:08x}: {keyring}; restore the keyring "
                "that belongs to this journal: without it the journal can't be read"
            )
            raise ConfigurationError(f"journal {self._path}", problem)

    def _load(self) -> None:
        """Index the batches of all unsettled tasks, and queue what can be settled or deleted.

        Rows of `settled` of such tasks are deleted, because settling starts again.
        """
        connection = self._writer.connection
        self._check_data_key()
        head = self._chains.load(connection)
        self._write_data_key()
        rows = connection.execute(
            "SELECT rowid, number, hash FROM settled "
            "WHERE task_id IN (SELECT task_id FROM tasks WHERE stage = 0)"
        ).fetchall()
        delete_settled(connection, self._chains, rows)
        unsettled = {row.task_id for row in self._unsettled()}
        header = None
        walk = ChainWalk.start(connection, self.id, COMMITS, head)
        for commit_id, stored, digest in connection.execute(
            "SELECT id, payload, hash FROM commits ORDER BY id"
        ):
            # Settling would move changed events on and destroy the evidence.
            if problem := walk.step(commit_id, digest, stored):
                raise JournalUnavailableError(str(self._path), describe_change(problem))
            payload = self._decrypt_commit(commit_id, stored)
            batches, spans = [], []
            for offset, size_bytes in unpack_spans(payload):
                header = parse_header(payload[offset : offset + size_bytes])
                if header.task_id in unsettled:
                    batches.append(
                        SealedBatch(header.task_id, header.first_sequence, header.count, b"")
                    )
                    spans.append((offset, size_bytes))
            self._batch_index.add(commit_id, batches, spans)
            if not self._batch_index.needs_commit(commit_id):
                self._settler.add_unused_commit(commit_id)
        if problem := walk.finish():
            raise JournalUnavailableError(str(self._path), describe_change(problem))
        if header is not None:
            self.clock.advance_to(header.time.ToNanoseconds())
        self._settler.add_ended(row.task_id for row in self._unsettled() if row.is_ended)
        self._task_ids.add(
            task_id for (task_id,) in self._reader.execute("SELECT task_id FROM tasks")
        )
        compacted = self._reader.execute(
            statements.SELECT_COMPACTED_IDS, (TaskStage.COMPACTED,)
        ).fetchall()
        self._settler.add_compacted(task_id for (task_id,) in compacted)

    def _decrypt_commit(self, commit_id: int, stored: bytes) -> bytes:
        if self._cipher is None:
            return stored
        return self._cipher.decrypt(stored, commit_place(commit_id))

    def _unsettled(self) -> list[TaskRow]:
        with translate_errors(self._path):
            rows = self._reader.execute(statements.SELECT_UNSETTLED).fetchall()
        return [self._row(columns) for columns in rows]

    def _row(self, columns: tuple[Any, ...]) -> TaskRow:
        """Return a row with its current head, because most commits do not update the row."""
        row = statements.decrypt_metadata(TaskRow(*columns), self._cipher)
        head = self._batch_index.head(row.task_id)
        return row if head is None or head == row.head else replace(row, head=head)

    def _read_settled(self, task_id: str, after: int, limit_bytes: int) -> list[bytes]:
        batches: list[bytes] = []
        rows = self._reader.execute(
            "SELECT payload, first_sequence, last_sequence FROM settled "
            "WHERE task_id = ? AND last_sequence > ? ORDER BY first_sequence",
            (task_id, after),
        )
        with contextlib.closing(rows):
            for payload, first, last in rows:
                if self._cipher is not None:
                    payload = self._cipher.decrypt(payload, settled_place(task_id, first, last))
                for offset, size_bytes in unpack_spans(payload):
                    sealed = payload[offset : offset + size_bytes]
                    header = parse_header(sealed)
                    if header.first_sequence + header.count - 1 <= after:
                        continue
                    limit_bytes -= size_bytes
                    if batches and limit_bytes < 0:
                        return batches
                    batches.append(sealed)
        return batches


@contextlib.contextmanager
def _open_claiming(path: Path) -> Iterator[sqlite3.Connection]:
    with translate_all_errors(path), contextlib.closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        # The owner and the epoch must survive a power failure. Otherwise two owners could write
        # different events under the same epoch.
        connection.execute("PRAGMA synchronous = FULL")
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
