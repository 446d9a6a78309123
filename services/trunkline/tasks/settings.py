"""How a host runs its tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trunkline.tasks.outbox.delivery import RetryPolicy


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Times are in seconds."""

    lease_s: float = 10.0
    """How long the host's lease holds; it is renewed at a third."""
    flush_interval_s: float = 0.004
    """Least time between two flushes of text deltas of a host's tasks; 0 flushes at every turn of
    the loop."""
    cancel_grace_s: float = 2.0
    """How long canceled code may clean up before the task is canceled without it."""
    deadline_grace_s: float = 0.1
    """How long code may clean up once the deadline has passed."""
    queue_limit: int = 1000
    """Turns that may wait for an agent that is at its concurrency limit."""
    task_limit: int = 10_000
    """Turns that may run or wait on a host in all, before it takes no more from outside the mesh;
    those that tasks call for still get in."""
    attempt_limit: int = 3
    """How often a turn is run, if the host dies each time."""
    pending_limit_bytes: int = 65536
    """Deltas of one task that may wait for the journal before its agent has to."""
    agent_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Longest life of a task by its agent's name; goes before what the agent itself says."""
    webhook_retry: RetryPolicy = field(default_factory=RetryPolicy)
    """When webhooks that failed are tried again, and when they are given up on."""
