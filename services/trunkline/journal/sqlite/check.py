"""Checks all content of a journal's file and reports damage. It changes nothing."""

import contextlib
import sqlite3
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from trunkline.core.database import connect_in_memory, find_damage, find_holder, open_read_only
from trunkline.core.encryption import Keyring, is_encrypted
from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.sqlite.migration import convert
from trunkline.journal.sqlite.row_cipher import (
    RowCipher,
    event_place,
    fold_place,
    webhook_place,
)
from trunkline.journal.sqlite.schema import SCHEMA_VERSION, read_ownership, read_version
from trunkline.journal.sqlite.statements import lacks_events, parse_task, select_tasks
from trunkline.journal.store import TaskRow, TaskStage
from trunkline.v1 import snapshot_pb2, task_pb2, webhook_service_pb2

# The largest number of problems in a report. More would add no information.
_MAX_PROBLEMS: Final = 20


@dataclass(slots=True)
class CheckReport:
    """The result of a check of one journal."""

    path: Path
    journal_id: str = ""
    owner_pid: int = 0
    """The pid of the process that has the journal open. It is 0 if no process has."""
    task_count: int = 0
    event_count: int = 0
    references: set[str] = field(default_factory=set)
    """References from the artifacts and messages of tasks to the tasks' own files."""
    encrypted_count: int = 0
    """The number of encrypted batches and folds."""
    plain_count: int = 0
    """The number of other batches and folds."""
    problems: list[str] = field(default_factory=list)
    """The damage, one text for each problem."""


def check_journal(path: Path, keyring: Keyring | None = None) -> CheckReport:
    """Check a journal, which a process may have open.

    Encrypted journals can't be read without the keyring. It checks SQLite's structure, that each
    batch can be read, that sequences have no gaps, that the events of each task make a legal fold,
    and that the task's row agrees with it. With encryption, it also finds rows that another program
    changed, moved or cut out. Of a journal of an earlier version, a copy in memory is converted.
    """
    report = CheckReport(path)
    try:
        with open_read_only(path) as connection:
            # One transaction reads one consistent state.
            connection.execute("BEGIN")
            _check(connection, report, keyring)
    except JournalUnavailableError as error:
        report.problems.append(error.problem)
    del report.problems[_MAX_PROBLEMS:]
    return report


def _check(connection: sqlite3.Connection, report: CheckReport, keyring: Keyring | None) -> None:
    path = report.path
    ownership = read_ownership(connection, path)
    report.journal_id = ownership.journal_id
    holder = find_holder(path)
    report.owner_pid = 0 if holder is None else holder.pid
    report.problems += find_damage(connection)
    is_strict = keyring is not None and keyring.has_encrypted_journal(path.name)
    cipher = RowCipher.open(keyring, ownership.journal_id, path, is_strict=is_strict)
    if read_version(connection) == SCHEMA_VERSION:
        _Check(connection, report, cipher).run()
        return
    with contextlib.closing(connect_in_memory()) as copy:
        connection.backup(copy)
        convert(copy, cipher)
        _Check(copy, report, cipher).run()


class _Check:
    """One check of one journal."""

    def __init__(
        self, connection: sqlite3.Connection, report: CheckReport, cipher: RowCipher
    ) -> None:
        self._connection = connection
        self._report = report
        self._cipher = cipher

    def run(self) -> None:
        """Add all problems to the report."""
        rows = self._connection.execute(
            select_tasks("ORDER BY number").replace("SELECT", "SELECT number,", 1)
        ).fetchall()
        self._report.task_count = len(rows)
        for number, *columns in rows:
            self._check_task(number, columns)
        orphans = self._connection.execute(
            "SELECT count(DISTINCT task) FROM events WHERE task NOT IN (SELECT number FROM tasks)"
        )
        if count := orphans.fetchone()[0]:
            self._report.problems.append(f"it has events of {count} tasks that do not exist")
        self._check_webhooks({columns[0] for _, *columns in rows})

    def _check_task(self, number: int, columns: Sequence[Any]) -> None:
        task_id, stage = columns[0], columns[-2]
        try:
            row = parse_task(columns, self._cipher)
            if stage == TaskStage.READABLE:
                snapshot = self._fold(number, row)
            else:
                snapshot = self._read_fold(number, row)
            if row.ended_ns == 0 and lacks_events(columns):
                self._add_problem(task_id, "its last events are missing")
            _compare(self._report, row, snapshot)
        except JournalUnavailableError as error:
            self._add_problem(task_id, error.problem)
        except InvalidAgentResponseError as error:
            self._add_problem(task_id, error.problem)
        except Exception:  # noqa: BLE001  Any error of damaged content is reported.
            self._add_problem(task_id, "it can't be read")

    def _fold(self, number: int, row: TaskRow) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task's events."""
        fold = Fold(row.task_id)
        for sequence, stored in self._connection.execute(
            "SELECT sequence, CAST(body AS BLOB) FROM events WHERE task = ? ORDER BY sequence",
            (number,),
        ):
            place = event_place(row.task_id, fold.sequence, sequence)
            fold.apply(parse_batch(self._decrypt(stored, place)))
            if fold.sequence != sequence:
                problem = f"the batch at event {sequence} ends at event {fold.sequence}"
                raise JournalUnavailableError(str(self._report.path), problem)
        return fold.snapshot()

    def _read_fold(self, number: int, row: TaskRow) -> snapshot_pb2.TaskSnapshot:
        """Return the stored fold of a compacted task."""
        columns = self._connection.execute(
            "SELECT CAST(snapshot AS BLOB), epoch, forwarded FROM folds WHERE task = ?", (number,)
        ).fetchone()
        if columns is None:
            raise JournalUnavailableError(str(self._report.path), "its fold is missing")
        content = self._decrypt(columns[0], fold_place(row.task_id, *columns[1:]))
        return snapshot_pb2.TaskSnapshot.FromString(content)

    def _decrypt(self, stored: bytes, place: str) -> bytes:
        if is_encrypted(stored):
            self._report.encrypted_count += 1
        else:
            self._report.plain_count += 1
        return self._cipher.decrypt(stored, place)

    def _check_webhooks(self, task_ids: Container[str]) -> None:
        for task_id, config_id, content in self._connection.execute(
            "SELECT task_id, config_id, CAST(content AS BLOB) FROM webhooks"
        ):
            key = (task_id, config_id)
            try:
                plain = self._cipher.decrypt(content, webhook_place(key))
                config = webhook_service_pb2.Webhook.FromString(plain).config
            except (DecodeError, JournalUnavailableError):
                self._add_problem(task_id, "one of its webhooks can't be read")
                continue
            if (config.task_id, config.id) != key or task_id not in task_ids:
                self._add_problem(task_id, "one of its webhooks names another task or webhook")

    def _add_problem(self, task_id: str, problem: str) -> None:
        self._report.problems.append(f"task {task_id}: {problem}")


def _references(task: task_pb2.Task) -> Iterator[str]:
    of_artifacts = [artifact.parts for artifact in task.artifacts]
    of_messages = [message.parts for message in (*task.history, task.status.message)]
    for part in chain(*of_artifacts, *of_messages):
        if part.url.startswith(f"trunkline:{task.id}/"):
            yield part.url


def _compare(report: CheckReport, row: TaskRow, snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Check that a row agrees with the events. An unfinished task's row may have an older head."""
    report.event_count += snapshot.sequence
    report.references |= set(_references(snapshot.task))
    head = row.head if row.is_ended else snapshot.sequence
    in_row = (head, row.state, row.agent, row.account, row.context_id)
    task = snapshot.task
    in_events = (
        snapshot.sequence,
        task.status.state,
        snapshot.agent,
        snapshot.account,
        task.context_id,
    )
    if in_row != in_events or row.head > snapshot.sequence:
        report.problems.append(f"task {row.task_id}: its row and its events differ")
