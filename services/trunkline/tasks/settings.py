"""The settings of a host's tasks: lease, limits, grace periods and webhook retries."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trunkline.core.settings import LimitSettings, ModelSettings, TreeSettings
from trunkline.observe.span_content import ContentCapture
from trunkline.tasks.outbox.delivery import RetryPolicy


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that hold for all journals of a host. A name's suffix is its unit."""

    lease_s: float = 10.0
    """Lifetime of the host's lease on a journal in seconds, 10 by default.

    The host renews it three times as often.

    With lower values another host takes over sooner, but a host under load may lose its lease.
    """
    flush_interval_s: float = 0.004
    """Minimum time between two flushes of text deltas in seconds, 0.004 by default.

    It holds for all tasks of a journal. 0 flushes in every pass of the event loop, which costs more
    writes; higher values delay streamed text.
    """
    cancel_grace_s: float = 2.0
    """Time that canceled code has to clean up in seconds, 2 by default.

    After this time the task is canceled, even if the code still runs.
    """
    deadline_grace_s: float = 0.1
    """Time that code has to clean up after its deadline in seconds, 0.1 by default."""
    queue_limit: int = 1000
    """Limit on the turns of one account that wait for one agent, 1000 by default.

    Turns wait if the agent has reached its concurrency limit. More are refused with
    OverloadedError. 0 refuses every turn that can't run at once. Twice as many wait in all, so that
    there is room for other accounts; see `trunkline.tasks.fair_queue`.
    """
    task_limit: int = 10_000
    """Limit on the turns of one account that run or wait on a host, 10,000 by default.

    More are refused with OverloadedError, except children of running tasks, because their parents
    wait for them. Twice as many run or wait in all, as for `queue_limit`.
    """
    attempt_limit: int = 3
    """Limit on the attempts at one turn, 3 by default.

    A turn that runs again after a host failure is a further attempt. After the last one, the task
    fails. Attempts that ended because their host was shut down don't count.
    """
    pending_limit_bytes: int = 65536
    """Limit on the deltas of one task that are not in the journal, in bytes, 65,536 by default.

    An agent that writes more waits until they are written. A character of text counts as one byte.
    """
    agent_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Longest lifetime of a task in seconds by agent name, empty by default.

    An entry overrides the timeout that the agent itself declares.
    """
    limits: LimitSettings | None = None
    """Limits of accounts. By default accounts are not limited."""
    tree: TreeSettings = field(default_factory=TreeSettings)
    """Limits of a request and of all tasks that agents start for it."""
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """Settings of models by `provider:name` or provider, which have their prices."""
    content: ContentCapture | None = None
    """Captures content in spans. By default content is not recorded."""
    webhook_retry: RetryPolicy = field(default_factory=RetryPolicy)
    """Retry policy of webhooks; by default pauses of 1 s to an hour, and retries for a day."""
