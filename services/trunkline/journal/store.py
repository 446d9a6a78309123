"""What the journal owes to its store and the store to the journal: records and one Protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from trunkline.journal.clock import Clock
from trunkline.task_states import TERMINAL, StateValue


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What is known of a task without reading its events."""

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
    """The first sequence that can still be read; what was before is past retention."""
    ended_ns: int = 0
    """When it ended, by the journal's age; 0 until then."""

    @property
    def is_ended(self) -> bool:
        """Nothing more comes: its last event is the terminal one."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """What a submission's key stands for."""

    key: str
    content_hash: str
    task_id: str
    expires_ns: int
    """By the journal's age."""


@dataclass(slots=True)
class SealedBatch:
    """A sealed batch and where it belongs."""

    task_id: str
    first_sequence: int
    count: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class StoredFold:
    """What stays of a task's events when it is compacted."""

    snapshot: bytes
    """A serialised TaskSnapshot, at the task's head."""
    epoch: int
    """Of its last batch."""
    forwarded: Mapping[str, int]
    """The last sequence forwarded of each task that wrote first."""


@dataclass(frozen=True, slots=True)
class OrphanedChild:
    """A child that may still work although the task that called it has ended."""

    task_id: str
    account: str
    until_s: float
    """When it has ended by itself, or isn't minded any more: seconds since 1970."""


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """An id that a client chose, and the task that it stands for."""

    account: str
    alias: str
    task_id: str


WebhookKey: TypeAlias = tuple[str, str]
"""The ids of a task and of a webhook of it."""


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook of a task, and how far it has come."""

    task_id: str
    config_id: str
    state: int
    """As in `trunkline.v1.WebhookState`, so that rows are found by it."""
    content: bytes
    """A serialised `trunkline.v1.Webhook`, its secrets included."""

    @property
    def key(self) -> WebhookKey:
        """What names it."""
        return self.task_id, self.config_id


@dataclass(slots=True)
class CommitGroup:
    """All that is written in one transaction: what was pending together."""

    batches: list[SealedBatch] = field(default_factory=list)
    created: dict[str, TaskRow] = field(default_factory=dict)
    changed: dict[str, TaskRow] = field(default_factory=dict)
    """Rows, behind the group, of tasks whose state or metadata it changes."""
    keys: list[SubmissionKey] = field(default_factory=list)
    aliases: list[AliasRecord] = field(default_factory=list)
    webhooks: dict[WebhookKey, WebhookRow | None] = field(default_factory=dict)
    """As they are behind the group; None: they are gone."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to write."""
        return not (self.batches or self.aliases or self.webhooks)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a list shows. Empty fields filter nothing, but for the account."""

    account: str
    agent: str = ""
    context_id: str = ""
    state: StateValue | None = None
    status_after_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Rows of a list, and how many match on all pages."""

    rows: Sequence[TaskRow]
    total: int


class JournalStore(Protocol):
    """Durable events, rows and keys of one journal, which it alone writes.

    `commit`, `settle`, `compact` and `forget` may run in a thread, one at a time, and `shorten_log`
    in another; everything else is called on the loop, and may be called meanwhile. Every write
    checks the epoch in its own transaction. All methods raise JournalUnavailableError when the
    store can't be read or written; what follows works again once the cause is gone.
    """

    @property
    def id(self) -> str:
        """The journal's id; task ids begin with it."""
        ...

    @property
    def epoch(self) -> int:
        """Raised by every takeover; the fencing token of whoever opened it."""
        ...

    @property
    def clock(self) -> Clock:
        """The journal's own time; it is noted in the store, so that it goes on after a restart."""
        ...

    def commit(self, group: CommitGroup) -> None:
        """Write the group, all of it or nothing. FencedError after a takeover."""
        ...

    def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return the batches that end behind `after`, in order: one, and more up to the limit.

        The first may begin at `after` or before it.
        """
        ...

    def find_row(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, its head included."""
        ...

    def find_key(self, key: str, *, now_ns: int) -> SubmissionKey | None:
        """Return what a key stands for, unless it has expired."""
        ...

    def find_alias(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias stands for; there may be no such task."""
        ...

    def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks, of one task or of all, in any of the states; the last made first."""
        ...

    def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return rows by status time, newest first, then by id.

        `behind` is the status time and the id of the row that the page before ended with.
        """
        ...

    def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all tasks that have not ended, the oldest first."""
        ...

    def has_backlog(self) -> bool:
        """Tell whether tasks that ended wait to be settled."""
        ...

    def settle(self, *, budget_bytes: int) -> bool:
        """Move about as much as the budget of what has ended to where it takes less room.

        Return whether that left more than is worth a rest.
        """
        ...

    def list_ended(self, age_ns: int, *, is_compacted: bool, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended up to then by the journal's age, the oldest first.

        Those that are compacted, or those that are settled and can be.
        """
        ...

    def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Keep folds in place of tasks' events: the first available one is behind the head.

        The events themselves are deleted while settling, the first ones first.
        """
        ...

    def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task."""
        ...

    def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Keep nothing of tasks that are compacted, their webhooks and aliases included."""
        ...

    @property
    def needs_checkpoint(self) -> bool:
        """It is time to call `shorten_log`: what was written is not where it belongs yet."""
        ...

    def checkpoint(self) -> bool:
        """Bring what was written to where it belongs; writing may go on meanwhile.

        False: because it did, something is left, which takes a call with nobody writing.
        """
        ...

    def renew_lease(self, lease_s: float) -> None:
        """Let the owner's lease hold for so long from now. FencedError after a takeover.

        Keys that have expired go, and aliases that stand for no task after a day.
        """
        ...

    def add_orphaned_child(self, stray: OrphanedChild) -> None:
        """Keep a stray until it is dropped. FencedError after a takeover."""
        ...

    def delete_orphaned_child(self, task_id: str) -> None:
        """Keep a stray no longer. FencedError after a takeover."""
        ...

    def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the strays that were kept and not dropped."""
        ...

    def close(self, *, for_takeover: bool = False) -> None:
        """Give the journal back. Nothing else may be called afterwards.

        The next owner needs no takeover, unless it is left as if its host were lost.
        """
        ...
