"""Checks all content of a journal's file and reports damage. It changes nothing."""

import sqlite3
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.database import DAMAGED, find_damage, find_holder, open_read_only
from trunkline.encryption import Cipher, Keyring, is_encrypted
from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import parse_header
from trunkline.journal.fold import Fold
from trunkline.journal.sqlite.batch_index import unpack_spans
from trunkline.journal.sqlite.chain import commit_place, fold_place, settled_place
from trunkline.journal.sqlite.chain_walk import ChainReport, check_chains
from trunkline.journal.sqlite.schema import (
    CHAINS_LOST,
    UNCHAINED_VERSION,
    TaskStage,
    read_ownership,
    read_version,
)
from trunkline.journal.sqlite.statements import (
    find_webhooks,
    open_cipher,
    select_tasks,
    webhook_place,
)
from trunkline.journal.store import TaskRow
from trunkline.v1 import snapshot_pb2, task_pb2, webhook_service_pb2

# The largest number of problems in a report. More would add no information.
_MAX_PROBLEMS: Final = 20
_NO_KEYRING: Final = (
    "it is encrypted, and its data directory has no keyring; restore the keyring, without which it "
    "can't be read"
)


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
    chains: ChainReport = field(default_factory=ChainReport)
    problems: list[str] = field(default_factory=list)
    """The damage, one text for each problem."""
    is_unchained: bool = False
    """The journal is of an earlier version, without hash chains."""


def check_journal(path: Path, keyring: Keyring | None = None) -> CheckReport:
    """Check a journal, which a process may have open.

    It verifies the hash chains and, with a keyring, their signatures. Encrypted journals can't be
    read without the keyring. It checks SQLite's structure, that each batch can be read, that
    sequences have no gaps, that the events of each task make a legal fold, and that the task's row
    agrees with it.
    """
    report = CheckReport(path)
    try:
        with open_read_only(path) as connection:
            # One transaction reads one consistent state.
            connection.execute("BEGIN")
            _Check(connection, report, keyring).run()
    except JournalUnavailableError as error:
        report.problems.append(error.problem)
    del report.problems[_MAX_PROBLEMS:]
    return report


class _Check:
    """One check of one journal."""

    def __init__(
        self, connection: sqlite3.Connection, report: CheckReport, keyring: Keyring | None
    ) -> None:
        self._connection = connection
        self._report = report
        self._keyring = keyring
        self._cipher: Cipher | None = None

    def run(self) -> None:
        """Add all problems to the report."""
        connection, report = self._connection, self._report
        ownership = read_ownership(connection, report.path)
        report.journal_id = ownership.journal_id
        if self._keyring is not None and self._keyring.is_encrypting:
            self._cipher = open_cipher(self._keyring, ownership.journal_id, report.path)
        holder = find_holder(report.path)
        report.owner_pid = 0 if holder is None else holder.pid
        report.problems += find_damage(connection)
        report.is_unchained = read_version(connection) == UNCHAINED_VERSION
        if report.is_unchained:
            if self._keyring is not None and self._keyring.has_chain(report.path.name):
                report.chains.problems.append(CHAINS_LOST)
        else:
            report.chains = check_chains(connection, ownership.journal_id, self._keyring)
        rows = connection.execute(select_tasks("ORDER BY task_id")).fetchall()
        stages = dict(connection.execute("SELECT task_id, stage FROM tasks").fetchall())
        tasks = {row.task_id: row for row in (TaskRow(*columns) for columns in rows)}
        report.task_count = len(tasks)
        unsettled = {key: row for key, row in tasks.items() if stages[key] == TaskStage.UNSETTLED}
        self._check_unsettled(unsettled)
        for task_id, row in tasks.items():
            if stages[task_id] >= TaskStage.COMPACTED:
                self._check_compacted(row)
            elif stages[task_id] == TaskStage.SETTLED:
                self._check_settled(row)
        self._check_webhooks(tasks.keys())
        # The others name tasks, so they come first.
        del report.problems[_MAX_PROBLEMS // 2 :]
        report.problems += report.chains.problems

    def _decrypt(self, content: bytes, place: str) -> bytes:
        if self._cipher is not None:
            return self._cipher.decrypt(content, place)
        if is_encrypted(content):
            raise JournalUnavailableError(str(self._report.path), _NO_KEYRING)
        return content

    def _check_unsettled(self, tasks: dict[str, TaskRow]) -> None:
        """Check tasks whose events are in `commits`.

        Batches of other tasks there are not needed any more. They must only be readable.
        """
        report = self._report
        folds = {task_id: Fold(task_id) for task_id in tasks}
        damaged: set[str] = set()
        for commit_id, stored in self._connection.execute(
            "SELECT id, CAST(payload AS BLOB) FROM commits ORDER BY id"
        ):
            try:
                payload = self._decrypt(stored, commit_place(commit_id))
                for offset, size_bytes in unpack_spans(payload):
                    sealed = payload[offset : offset + size_bytes]
                    task_id = parse_header(sealed).task_id
                    if task_id in folds and task_id not in damaged:
                        problem = _apply(folds[task_id], sealed)
                        if problem:
                            damaged.add(task_id)
                            report.problems.append(f"task {task_id}: {problem}")
            except JournalUnavailableError as error:
                report.problems.append(f"commit {commit_id}: {error.problem}")
            except (DecodeError, ValueError, ArithmeticError):
                report.problems.append(f"commit {commit_id}: {DAMAGED}")
            except Exception as error:  # noqa: BLE001  Any error of damaged content is reported.
                report.problems.append(f"commit {commit_id}: {type(error).__name__}")
        for task_id in tasks.keys() - damaged:
            _compare(report, tasks[task_id], folds[task_id].snapshot())

    def _check_settled(self, row: TaskRow) -> None:
        report = self._report
        fold = Fold(row.task_id)
        rows = self._connection.execute(
            "SELECT CAST(payload AS BLOB), first_sequence, last_sequence FROM settled "
            "WHERE task_id = ? ORDER BY first_sequence",
            (row.task_id,),
        )
        for stored, first, last in rows:
            try:
                payload = self._decrypt(stored, settled_place(row.task_id, first, last))
                batches = [
                    payload[offset : offset + size] for offset, size in unpack_spans(payload)
                ]
            except Exception:  # noqa: BLE001  Any error of damaged content is reported.
                report.problems.append(f"task {row.task_id}: its events can't be read")
                return
            for sealed in batches:
                if problem := _apply(fold, sealed):
                    report.problems.append(f"task {row.task_id}: {problem}")
                    return
        _compare(report, row, fold.snapshot())

    def _check_compacted(self, row: TaskRow) -> None:
        columns = self._connection.execute(
            "SELECT CAST(snapshot AS BLOB), epoch, forwarded FROM folds WHERE task_id = ?",
            (row.task_id,),
        ).fetchone()
        if columns is None:
            self._report.problems.append(f"task {row.task_id}: its fold is missing")
            return
        try:
            content = self._decrypt(columns[0], fold_place(row.task_id, *columns[1:]))
            snapshot = snapshot_pb2.TaskSnapshot.FromString(content)
        except (DecodeError, JournalUnavailableError):
            self._report.problems.append(f"task {row.task_id}: its fold can't be read")
            return
        _compare(self._report, row, snapshot)

    def _check_webhooks(self, task_ids: Container[str]) -> None:
        for row in find_webhooks(self._connection, None):
            try:
                content = self._decrypt(row.content, webhook_place(row.key))
                config = webhook_service_pb2.Webhook.FromString(content).config
            except (DecodeError, JournalUnavailableError):
                self._report.problems.append(
                    f"task {row.task_id}: one of its webhooks can't be read"
                )
                continue
            if (config.task_id, config.id) != row.key or row.task_id not in task_ids:
                self._report.problems.append(
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
