"""Chooses the replica of an agent that gets a new task."""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

# A replica with fewer open turns is never passed over: a few turns more or less say nothing.
_QUIET_TURNS: Final = 8
# Hosts report their loads more often than this. A report that changes nothing is not passed on.
_REPORT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Replica:
    """A host that runs the agent of a new task."""

    host_id: str
    open_turns: int = 0
    """The turns that it has reported, and the tasks that were given to it since then."""
    accepts_tasks: bool = True
    is_failing: bool = False
    """The last call of this process failed because of it."""


def choose_replica(replicas: Sequence[Replica], *, context_id: str = "", key: str = "") -> Replica:
    """Return the replica that gets a new task. There must be at least one.

    Replicas that accept no tasks are left out, unless none accepts any. So are failing replicas,
    unless the task has a key.

    - The tasks of a context go to the replica with the highest rendezvous hash of the context, so
      that all callers find the same one, and few contexts move when a replica comes or goes. A
      replica with more than twice the open turns of another one is passed over.
    - A task with an idempotency key and without a context goes to the replica with the highest hash
      of the key, and a task with both to the replica of its context, whatever the loads and the
      failures are: a repeated submission has to meet the first one, whose call may have failed.
    - Any other task goes to the less loaded of two random replicas.
    """
    accepting = [replica for replica in replicas if replica.accepts_tasks] or list(replicas)
    if key:
        return rank_replicas(accepting, context_id or key)[0]
    healthy = [replica for replica in accepting if not replica.is_failing] or accepting
    if len(healthy) == 1:
        return healthy[0]
    if context_id:
        least = min(replica.open_turns for replica in healthy)
        limit = max(2 * least, _QUIET_TURNS)
        candidates = [replica for replica in healthy if replica.open_turns <= limit]
        return rank_replicas(candidates, context_id)[0]
    first, second = random.sample(healthy, 2)
    return second if second.open_turns < first.open_turns else first


def rank_replicas(replicas: Iterable[Replica], name: str) -> list[Replica]:
    """Return replicas by the rendezvous hash of a name, the highest first."""

    def compute_hash(replica: Replica) -> bytes:
        return hashlib.blake2b(f"{replica.host_id}\n{name}".encode(), digest_size=8).digest()

    return sorted(replicas, key=compute_hash, reverse=True)


class SubmissionCounts:
    """The tasks that this process gave to each host since the hosts reported their loads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds and never goes back."""
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._since_s = clock()

    def add(self, host_id: str) -> None:
        """Count a task that is given to a host."""
        self._counts[host_id] += 1

    def get(self, host_id: str) -> int:
        """Return the number of tasks since the last report."""
        if self._counts and self._clock() > self._since_s + _REPORT_S:
            self.clear()
        return self._counts[host_id]

    def clear(self) -> None:
        """Forget the counts, because the loads that hosts report include these tasks."""
        self._counts.clear()
        self._since_s = self._clock()
