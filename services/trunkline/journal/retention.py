"""How long events are kept, and what becomes of those of tasks that ended long ago."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.fold import Fold
from trunkline.journal.store import JournalStore, StoredFold, TaskRow

_NS_PER_S: Final = 1_000_000_000
# How many tasks are looked for at once. As many are forgotten as are compacted, so that neither
# outruns the other.
_LOOKED_FOR: Final = 64
# In one bite.
_COMPACTED: Final = 16


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what is kept, in seconds from the end of a task, by the journal's own age.

    A task that has not ended, one that waits for input too, is kept whole.
    """

    compact_after_s: float = 3600.0
    """Then its events are replaced by their fold: who had not read them gets an error that says
    so, and the task itself is read as before."""
    retain_s: float = 30 * 24 * 3600.0
    """Then nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """One write, and the tasks that are read otherwise behind it."""

    task_ids: tuple[str, ...]
    write: Callable[[], object]


class Compactor:
    """Compacts and forgets, one bite at a time; where it was is nowhere but in the store.

    Folding reads on the loop, a piece of a task at a time; each write is a bite of its own.
    """

    def __init__(self, store: JournalStore, retention: Retention) -> None:
        self._store = store
        self._retention = retention
        self._due: deque[TaskRow] = deque()
        self._expired: tuple[str, ...] = ()
        self._fold: Fold | None = None
        self._folded: dict[str, StoredFold] = {}
        # They stay as they are: `trunkline data check` names them.
        self._damaged: set[str] = set()
        self.deleted_count = 0
        self.compacted_count = 0

    @property
    def has_work(self) -> bool:
        """The last look found something that is not done yet."""
        return bool(self._due or self._expired or self._folded)

    def scan(self) -> None:
        """Look for what is due, unless something is still to be done. JournalUnavailableError."""
        if self.has_work:
            return
        age_ns = self._store.clock.age_ns()
        retain_s = self._retention.retain_s
        compact_s = min(self._retention.compact_after_s, retain_s)
        expired = self._store.list_ended(
            age_ns - int(retain_s * _NS_PER_S), is_compacted=True, limit=_LOOKED_FOR
        )
        due = self._store.list_ended(
            age_ns - int(compact_s * _NS_PER_S),
            is_compacted=False,
            limit=_LOOKED_FOR + len(self._damaged),
        )
        self._expired = tuple(row.task_id for row in expired)
        self._due.extend(row for row in due if row.task_id not in self._damaged)

    def next_step(self, budget_bytes: int) -> RetentionStep | None:
        """Do about so much; return what is to be written now, if anything.

        Raises:
            JournalUnavailableError, InvalidAgentResponseError: a task can't be read; it is left
                alone from now on.
        """
        if self._expired:
            expired = self._expired
            return RetentionStep(expired, lambda: self._store.delete_tasks(expired))
        while self._due and budget_bytes > 0 and len(self._folded) < _COMPACTED:
            budget_bytes -= self._advance(self._due[0], budget_bytes)
        if not self._folded:
            return None
        folded = dict(self._folded)
        return RetentionStep(tuple(folded), lambda: self._store.compact(folded))

    def confirm(self, bite: RetentionStep) -> None:
        """A bite was written."""
        if bite.task_ids == self._expired:
            self._expired = ()
            self.deleted_count += len(bite.task_ids)
        else:
            self._folded.clear()
            self.compacted_count += len(bite.task_ids)

    def reset(self) -> None:
        """A bite could not be written; the next look begins anew."""
        self._expired = ()
        self._due.clear()
        self._fold = None
        self._folded.clear()

    def _advance(self, row: TaskRow, budget_bytes: int) -> int:
        """Fold about so much of a task; return how much that was."""
        fold = self._fold = self._fold or Fold(row.task_id)
        try:
            batches = self._store.read(row.task_id, fold.sequence, limit_bytes=budget_bytes)
            for sealed in batches:
                fold.apply(parse_batch(sealed))
            if not batches:
                raise InvalidAgentResponseError(row.agent, f"events behind {fold.sequence} lack")
        except (JournalUnavailableError, InvalidAgentResponseError):
            self._damaged.add(row.task_id)
            self._due.popleft()
            self._fold = None
            raise
        if fold.sequence >= row.head:
            snapshot = fold.snapshot()
            self._folded[row.task_id] = StoredFold(
                snapshot.SerializeToString(), snapshot.epoch, fold.forwarded_sequences
            )
            self._due.popleft()
            self._fold = None
        return sum(map(len, batches))
