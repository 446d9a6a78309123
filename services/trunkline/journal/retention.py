"""Compacts tasks that ended some time ago to their folds, and later deletes them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import JournalStore, StoredFold, TaskRow

_NS_PER_S: Final = 1_000_000_000
# The number of tasks that a scan finds, to compact and to delete each, so that both keep pace.
_SCAN_LIMIT: Final = 64
_TASKS_IN_A_STEP: Final = 16


@dataclass(frozen=True, slots=True)
class Retention:
    """Times in seconds after the end of a task, measured by the journal's age.

    A task that has not ended, for example because it waits for input, is never touched.
    """

    compact_after_s: float = 3600.0
    """Then the task's fold replaces its events. Reading the events raises CursorExpiredError."""
    retain_s: float = 30 * 24 * 3600.0
    """Then the task is deleted."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """One write, and the tasks that it changes."""

    task_ids: tuple[str, ...]
    write: Callable[[], object]


class Compactor:
    """Compacts and deletes tasks in steps. Its progress is in the store only.

    Folding runs on the loop, a part of a task at a time. The caller runs the writes.
    """

    def __init__(self, store: JournalStore, retention: Retention) -> None:
        self._store = store
        self._retention = retention
        self._due: deque[TaskRow] = deque()
        self._expired: tuple[str, ...] = ()
        self._fold: Fold | None = None
        self._folds: dict[str, StoredFold] = {}
        # They are left unchanged. `trunkline data check` names them.
        self._damaged: set[str] = set()
        self.deleted_count: int = 0
        self.compacted_count: int = 0

    @property
    def has_work(self) -> bool:
        """The last scan found tasks that are not done yet."""
        return bool(self._due or self._expired or self._folds)

    def scan(self) -> None:
        """Find tasks whose time is over, unless there is work left. JournalUnavailableError."""
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
            JournalUnavailableError, InvalidAgentResponseError: a task can't be read. It is skipped
                from now on.
        """
        if self._expired:
            expired = self._expired
            return RetentionStep(expired, lambda: self._store.delete_tasks(expired))
        while self._due and budget_bytes > 0 and len(self._folds) < _TASKS_IN_A_STEP:
            budget_bytes -= self._advance(self._due[0], budget_bytes)
        if not self._folds:
            return None
        folds = dict(self._folds)
        return RetentionStep(tuple(folds), lambda: self._store.compact(folds))

    def confirm(self, step: RetentionStep) -> None:
        """Record that a step was written."""
        if step.task_ids == self._expired:
            self._expired = ()
            self.deleted_count += len(step.task_ids)
        else:
            self._folds.clear()
            self.compacted_count += len(step.task_ids)

    def reset(self) -> None:
        """Forget the current work after a failed write. The next scan finds it again."""
        self._expired = ()
        self._due.clear()
        self._fold = None
        self._folds.clear()

    def _advance(self, row: TaskRow, budget_bytes: int) -> int:
        """Fold about this many bytes of a task, and return how many it were."""
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
