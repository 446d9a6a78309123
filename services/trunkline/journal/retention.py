"""Replaces the events of ended tasks by folds after some time, and later deletes the tasks."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.core.database import translate_errors
from trunkline.core.settings import DEFAULTS
from trunkline.errors import InvalidAgentResponseError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import JournalStore, StoredFold, TaskRow, TaskStage

_NS_PER_S: Final = 1_000_000_000
# The largest number of tasks that a scan finds, for each kind of step.
_SCAN_LIMIT: Final = 64
# The largest number of tasks that one write compacts.
_TASKS_PER_STEP: Final = 16
# The store may be able to read the task then.
_RETRY_NS: Final = 3600 * _NS_PER_S
# The largest number of batches that one write deletes. A write may run on the event loop.
_EVENTS_PER_STEP: Final = 512


@dataclass(frozen=True, slots=True)
class Retention:
    """Times in seconds since the end of a task, by the journal's age.

    A task that has not ended, for example because it waits for input, has no limit.
    """

    compact_after_s: float = DEFAULTS.compact_after_s
    """After this time, a fold replaces the task's events. Reads raise CursorExpiredError."""
    retain_s: float = DEFAULTS.retain_s
    """After this time, the task is deleted."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """A write of the compactor."""

    task_ids: tuple[str, ...]
    """The tasks that it changes."""
    write: Callable[[], Awaitable[None]]
    """Runs the write."""
    confirm: Callable[[], None]
    """Removes the step from the compactor's work. Call it after the write."""


class Compactor:
    """Compacts tasks, deletes the events of compacted tasks, and deletes tasks, in steps.

    `next_step` folds a part of a task, and returns the next write. The caller runs the write and
    then `RetentionStep.confirm`, or `reset` if the write fails. Only writes are
    durable: after a restart, unfinished folds begin again.
    """

    def __init__(self, store: JournalStore, retention: Retention) -> None:
        self._store = store
        self._retention = retention
        self._due: deque[TaskRow] = deque()
        self._folds: dict[str, StoredFold] = {}
        self._compacted: tuple[str, ...] = ()
        self._expired: tuple[str, ...] = ()
        # The fold of the first due task so far.
        self._fold: Fold | None = None
        # Tasks that could not be folded stay unchanged, with the time of the next try by the
        # journal's age. `trunkline data check` names damaged ones.
        self._unfoldable: dict[str, int] = {}
        self.deleted_count: int = 0
        self.compacted_count: int = 0

    @property
    def has_work(self) -> bool:
        """There are tasks from the last scan to compact or to delete."""
        return bool(self._due or self._folds or self._compacted or self._expired)

    async def scan(self) -> None:
        """Find tasks whose retention time is over, unless there is work from the last scan.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        if self.has_work:
            return
        age_ns = self._store.clock.age_ns()
        retain_s = self._retention.retain_s
        compact_s = min(self._retention.compact_after_s, retain_s)
        expired = await self._store.list_ended(
            age_ns - int(retain_s * _NS_PER_S), stage=TaskStage.CLEARED, limit=_SCAN_LIMIT
        )
        compacted = await self._store.list_ended(
            age_ns, stage=TaskStage.COMPACTED, limit=_SCAN_LIMIT
        )
        self._unfoldable = {
            task_id: retry_ns for task_id, retry_ns in self._unfoldable.items() if retry_ns > age_ns
        }
        due = await self._store.list_ended(
            age_ns - int(compact_s * _NS_PER_S),
            stage=TaskStage.READABLE,
            limit=_SCAN_LIMIT + len(self._unfoldable),
        )
        self._expired = tuple(row.task_id for row in expired)
        self._compacted = tuple(row.task_id for row in compacted)
        self._due.extend(row for row in due if row.task_id not in self._unfoldable)

    async def next_step(self, budget_bytes: int) -> RetentionStep | None:
        """Fold about this many bytes, and return the next write if one is ready.

        After any error of a fold, its task is skipped for an hour.

        Raises:
            JournalUnavailableError: a task can't be read.
            InvalidAgentResponseError: the events of a task break the contract.
        """
        if self._expired:
            return self._delete_tasks()
        if self._compacted:
            return self._delete_events()
        while self._due and budget_bytes > 0 and len(self._folds) < _TASKS_PER_STEP:
            budget_bytes -= await self._advance(self._due[0], budget_bytes)
        return self._compact() if self._folds else None

    def _delete_tasks(self) -> RetentionStep:
        task_ids = self._expired

        def confirm() -> None:
            self._expired = ()
            self.deleted_count += len(task_ids)

        return RetentionStep(task_ids, lambda: self._store.delete_tasks(task_ids), confirm)

    def _delete_events(self) -> RetentionStep:
        task_ids = self._compacted
        cleared: list[str] = []

        async def write() -> None:
            cleared.extend(await self._store.delete_events(task_ids, limit=_EVENTS_PER_STEP))

        def confirm() -> None:
            self._compacted = tuple(task_id for task_id in task_ids if task_id not in cleared)

        return RetentionStep(task_ids, write, confirm)

    def _compact(self) -> RetentionStep:
        folds = dict(self._folds)

        def confirm() -> None:
            self._folds.clear()
            self._compacted = tuple(folds)
            self.compacted_count += len(folds)

        return RetentionStep(tuple(folds), lambda: self._store.compact(folds), confirm)

    def reset(self) -> None:
        """Drop all work after a failed write. The next scan finds it again."""
        self._expired = self._compacted = ()
        self._due.clear()
        self._fold = None
        self._folds.clear()

    async def _advance(self, row: TaskRow, budget_bytes: int) -> int:
        """Fold about this many bytes of a task. Return the number of bytes."""
        fold = self._fold = self._fold or Fold(row.task_id)
        try:
            batches = await self._store.read(row.task_id, fold.sequence, limit_bytes=budget_bytes)
            with translate_errors(Path(self._store.id)):
                for sealed in batches:
                    fold.apply(parse_batch(sealed))
            if not batches:
                raise InvalidAgentResponseError(row.agent, f"no events after {fold.sequence}")
        except Exception:
            # The fold may be applied in part, so that it can't go on.
            self._unfoldable[row.task_id] = self._store.clock.age_ns() + _RETRY_NS
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
