"""Stores a journal in one SQLite file: one row a commit; events of ended tasks in rows by task."""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from trunkline.errors import JournalUnavailableError
from trunkline.journal.clock import Clock
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite import statements as aliases
from trunkline.journal.sqlite import statements as rows
from trunkline.journal.sqlite import statements as webhooks
from trunkline.journal.sqlite.batch_index import BatchIndex, pack_batches, unpack_spans
from trunkline.journal.sqlite.connection import (
    connect,
    open_read_only,
    translate_all_errors,
    translate_errors,
)
from trunkline.journal.sqlite.schema import (
    Claim,
    claim_journal,
    read_clock,
    read_ownership,
    release_journal,
    write_clock,
)
from trunkline.journal.sqlite.settling import Settler, read_batches
from trunkline.journal.sqlite.task_id_filter import TaskIdFilter
from trunkline.journal.sqlite.writer import Checkpointer, SqliteWriter, Synchronous
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

# The time that a killed process has for ending.
_KILL_S: Final = 10.0


class SqliteStore:
    """A `JournalStore` on SQLite in WAL mode.

    With `normal`, commits survive the death of the process. With `full`, they also survive a power
    failure, and each commit waits for the disk: call `commit` in a thread then.
    """

    def __init__(self, path: Path, claimed: Claim, synchronous: Synchronous) -> None:
        """Use a claimed file. To claim one, call `open` or `take_over`."""
        self._path = path
        self.id: str = claimed.journal_id
        self.epoch: int = claimed.epoch
        self.needs_checkpoint: bool = False
        self.was_lost: bool = claimed.was_lost
        """The previous owner did not release the journal."""
        with contextlib.ExitStack() as undo:
            self._writer = SqliteWriter(path, claimed.epoch, synchronous, claimed.journal_id)
            undo.callback(self._writer.connection.close)
            self._reader = connect(path)
            undo.callback(self._reader.close)
            self._checkpointer = Checkpointer(path)
            undo.callback(self._checkpointer.close)
            self.clock: Clock = Clock(read_clock(self._reader))
            self._batch_index = BatchIndex()
            self._task_ids = TaskIdFilter()
            self._settler = Settler(str(path), self._batch_index)
            self._load()
            undo.pop_all()

    @classmethod
    def open(cls, path: Path, *, synchronous: Synchronous = "normal") -> Self:
        """Open a journal's file, or create it, and become its only owner.

        Raises:
            JournalUnavailableError: it has a living owner, or it can't be read or written.
        """
        _make_file(path)
        with translate_all_errors(path), contextlib.closing(connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            # The owner and the epoch must survive a power failure. Otherwise two owners could write
            # different events under the same epoch.
            connection.execute("PRAGMA synchronous = FULL")
            claimed = claim_journal(connection, path)
            try:
                return cls(path, claimed, synchronous)
            except BaseException:
                # A journal that waits for a takeover keeps waiting: the next attempt may succeed.
                release_journal(connection, claimed.epoch, for_takeover=claimed.was_lost)
                raise

    @classmethod
    def take_over(cls, path: Path, *, synchronous: Synchronous = "normal") -> Self:
        """Kill the process whose lease has expired, and open its journal.

        It blocks until that process is gone. Of concurrent takeovers, one succeeds.

        Raises:
            JournalUnavailableError: the lease holds, the process can't be killed, another takeover
                was faster, or the file can't be opened.
        """
        with open_read_only(path) as connection:
            ownership = read_ownership(connection, path)
        owner = ownership.owner
        if not ownership.is_released:
            if ownership.expired_for_s < 0:
                problem = (
                    f"process {owner.pid} has it; its lease holds {-ownership.expired_for_s:.1f} s"
                )
                raise JournalUnavailableError(str(path), problem)
            if owner.is_this_process:
                raise JournalUnavailableError(str(path), "this process has it open already")
            if not owner.kill(timeout_s=_KILL_S):
                problem = f"process {owner.pid} has it and can't be killed; kill it, then try again"
                raise JournalUnavailableError(str(path), problem)
        return cls.open(path, synchronous=synchronous)

    def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction; see `JournalStore`."""
        if not group.batches:
            self._commit_rows(group)
            return
        payload, places = pack_batches(batch.sealed for batch in group.batches)
        if group.created or group.changed or group.keys or group.aliases or group.webhooks:
            with self._writer.transaction(payload) as commit_id:
                self._write_rows(group)
        else:
            commit_id = self._writer.insert_commit(payload)
        self._settler.recent_commits.add(commit_id, payload)
        self._task_ids.add(group.created)
        self.needs_checkpoint = self._checkpointer.add_written(len(payload))
        self._batch_index.add(commit_id, group.batches, places)
        if group.changed:
            self._settler.add_ended(row.task_id for row in group.changed.values() if row.is_ended)

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return batches that end behind `after`; see `JournalStore`."""
        with translate_errors(self._path):
            places = self._batch_index.find(task_id, after, limit_bytes=limit_bytes)
            if places is not None:
                return read_batches(self._reader, places, str(self._path))
            return self._read_settled(task_id, after, limit_bytes)

    def find_row(self, task_id: str) -> TaskRow | None:
        """Return the row of a task."""
        if not self._task_ids.might_contain(task_id):
            return None
        with translate_errors(self._path):
            found = self._reader.execute(rows.SELECT_TASK, (task_id,)).fetchone()
        return None if found is None else self._row(found)

    def find_key(self, key: str, *, now_ns: int) -> SubmissionKey | None:
        """Return an idempotency key unless it has expired."""
        with translate_errors(self._path):
            found = self._reader.execute(
                "SELECT key, content_hash, task_id, expires_ns FROM keys "
                "WHERE key = ? AND expires_ns > ?",
                (key, now_ns),
            ).fetchone()
        return None if found is None else SubmissionKey(*found)

    def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task."""
        with translate_errors(self._path):
            found = self._reader.execute(
                "SELECT snapshot, epoch, forwarded FROM folds WHERE task_id = ?", (task_id,)
            ).fetchone()
        if found is None:
            return None
        snapshot, epoch, forwarded = found
        return StoredFold(snapshot, epoch, json.loads(forwarded))

    def find_alias(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias is bound to."""
        with translate_errors(self._path):
            return aliases.find_alias(self._reader, account, alias)

    def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks, the newest first; see `JournalStore`."""
        with translate_errors(self._path):
            return webhooks.find_webhooks(self._reader, task_id=task_id, states=states, limit=limit)

    def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return a page of rows; see `JournalStore`."""
        where, values = rows.filter_conditions(task_filter)
        with translate_errors(self._path):
            (total,) = self._reader.execute(
                " ".join(("SELECT count(*) FROM tasks WHERE", where)), values
            ).fetchone()
            if after is not None:
                where += " AND (status_time_ns < ? OR (status_time_ns = ? AND task_id > ?))"
                values += [after[0], after[0], after[1]]
            order = "ORDER BY status_time_ns DESC, task_id LIMIT ?"
            found = self._reader.execute(
                rows.select_tasks(" ".join(("WHERE", where, order))), [*values, limit]
            ).fetchall()
        return TaskPage([self._row(row) for row in found], total)

    def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        return [row for row in self._unsettled() if not row.is_ended]

    def list_ended(self, age_ns: int, *, is_compacted: bool, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended long ago; see `JournalStore`."""
        with translate_errors(self._path):
            found = self._reader.execute(
                rows.select_tasks("WHERE stage = ? AND ended_ns <= ? ORDER BY ended_ns LIMIT ?"),
                (3 if is_compacted else 1, age_ns, limit),
            ).fetchall()
        return [self._row(row) for row in found]

    def has_backlog(self) -> bool:
        """Return whether there is anything to settle or to delete."""
        return self._settler.has_work

    def settle(self, *, budget_bytes: int) -> bool:
        """Settle some ended tasks and delete unneeded rows; see `JournalStore`."""
        with self._writer.transaction():
            if self._settler.has_unused_commits:
                # The time of the latest event may be stored only in a row that is deleted now.
                write_clock(self._writer.connection, self.clock, self.epoch)
            self._settler.run_step(self._writer.connection, budget_bytes)
        self._settler.confirm()
        self.needs_checkpoint = self._checkpointer.add_written(2 * budget_bytes)
        return self._settler.has_more

    def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds; see `JournalStore`."""
        with self._writer.transaction():
            self._writer.connection.executemany(
                "INSERT OR REPLACE INTO folds VALUES (?, ?, ?, ?)",
                [
                    (task_id, one.epoch, one.snapshot, json.dumps(dict(one.forwarded)))
                    for task_id, one in folds.items()
                ],
            )
            self._writer.connection.executemany(
                "UPDATE tasks SET stage = 2, first_available = head + 1 WHERE task_id = ?",
                [(task_id,) for task_id in folds],
            )
        self._settler.add_compacted(folds)
        self.needs_checkpoint = self._checkpointer.add_written(
            sum(len(one.snapshot) for one in folds.values())
        )

    def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks; see `JournalStore`."""
        with self._writer.transaction():
            values = [(one,) for one in task_ids]
            self._writer.connection.executemany("DELETE FROM folds WHERE task_id = ?", values)
            self._writer.connection.executemany("DELETE FROM tasks WHERE task_id = ?", values)
            aliases.delete_aliases(self._writer.connection, task_ids)
            webhooks.delete_webhooks(self._writer.connection, task_ids)
        self.needs_checkpoint = self._checkpointer.add_written(0)

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file; see `JournalStore`."""
        is_all = self._checkpointer.run()
        if is_all:
            self.needs_checkpoint = False
        return is_all

    def vacuum(self) -> None:
        """Return unused space to the file system. It rewrites the whole file."""
        with self._writer.exclusive() as connection:
            connection.execute("VACUUM")

    def renew_lease(self, lease_s: float) -> None:
        """Extend the lease, and delete some expired keys and aliases."""
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
            aliases.expire_aliases(
                self._writer.connection, journal_id=self.id, age_ns=self.clock.age_ns()
            )

    def add_orphaned_child(self, stray: OrphanedChild) -> None:
        """Store a child of an ended task."""
        with self._writer.transaction():
            self._writer.connection.execute(
                "INSERT OR REPLACE INTO strays VALUES (?, ?, ?)",
                (stray.task_id, stray.account, stray.until_s),
            )

    def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a child of an ended task."""
        with self._writer.transaction():
            self._writer.connection.execute("DELETE FROM strays WHERE task_id = ?", (task_id,))

    def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        with translate_errors(self._path):
            found = self._reader.execute("SELECT task_id, account, until_s FROM strays").fetchall()
        return [OrphanedChild(*row) for row in found]

    def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal; see `JournalStore`."""
        with self._writer.exclusive() as connection:
            try:
                write_clock(connection, self.clock, self.epoch)
                release_journal(connection, self.epoch, for_takeover=for_takeover)
            finally:
                self._checkpointer.close()
                self._reader.close()
                connection.close()

    def _commit_rows(self, group: CommitGroup) -> None:
        """Write a group without events."""
        with self._writer.transaction():
            self._write_rows(group)
        self.needs_checkpoint = self._checkpointer.add_written(0)

    def _write_rows(self, group: CommitGroup) -> None:
        connection = self._writer.connection
        if group.created:
            connection.executemany(
                rows.INSERT_TASK, map(rows.insert_values, group.created.values())
            )
        if group.changed:
            connection.executemany(
                rows.UPDATE_TASK, map(rows.update_values, group.changed.values())
            )
        if group.keys:
            connection.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)",
                [(one.key, one.content_hash, one.task_id, one.expires_ns) for one in group.keys],
            )
        if group.aliases:
            aliases.write_aliases(connection, group.aliases, age_ns=self.clock.age_ns())
        if group.webhooks:
            webhooks.write_webhooks(connection, group.webhooks)

    def _load(self) -> None:
        """Index the batches of all unsettled tasks, and queue what can be settled or deleted.

        Rows of `settled` of such tasks are deleted: settling them starts again.
        """
        self._writer.connection.execute(
            "DELETE FROM settled WHERE task_id IN (SELECT task_id FROM tasks WHERE stage = 0)"
        )
        unsettled = {row.task_id for row in self._unsettled()}
        header = None
        for commit_id, payload in self._reader.execute(
            "SELECT id, payload FROM commits ORDER BY id"
        ):
            batches, places = [], []
            for offset, size_bytes in unpack_spans(payload):
                header = parse_header(payload[offset : offset + size_bytes])
                if header.task_id in unsettled:
                    batches.append(
                        SealedBatch(header.task_id, header.first_sequence, header.count, b"")
                    )
                    places.append((offset, size_bytes))
            self._batch_index.add(commit_id, batches, places)
            if not self._batch_index.needs_commit(commit_id):
                self._settler.add_unused_commit(commit_id)
        if header is not None:
            self.clock.advance_to(header.time.ToNanoseconds())
        self._settler.add_ended(row.task_id for row in self._unsettled() if row.is_ended)
        self._task_ids.add(one for (one,) in self._reader.execute("SELECT task_id FROM tasks"))
        compacted = self._reader.execute("SELECT task_id FROM tasks WHERE stage = 2").fetchall()
        self._settler.add_compacted(task_id for (task_id,) in compacted)

    def _unsettled(self) -> list[TaskRow]:
        with translate_errors(self._path):
            found = self._reader.execute(
                rows.select_tasks("WHERE stage = 0 ORDER BY create_time_ns")
            ).fetchall()
        return [self._row(row) for row in found]

    def _row(self, found: tuple[Any, ...]) -> TaskRow:
        """Return a row with its current head. Not every commit updates an unsettled task's row."""
        row = TaskRow(*found)
        head = self._batch_index.head(row.task_id)
        return row if head is None or head == row.head else replace(row, head=head)

    def _read_settled(self, task_id: str, after: int, limit_bytes: int) -> list[bytes]:
        batches: list[bytes] = []
        found = self._reader.execute(
            "SELECT payload FROM settled WHERE task_id = ? AND last_sequence > ? "
            "ORDER BY first_sequence",
            (task_id, after),
        )
        with contextlib.closing(found):
            for (payload,) in found:
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


def _make_file(path: Path) -> None:
    """Create the file if it does not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only the user may read the file, and SQLite gives its other files the same mode. An
        # existing file is not opened: closing it would drop this process's locks on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        problem = f"{error.strerror or error}; use another data directory"
        raise JournalUnavailableError(str(path), problem) from error
