"""The settings of a host's tasks: lease, limits, grace periods and webhook retries."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trunkline.tasks.outbox.delivery import RetryPolicy


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that hold for all journals of a host. A name's suffix is its unit."""

    lease_s: float = 10.0
    """Lifetime of the host's lease on a journal in seconds, 10 by default; renewed at a third.

    Lower values let another host take over sooner, but lose the lease under load.
    """
    flush_interval_s: float = 0.004
    """Least time between two flushes of text deltas in seconds, 0.004 by default.

    It holds for all tasks of a journal. 0 flushes in every pass of the event loop, which costs more
    writes; higher values delay streamed text.
    """
    cancel_grace_s: float = 2.0
    """Time that canceled code has to clean up in seconds, 2 by default.

    After it the task is canceled even if the code still runs.
    """
    deadline_grace_s: float = 0.1
    """Time that code has to clean up after its deadline in seconds, 0.1 by default."""
    queue_limit: int = 1000
    """Turns that may wait for one agent at its concurrency limit, 1000 by default.

    More are refused with OverloadedError. 0 refuses every turn that can't run at once.
    """
    task_limit: int = 10_000
    """Turns that may run or wait on a host, 10,000 by default.

    Above it, new submissions are refused with OverloadedError; children of running tasks are not,
    because their parents wait for them.
    """
    attempt_limit: int = 3
    """Attempts at a turn whose host dies each time, 3 by default; then the task fails."""
    pending_limit_bytes: int = 65536
    """Size of the deltas of one task that may wait for the journal in bytes, 65,536 by default.

    An agent that writes more waits until some are journaled.
    """
    agent_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Longest lifetime of a task in seconds by agent name, empty by default.

    An entry overrides the timeout that the agent itself declares.
    """
    webhook_retry: RetryPolicy = field(default_factory=RetryPolicy)
    """Retry policy of failing webhooks; by default pauses of 1 s to an hour, and a day in all."""
