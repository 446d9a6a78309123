"""Measures the commits of journals. Counts are added once for each commit, not for each event.

A commit of one event takes 30 µs, so there is one call for each commit, and little in it.
"""

from collections import Counter
from collections.abc import Iterable
from time import perf_counter
from typing import Final

from trunkline.core.task_states import TERMINAL, state_name
from trunkline.errors import FencedError, JournalUnavailableError, TrunklineError
from trunkline.journal.store import CommitGroup
from trunkline.observe.metrics.instruments import (
    COMMIT_DURATION,
    COMMIT_LAG,
    COMMITS_FAILED,
    EVENTS,
    MAINTENANCE_FAILED,
    TASK_DURATION,
    TASKS_CREATED,
    TASKS_ENDED,
)

_ENDED: Final = [state_name(state) for state in TERMINAL]


def begin_commit_counts(agents: Iterable[str]) -> None:
    """Begin the counts of a host of agents at 0."""
    for error in (JournalUnavailableError, FencedError):
        COMMITS_FAILED.begin(error.reason)
        MAINTENANCE_FAILED.begin(error.reason)
    for agent in agents:
        TASKS_CREATED.begin(agent)
        for state in _ENDED:
            TASKS_ENDED.begin(agent, state)


def record_commit(
    group: CommitGroup, *, since_s: float, started_s: float, written_s: float
) -> None:
    """Record a commit that readers see now, by the times of `time.perf_counter`.

    `since_s` is when its first write came, `started_s` and `written_s` begin and end its
    transaction.
    """
    COMMIT_DURATION.record(written_s - started_s)
    COMMIT_LAG.record(perf_counter() - since_s)
    batches = group.batches
    if len(batches) == 1:
        EVENTS.add(batches[0].count)
    elif batches:
        EVENTS.add(sum([batch.count for batch in batches]))
    if group.created:
        for agent, number in Counter(row.agent for row in group.created.values()).items():
            TASKS_CREATED.add(number, agent)
    if group.changed:
        _record_ended(group)


def _record_ended(group: CommitGroup) -> None:
    for row in group.changed.values():
        if row.is_ended:
            labels = row.agent, state_name(row.state)
            TASKS_ENDED.add(1, *labels)
            duration_s = max(0, row.status_time_ns - row.create_time_ns) / 1e9
            TASK_DURATION.record(duration_s, *labels)


def count_failed_commit(error: BaseException) -> None:
    """Count a transaction that failed."""
    COMMITS_FAILED.add(1, _reason(error))


def count_failed_maintenance(error: BaseException) -> None:
    """Count a step of maintenance that failed."""
    MAINTENANCE_FAILED.add(1, _reason(error))


def _reason(error: BaseException) -> str:
    return error.reason if isinstance(error, TrunklineError) else type(error).__qualname__
