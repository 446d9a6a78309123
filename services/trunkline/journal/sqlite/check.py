"""Checks all content of a journal's file and reports damage. It changes nothing."""

import sqlite3
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import parse_header
from trunkline.journal.fold import Fold
from trunkline.journal.sqlite.batch_index import unpack_spans
from trunkline.journal.sqlite.connection import DAMAGED, open_read_only
from trunkline.journal.sqlite.lock import find_holder
from trunkline.journal.sqlite.schema import TaskStage, read_ownership
from trunkline.journal.sqlite.statements import find_webhooks, select_tasks
from trunkline.journal.store import TaskRow
from trunkline.v1 import snapshot_pb2, task_pb2, webhook_service_pb2

# The largest number of problems in a report. More would add no information.
_MAX_PROBLEMS: Final = 20


@dataclass(slots=True)
class CheckReport:
    """The result of a check of one journal."""

    path: Path
    journal_id: str = ""
    owner_pid: int = 0
    """The pid of the process that has the journal open. 0: none."""
    task_count: int = 0
    event_count: int = 0
    references: set[str] = field(default_factory=set)
    """References from the artifacts and messages of tasks to the tasks' own files."""
    problems: list[str] = field(default_factory=list)
    """The damage, one text for each problem."""


def check_journal(path: Path) -> CheckReport:
    """Check a journal, which a process may have open.

    It checks SQLite's structure, that each batch can be read, that sequences have no gaps, that the
    events of each task make a legal fold, and that the task's row agrees with it.
    """
    report = CheckReport(path)
    try:
        with open_read_only(path) as connection:
            # One transaction reads one consistent state.
            connection.execute("BEGIN")
            _check(connection, report)
    except JournalUnavailableError as error:
        report.problems.append(error.problem)
    del report.problems[_MAX_PROBLEMS:]
    return report


def is_sound(path: Path) -> bool:
    """Return whether a SQLite file is undamaged."""
    try:
        with open_read_only(path) as connection:
            return next(_integrity(connection), None) is None
    except JournalUnavailableError:
        return False


def _check(connection: sqlite3.Connection, report: CheckReport) -> None:
    ownership = read_ownership(connection, report.path)
    report.journal_id = ownership.journal_id
    holder = find_holder(report.path)
    report.owner_pid = 0 if holder is None else holder.pid
    report.problems += _integrity(connection)
    rows = connection.execute(select_tasks("ORDER BY task_id")).fetchall()
    stages = dict(connection.execute("SELECT task_id, stage FROM tasks").fetchall())
    tasks = {row.task_id: row for row in (TaskRow(*columns) for columns in rows)}
    report.task_count = len(tasks)
    unsettled = {key: row for key, row in tasks.items() if stages[key] == TaskStage.UNSETTLED}
    _check_unsettled(connection, report, unsettled)
    for task_id, row in tasks.items():
        if stages[task_id] >= TaskStage.COMPACTED:
            _check_compacted(connection, report, row)
        elif stages[task_id] == TaskStage.SETTLED:
            _check_settled(connection, report, row)
    _check_webhooks(connection, report, tasks.keys())


def _integrity(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute("PRAGMA integrity_check").fetchall():
        if line != "ok":
            yield f"SQLite: {line}"


def _check_unsettled(
    connection: sqlite3.Connection, report: CheckReport, tasks: dict[str, TaskRow]
) -> None:
    """Check tasks whose events are in `commits`.

    Batches of other tasks there are not needed any more. They must only be readable.
    """
    folds = {task_id: Fold(task_id) for task_id in tasks}
    damaged: set[str] = set()
    for commit_id, payload in connection.execute("SELECT id, payload FROM commits ORDER BY id"):
        try:
            for offset, size_bytes in unpack_spans(payload):
                sealed = payload[offset : offset + size_bytes]
                task_id = parse_header(sealed).task_id
                if task_id in folds and task_id not in damaged:
                    problem = _apply(folds[task_id], sealed)
                    if problem:
                        damaged.add(task_id)
                        report.problems.append(f"task {task_id}: {problem}")
        except (DecodeError, ValueError, ArithmeticError):
            report.problems.append(f"commit {commit_id}: {DAMAGED}")
        except Exception as error:  # noqa: BLE001  Any error of damaged content is reported.
            report.problems.append(f"commit {commit_id}: {type(error).__name__}")
    for task_id in tasks.keys() - damaged:
        _compare(report, tasks[task_id], folds[task_id].snapshot())


def _check_settled(connection: sqlite3.Connection, report: CheckReport, row: TaskRow) -> None:
    fold = Fold(row.task_id)
    rows = connection.execute(
        "SELECT payload FROM settled WHERE task_id = ? ORDER BY first_sequence", (row.task_id,)
    )
    for (payload,) in rows:
        try:
            batches = [payload[offset : offset + size] for offset, size in unpack_spans(payload)]
        except Exception:  # noqa: BLE001  Any error of damaged content is reported.
            report.problems.append(f"task {row.task_id}: its events can't be read")
            return
        for sealed in batches:
            if problem := _apply(fold, sealed):
                report.problems.append(f"task {row.task_id}: {problem}")
                return
    _compare(report, row, fold.snapshot())


def _check_compacted(connection: sqlite3.Connection, report: CheckReport, row: TaskRow) -> None:
    columns = connection.execute(
        "SELECT snapshot FROM folds WHERE task_id = ?", (row.task_id,)
    ).fetchone()
    if columns is None:
        report.problems.append(f"task {row.task_id}: its fold is missing")
        return
    try:
        snapshot = snapshot_pb2.TaskSnapshot.FromString(columns[0])
    except DecodeError:
        report.problems.append(f"task {row.task_id}: its fold can't be read")
        return
    _compare(report, row, snapshot)


def _check_webhooks(
    connection: sqlite3.Connection, report: CheckReport, task_ids: Container[str]
) -> None:
    for row in find_webhooks(connection, task_id="", states=(), limit=None):
        try:
            config = webhook_service_pb2.Webhook.FromString(row.content).config
        except DecodeError:
            report.problems.append(f"task {row.task_id}: one of its webhooks can't be read")
            continue
        if (config.task_id, config.id) != row.key or row.task_id not in task_ids:
            report.problems.append(
                f"task {row.task_id}: one of its webhooks names another task or webhook"
            )


def _apply(fold: Fold, sealed: bytes) -> str:
    """Apply a batch to a fold. Return the problem with it, if any."""
    try:
        fold.apply(parse_batch(sealed))
    except InvalidAgentResponseError as error:
        return error.problem
    except Exception:  # noqa: BLE001  Any error of damaged content is reported.
        return f"the events after event {fold.sequence} can't be read"
    return ""


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
