"""Measures the commits of journals. Counts are added once for each commit, not for each event."""

import time
from collections import Counter

from trunkline.errors import TrunklineError
from trunkline.journal.store import CommitGroup
from trunkline.metrics import instruments
from trunkline.task_states import state_name


class CommitTimer:
    """The times of one commit, from its first write on."""

    __slots__ = ("_since_s", "_started_s")

    def __init__(self, since_s: float) -> None:
        """Start now. `since_s` is when the first write came, by `time.perf_counter`."""
        self._since_s = since_s
        self._started_s = time.perf_counter()

    def record_written(self) -> None:
        """Record that the store has the transaction."""
        instruments.COMMIT_DURATION.record(time.perf_counter() - self._started_s)

    def record_published(self, group: CommitGroup) -> None:
        """Record that readers see it, and count its contents."""
        instruments.COMMIT_LAG.record(time.perf_counter() - self._since_s)
        if group.batches:
            instruments.EVENTS.add(sum(batch.count for batch in group.batches))
        if group.created:
            created = Counter(row.agent for row in group.created.values())
            for agent, number in created.items():
                instruments.TASKS_CREATED.add(number, agent)
        for row in group.changed.values():
            if row.is_ended:
                labels = row.agent, state_name(row.state)
                instruments.TASKS_ENDED.add(1, *labels)
                duration_s = max(0, row.status_time_ns - row.create_time_ns) / 1e9
                instruments.TASK_DURATION.record(duration_s, *labels)


def count_failed_commit(error: BaseException) -> None:
    """Count a transaction that failed."""
    reason = error.reason if isinstance(error, TrunklineError) else type(error).__qualname__
    instruments.COMMITS_FAILED.add(1, reason)
