"""Replaces the events of ended tasks by folds after some time, and later deletes the tasks."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import JournalStore, StoredFold, TaskRow

_NS_PER_S: Final = 1_000_000_000
# The largest number of tasks that a scan finds, for compaction and for deletion each.
_SCAN_LIMIT: Final = 64
# The largest number of tasks that one write compacts.
_TASKS_PER_STEP: Final = 16


@dataclass(frozen=True, slots=True)
class Retention:
    """Times in seconds since the end of a task, by the journal's age.

    A task that has not ended, for example because it waits for input, has no limit.
    """

    compact_after_s: float = 3600.0
    """After this time, a fold replaces the task's events. Reads raise CursorExpiredError."""
    retain_s: float = 30 * 24 * 3600.0
    """After this time, the task is deleted."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """A write that compacts or deletes tasks, and the ids of these tasks."""

    task_ids: tuple[str, ...]
    write: Callable[[], object]


class Compactor:
    """Compacts and deletes tasks in steps.

    `next_step` folds a part of a task on the event loop, and returns the next write. The caller
    runs the write and calls `confirm`, or `reset` if it fails. Only writes are durable: after a
    restart, unfinished folds begin again.
    """

    def __init__(self, store: JournalStore, retention: Retention) -> None:
        self._store = store
        self._retention = retention
        self._due: deque[TaskRow] = deque()
        self._expired: tuple[str, ...] = ()
        self._fold: Fold | None = None
        self._folds: dict[str, StoredFold] = {}
        # Damaged tasks stay unchanged. `trunkline data check` names them.
        self._damaged: set[str] = set()
        self.deleted_count: int = 0
        self.compacted_count: int = 0

    @property
    def has_work(self) -> bool:
        """There are tasks from the last scan to compact or to delete."""
        return bool(self._due or self._expired or self._folds)

    def scan(self) -> None:
        """Find tasks whose retention time is over, unless there is work from the last scan.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        if self.has_work:
            return
        age_ns = self._store.clock.age_ns()
        retain_s = self._retention.retain_s
        compact_s = min(self._retention.compact_after_s, retain_s)
        expired = self._store.list_ended(
            age_ns - int(retain_s * _NS_PER_S), is_compacted=True, limit=_SCAN_LIMIT
        )
        due = self._store.list_ended(
            age_ns - int(compact_s * _NS_PER_S),
            is_compacted=False,
            limit=_SCAN_LIMIT + len(self._damaged),
        )
        self._expired = tuple(row.task_id for row in expired)
        self._due.extend(row for row in due if row.task_id not in self._damaged)

    def next_step(self, budget_bytes: int) -> RetentionStep | None:
        """Fold about this many bytes, and return the next write if one is ready.

        Raises:
            JournalUnavailableError: a task can't be read. It is skipped from now on.
            InvalidAgentResponseError: the events of a task break the contract. It is skipped, too.
        """
        if self._expired:
            expired = self._expired
            return RetentionStep(expired, lambda: self._store.delete_tasks(expired))
        while self._due and budget_bytes > 0 and len(self._folds) < _TASKS_PER_STEP:
            budget_bytes -= self._advance(self._due[0], budget_bytes)
        if not self._folds:
            return None
        folds = dict(self._folds)
        return RetentionStep(tuple(folds), lambda: self._store.compact(folds))

    def confirm(self, step: RetentionStep) -> None:
        """Remove the tasks of a step from the work, after its write."""
        if step.task_ids == self._expired:
            self._expired = ()
            self.deleted_count += len(step.task_ids)
        else:
            self._folds.clear()
            self.compacted_count += len(step.task_ids)

    def reset(self) -> None:
        """Drop all work after a failed write. The next scan finds it again."""
        self._expired = ()
        self._due.clear()
        self._fold = None
        self._folds.clear()

    def _advance(self, row: TaskRow, budget_bytes: int) -> int:
        """Fold about this many bytes of a task. Return the number of bytes."""
        fold = self._fold = self._fold or Fold(row.task_id)
        try:
            batches = self._store.read(row.task_id, fold.sequence, limit_bytes=budget_bytes)
            for sealed in batches:
                fold.apply(parse_batch(sealed))
            if not batches:
                raise InvalidAgentResponseError(row.agent, f"no events after {fold.sequence}")
        except (JournalUnavailableError, InvalidAgentResponseError):
            self._damaged.add(row.task_id)
            self._due.popleft()
            self._fold = None
            raise
        if fold.sequence >= row.head:
            snapshot = fold.snapshot()
            self._folds[row.task_id] = StoredFold(
                snapshot.SerializeToString(), snapshot.epoch, fold.forwarded_sequences
            )
            self._due.popleft()
            self._fold = None
        return sum(map(len, batches))
