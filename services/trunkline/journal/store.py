"""The interface of a journal to its store: the records and the Protocol `JournalStore`.

`JournalCatalog` in `catalog.py` is the interface by which hosts find, open and take over journals.
Another kind of store implements both.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from trunkline.core.task_states import TERMINAL, StateValue
from trunkline.errors import JournalUnavailableError
from trunkline.journal.clock import Clock
from trunkline.v1 import webhook_service_pb2


class ClaimedError(JournalUnavailableError):
    """An idempotency key or the id of a new task of a commit is taken. Nothing is stored."""


class TaskRow(NamedTuple):
    """The columns of a task that are read without its events.

    A tuple, because each commit makes some.
    """

    task_id: str
    context_id: str
    account: str
    agent: str
    state: StateValue
    status_time_ns: int
    create_time_ns: int
    parent_task_id: str = ""
    head: int = 0
    """The task's last committed sequence."""
    metadata: bytes = b""
    """The task's metadata, a serialised Struct."""
    ended_ns: int = 0
    """The journal's age in nanoseconds when the task ended. It is 0 until then."""
    first_available: int = 1
    """The first sequence that can be read. Earlier ones are past retention."""

    @property
    def is_ended(self) -> bool:
        """The task is in a terminal state, so it gets no further events."""
        return self.state in TERMINAL

    def at_stage(self, stage: int, last: int | None) -> "TaskRow":
        """Return a stored row as it is now.

        Most commits do not update the stored head, so `last` is the last sequence of a task that
        has not ended.
        """
        if stage != TaskStage.READABLE:
            return self._replace(first_available=self.head + 1)
        return self if last is None or last == self.head else self._replace(head=last)


TASK_COLUMNS: Final = ", ".join(TaskRow._fields[:-1])
"""The columns of tasks in every store: the fields of `TaskRow`, but `first_available`."""
UNPROVEN_ALIAS_NS: Final = 24 * 60 * 60 * 1_000_000_000
"""The age at which an alias is deleted whose task should be in its journal but does not exist.

An alias is bound before its task is created, which may fail. Each alias is examined once: the
column `unproven_ns`, the journal's age at the binding, is then NULL.
"""


class TaskStage(IntEnum):
    """The values of `tasks.stage`: how far retention has come with a task."""

    READABLE = 0
    """Its events can be read."""
    COMPACTED = 1
    """A fold replaces its events, of which some may still be stored."""
    CLEARED = 2
    """Only its fold is stored."""


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """The idempotency key of a submission, and the task that it created."""

    key: str
    content_hash: str
    task_id: str
    expires_ns: int
    """The journal's age in nanoseconds when the key expires."""


@dataclass(slots=True)
class SealedBatch:
    """A sealed batch with its task and its sequences."""

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
    """The last forwarded sequence by origin task: the task that first wrote the events."""


@dataclass(frozen=True, slots=True)
class OrphanedChild:
    """A child task that may run although its parent has ended."""

    task_id: str
    account: str
    until_s: float
    """The time in seconds since 1970 after which the child is no longer tracked."""
    user_statement: str = ""
    """The signed statement of the user that the child works for, or "" if there is none."""


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """A task id that a client chose, and the task that it stands for."""

    account: str
    alias: str
    task_id: str
    replaces: str = ""
    """The task that it stood for until now, or "" if it is new."""


AliasName: TypeAlias = tuple[str, str]
"""An account, and a task id that a client of the account chose."""

WebhookKey: TypeAlias = tuple[str, str]
"""The id of a task, and the id of one of its webhooks."""


LIVE_WEBHOOKS: Final = (
    webhook_service_pb2.WEBHOOK_STATE_IDLE,
    webhook_service_pb2.WEBHOOK_STATE_PENDING,
    webhook_service_pb2.WEBHOOK_STATE_WAITING,
)
"""The states of webhooks in which deliveries may still follow."""


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook of a task and the state of its delivery."""

    task_id: str
    config_id: str
    state: int
    """A `trunkline.v1.WebhookState`; `find_webhooks` filters by it."""
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
    """The new rows of tasks whose state or metadata changes."""
    keys: list[SubmissionKey] = field(default_factory=list)
    aliases: list[AliasRecord] = field(default_factory=list)
    webhooks: dict[WebhookKey, WebhookRow | None] = field(default_factory=dict)
    """The new webhooks. A webhook that is deleted is None."""

    @property
    def created_rows(self) -> list[TaskRow]:
        """The rows of created tasks at the end of the commit."""
        return [self.changed.get(task_id, row) for task_id, row in self.created.items()]

    @property
    def updated_rows(self) -> list[TaskRow]:
        """The changed rows of tasks that existed before the commit."""
        return [row for task_id, row in self.changed.items() if task_id not in self.created]

    @property
    def stored_webhooks(self) -> list[WebhookRow]:
        """The webhooks that are new or changed."""
        return [row for row in self.webhooks.values() if row is not None]

    @property
    def deleted_webhooks(self) -> list[WebhookKey]:
        """The keys of the webhooks that are deleted."""
        return [key for key, row in self.webhooks.items() if row is None]

    @property
    def is_empty(self) -> bool:
        """The group contains nothing to write. Rows and keys are never written without batches."""
        return not (self.batches or self.aliases or self.webhooks)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """A filter of tasks. The account is always compared, the other fields if they are set."""

    account: str
    agent: str = ""
    context_id: str = ""
    state: StateValue | None = None
    status_after_ns: int | None = None

    def list_conditions(self) -> dict[str, object]:
        """Return the columns and operators of the fields that are set, each with its value.

        Without the others, a database can use an index.
        """
        conditions = {
            "account =": self.account,
            "agent =": self.agent or None,
            "context_id =": self.context_id or None,
            "state =": self.state,
            "status_time_ns >=": self.status_after_ns,
        }
        return {text: value for text, value in conditions.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The rows of one page, and the number of matching rows on all pages."""

    rows: Sequence[TaskRow]
    total: int


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease on a journal at one moment."""

    owner: str
    """The process that has it or had it last, or "" if the journal was released."""
    remaining_s: float
    """Seconds until its end, or 0 if it is over."""

    @property
    def is_live(self) -> bool:
        """A process owns the journal."""
        return bool(self.owner) and self.remaining_s > 0


class CommittedTasks(Protocol):
    """Reads tasks that are committed: of one journal, or of all journals of a store.

    All methods raise JournalUnavailableError if the store can't be read.
    """

    async def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return the batches that end after the sequence `after`, in order.

        They are at least one if the task has any, and more up to the limit. The first one may begin
        at `after` or before it.
        """
        ...

    async def find_rows(self, task_ids: Collection[str]) -> dict[str, TaskRow]:
        """Return the rows of those tasks that exist, with their current heads, by task id."""
        ...

    async def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a task, or None if the task is not compacted."""
        ...

    async def find_aliases(self, names: Collection[AliasName]) -> dict[AliasName, str]:
        """Return the task ids that aliases are bound to. The tasks may not exist."""
        ...

    async def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks of one task or of all, in any of the states, the newest first."""
        ...

    async def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return rows by status time, newest first, then by id.

        `after` is the status time and the id of the last row of the previous page.
        """
        ...


class JournalReader(CommittedTasks, Protocol):
    """Reads all journals of a store that several hosts share, without owning them."""

    @property
    def name(self) -> str:
        """The name of the store in errors, without a secret."""
        ...

    @property
    def store_id(self) -> str:
        """The random id of the store, which all hosts that use it know."""
        ...

    async def find_leases(self, journal_ids: Collection[str]) -> dict[str, LeaseState]:
        """Return the leases of those journals that exist, by journal id."""
        ...


class JournalStore(CommittedTasks, Protocol):
    """The durable events, rows and keys of one journal.

    The journal runs one of `commit`, `compact`, `delete_events` and `delete_tasks` at a time. All
    other methods may be called during these and during each other. A method may suspend its caller
    or do its work at once.

    Each write is one transaction, which checks the epoch, and raises FencedError after a takeover.
    All methods raise JournalUnavailableError if the store can't be read or written. They work again
    once the cause is gone. If a caller is canceled during a write, the write is done or not done.
    """

    @property
    def id(self) -> str:
        """The journal's id. Task ids begin with it."""
        ...

    @property
    def epoch(self) -> int:
        """The fencing token of the owner. Each takeover increases it, and other openings may."""
        ...

    @property
    def was_lost(self) -> bool:
        """The previous owner did not release the journal."""
        ...

    @property
    def clock(self) -> Clock:
        """The journal's clock. The store saves its reading for the next start."""
        ...

    async def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction.

        Raises:
            ClaimedError: another journal has claimed a key of the group, or a new task exists.
        """
        ...

    async def find_keys(self, keys: Collection[str], *, now_ns: int) -> dict[str, SubmissionKey]:
        """Return those idempotency keys that are known and not expired at the age `now_ns`.

        A store that several hosts share has one task for each key, so the task may be in another
        journal.
        """
        ...

    async def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        ...

    async def list_ended(self, age_ns: int, *, stage: TaskStage, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended at this age of the journal or earlier, the oldest first.

        Only tasks at this stage are returned.
        """
        ...

    async def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds. The first available sequence is then after the head.

        `delete_events` deletes the events.
        """
        ...

    async def delete_events(self, task_ids: Sequence[str], *, limit: int) -> list[str]:
        """Delete up to `limit` batches of compacted tasks, the oldest of each task first.

        Return the ids of the tasks that have no events left, which are then at the stage CLEARED.
        """
        ...

    async def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks with their webhooks and aliases."""
        ...

    @property
    def needs_checkpoint(self) -> bool:
        """The write-ahead log is so long that `checkpoint` should be called."""
        ...

    async def checkpoint(self) -> bool:
        """Move the write-ahead log into the file. Writes may run meanwhile.

        Return whether all of it was moved. If not, call it again while no write runs.
        """
        ...

    async def renew_lease(self, lease_s: float) -> None:
        """Let the owner's lease end this many seconds from now.

        It also deletes some expired keys, and aliases that have had no task for a day.
        """
        ...

    async def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task, until `delete_orphaned_child` is called."""
        ...

    async def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a stored child of an ended task."""
        ...

    async def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        ...

    async def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal after the writes in flight. No other method may be called later.

        With `for_takeover`, the journal looks as if its host died, so that another host takes it
        over.
        """
        ...
