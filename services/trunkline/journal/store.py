"""The interface between a journal and its store: records and one Protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from trunkline.journal.clock import Clock
from trunkline.task_states import TERMINAL, StateValue


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The facts about a task that need no reading of its events."""

    task_id: str
    context_id: str
    account: str
    agent: str
    state: StateValue
    status_time_ns: int
    create_time_ns: int
    parent_task_id: str = ""
    head: int = 0
    """Its last committed sequence."""
    metadata: bytes = b""
    """Its metadata, a serialised Struct."""
    first_available: int = 1
    """The first sequence that can be read. Earlier ones are past retention."""
    ended_ns: int = 0
    """The journal's age when the task ended. 0: it has not ended."""

    @property
    def is_ended(self) -> bool:
        """The task's last event is its terminal one."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """The idempotency key of a submission, and the task that it created."""

    key: str
    content_hash: str
    task_id: str
    expires_ns: int
    """The journal's age when the key expires."""


@dataclass(slots=True)
class SealedBatch:
    """A sealed batch with its task and its place there."""

    task_id: str
    first_sequence: int
    count: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class StoredFold:
    """The fold that replaces a compacted task's events."""

    snapshot: bytes
    """A serialised TaskSnapshot, at the task's head."""
    epoch: int
    """The epoch of the task's last batch."""
    forwarded: Mapping[str, int]
    """The last forwarded sequence of each task that wrote events first."""


@dataclass(frozen=True, slots=True)
class OrphanedChild:
    """A child task that may still run although its parent has ended."""

    task_id: str
    account: str
    until_s: float
    """The time in seconds since 1970 after which the child is no longer tracked."""


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """A task id that a client chose, and the task that it stands for."""

    account: str
    alias: str
    task_id: str


WebhookKey: TypeAlias = tuple[str, str]
"""The ids of a task and of a webhook of it."""


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook of a task and the state of its delivery."""

    task_id: str
    config_id: str
    state: int
    """A `trunkline.v1.WebhookState`, by which rows are found."""
    content: bytes
    """A serialised `trunkline.v1.Webhook`, its secrets included."""

    @property
    def key(self) -> WebhookKey:
        """The key of the webhook."""
        return self.task_id, self.config_id


@dataclass(slots=True)
class CommitGroup:
    """The content of one transaction."""

    batches: list[SealedBatch] = field(default_factory=list)
    created: dict[str, TaskRow] = field(default_factory=dict)
    changed: dict[str, TaskRow] = field(default_factory=dict)
    """Rows after the group, of tasks whose state or metadata changes."""
    keys: list[SubmissionKey] = field(default_factory=list)
    aliases: list[AliasRecord] = field(default_factory=list)
    webhooks: dict[WebhookKey, WebhookRow | None] = field(default_factory=dict)
    """Webhooks after the group. None: deleted."""

    @property
    def is_empty(self) -> bool:
        """The group contains nothing to write."""
        return not (self.batches or self.aliases or self.webhooks)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """A filter of tasks. An empty field filters nothing, except for the account."""

    account: str
    agent: str = ""
    context_id: str = ""
    state: StateValue | None = None
    status_after_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The rows of one page, and the number of matching rows on all pages."""

    rows: Sequence[TaskRow]
    total: int


class JournalStore(Protocol):
    """Durable events, rows and keys of one journal. The store is their only writer.

    `commit`, `settle`, `compact` and `delete_tasks` may run in a thread, one at a time, and
    `checkpoint` in another. All other methods are called on the loop, possibly meanwhile. Each
    write checks the epoch in its own transaction. All methods raise JournalUnavailableError if the
    store can't be read or written. They work again once the cause is gone.
    """

    @property
    def id(self) -> str:
        """The journal's id. Task ids begin with it."""
        ...

    @property
    def epoch(self) -> int:
        """The fencing token of the owner. Each takeover increases it."""
        ...

    @property
    def clock(self) -> Clock:
        """The journal's clock. The store saves its reading for the next start."""
        ...

    def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction. FencedError after a takeover."""
        ...

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return the batches that end after the sequence `after`: one, and more up to the limit.

        The first one may begin at `after` or before it.
        """
        ...

    def find_row(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, its head included."""
        ...

    def find_key(self, key: str, *, now_ns: int) -> SubmissionKey | None:
        """Return an idempotency key unless it has expired."""
        ...

    def find_alias(self, account: str, alias: str) -> str | None:
        """Return the task id that an alias is bound to. The task may not exist."""
        ...

    def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks of one task or of all, in any of the states, the newest first."""
        ...

    def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return rows by status time, newest first, then by id.

        `after` is the status time and the id of the last row of the previous page.
        """
        ...

    def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        ...

    def has_backlog(self) -> bool:
        """Return whether ended tasks wait to be settled."""
        ...

    def settle(self, *, budget_bytes: int) -> bool:
        """Move about this many bytes of ended tasks' events into rows by task.

        Return whether there is enough left to continue soon.
        """
        ...

    def list_ended(self, age_ns: int, *, is_compacted: bool, limit: int) -> list[TaskRow]:
        """Return rows of tasks that had ended at this age of the journal, the oldest first.

        They are compacted tasks, or settled ones that can be compacted.
        """
        ...

    def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds. The first available sequence is then after the head.

        `settle` deletes the events, the oldest first.
        """
        ...

    def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task, if it is one."""
        ...

    def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks with their webhooks and aliases."""
        ...

    @property
    def needs_checkpoint(self) -> bool:
        """The write-ahead log is long: `checkpoint` should be called."""
        ...

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the file. Writes may run meanwhile.

        False: because of such writes, a part is left. Call it again without concurrent writes.
        """
        ...

    def renew_lease(self, lease_s: float) -> None:
        """Extend the owner's lease to this time from now. FencedError after a takeover.

        It also deletes expired keys, and aliases without a task after a day.
        """
        ...

    def add_orphaned_child(self, stray: OrphanedChild) -> None:
        """Store a child of an ended task until it is deleted. FencedError after a takeover."""
        ...

    def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a child of an ended task. FencedError after a takeover."""
        ...

    def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        ...

    def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal. No other method may be called afterwards.

        With `for_takeover` it is left as if its host had died, so that another host takes it over.
        """
        ...
