"""Builds one commit of all pending writes. It assigns sequences, and computes rows and keys."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from trunkline.core.storable_texts import check_texts
from trunkline.core.task_states import TERMINAL, state_name
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    MessageKeyReusedError,
    TaskEndedError,
    TaskExistsError,
    TaskNotFoundError,
)
from trunkline.journal.events import BatchSealer, Draft, build_draft, parse_journal_id
from trunkline.journal.fold import merge_metadata
from trunkline.journal.store import (
    AliasName,
    AliasRecord,
    CommitGroup,
    SealedBatch,
    SubmissionKey,
    TaskRow,
    WebhookKey,
    WebhookRow,
)
from trunkline.v1 import event_pb2, json_pb2, task_pb2

# The life of an idempotency key: a day.
KEY_TTL_NS: Final = 24 * 60 * 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class CreateResult:
    """The task of a submission: a new task, or the task of an earlier submission."""

    task_id: str
    is_new: bool
    time_ns: int = field(default=0, compare=False)
    """The time of the commit in nanoseconds since 1970. It is 0 if the task existed."""
    head: int = field(default=1, compare=False)
    """The task's last sequence after the commit."""


class DraftSource(Protocol):
    """A writer that provides its drafts when the commit is built.

    It receives the result, too, so it needs no future for each append.
    """

    def take(self) -> Sequence[Draft]:
        """Return the drafts to append. It is called once, when the commit is built."""

    def done(self) -> bool:
        """Return whether the result would be ignored."""

    def set_result(self, result: int, /) -> None:
        """Report that the drafts are committed. `result` is their last sequence."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report that the drafts were not written."""


class PendingDrafts(NamedTuple):
    """A source of drafts that waits for the next commit."""

    task_id: str
    receiver: DraftSource


class PendingAppend(NamedTuple):
    """Events of a task that wait for the next commit."""

    task_id: str
    drafts: Sequence[Draft]
    receiver: asyncio.Future[int] | DraftSource


class PendingCreate(NamedTuple):
    """A task that waits for the next commit."""

    task_id: str
    created: event_pb2.Event
    key: str
    content_hash: str
    webhook: WebhookRow | None
    is_first_attempt: bool
    """The id is expected to be new, so it is not looked up before the commit."""
    receiver: asyncio.Future[CreateResult]


class PendingAlias(NamedTuple):
    """An alias that waits for the next commit."""

    account: str
    alias: str
    task_id: str
    replaces: str
    receiver: asyncio.Future[str]

    @property
    def name(self) -> AliasName:
        """The name that is unique."""
        return self.account, self.alias


class PendingWebhook(NamedTuple):
    """A webhook to store in the next commit, or to delete if `row` is None."""

    task_id: str
    config_id: str
    row: WebhookRow | None
    receiver: asyncio.Future[None]


Pending = PendingDrafts | PendingAppend | PendingCreate | PendingAlias | PendingWebhook


def check_pending(pending: Pending) -> None:
    """Check the texts of a write that become columns of a store.

    Raises:
        InvalidArgumentError: a text can't be stored.
    """
    if isinstance(pending, PendingCreate):
        created = pending.created.created
        check_texts(
            task_id=pending.task_id,
            key=pending.key,
            context_id=created.context_id,
            account=created.account,
            caller=created.caller,
            agent=created.agent,
            parent=created.parent.task_id,
            webhook="" if pending.webhook is None else pending.webhook.config_id,
        )
    elif isinstance(pending, PendingAlias):
        check_texts(
            account=pending.account,
            alias=pending.alias,
            task_id=pending.task_id,
            replaces=pending.replaces,
        )
    elif isinstance(pending, PendingWebhook):
        check_texts(task_id=pending.task_id, config_id=pending.config_id)


Receiver: TypeAlias = (
    DraftSource
    | asyncio.Future[int]
    | asyncio.Future[CreateResult]
    | asyncio.Future[str]
    | asyncio.Future[None]
)
"""The receiver of the result of a write."""


@dataclass(slots=True)
class CommittedState:
    """What a commit needs to know of earlier commits."""

    unfinished: Mapping[str, TaskRow]
    """The rows of all unfinished tasks. The heads in them may be outdated."""
    heads: Mapping[str, int]
    """The heads of all unfinished tasks."""
    ended: dict[str, TaskRow] = field(default_factory=dict)
    """The rows of those ended tasks that the commit mentions."""
    keys: dict[str, SubmissionKey] = field(default_factory=dict)
    """Those idempotency keys of the commit that were used before."""
    aliases: dict[AliasName, str] = field(default_factory=dict)
    """The task ids that aliases of the commit are bound to."""


class CommitBuilder:
    """Builds one commit. Call `add` for each write, store `group`, call `resolve` or `fail`.

    No other commit of the journal is stored after `committed` was read and before `group` is.
    Another journal may claim a key meanwhile, and the id of a first attempt may exist; see
    `rebuild`.
    """

    def __init__(self, committed: CommittedState, *, epoch: int, time_ns: int, age_ns: int) -> None:
        self.group: CommitGroup = CommitGroup()
        self._epoch = epoch
        self._sealer = BatchSealer(epoch=epoch, time_ns=time_ns)
        self._time_ns = time_ns
        self._age_ns = age_ns
        self._committed = committed
        # Heads, rows, keys and aliases after the commit. A row is replaced only if its state or
        # metadata changes, so the head in it may be older than the one in `_heads`.
        self._heads: dict[str, int] = {}
        self._rows: dict[str, TaskRow] = {}
        self._keys: dict[str, SubmissionKey] = {}
        self._aliases: dict[AliasName, str] = {}
        self._results: list[tuple[Pending, object]] = []

    def add(self, pending: Pending) -> None:
        """Add a pending write. If it is invalid, only this write fails, at once."""
        try:
            if isinstance(pending, PendingDrafts):
                task_id, source = pending
                pending = PendingAppend(task_id, source.take(), source)
            if isinstance(pending, PendingAppend):
                result: object = self._append(pending.task_id, pending.drafts)
            elif isinstance(pending, PendingCreate):
                result = self._create(pending)
            elif isinstance(pending, PendingAlias):
                result = self._bind(pending)
            else:
                self._write_webhook(pending)
                result = None
        except Exception as error:  # noqa: BLE001  The waiting caller gets any error.
            fail_write(pending.receiver, error)
        else:
            self._results.append((pending, result))

    def rebuild(self, failed: Container[int]) -> "CommitBuilder":
        """Return a builder of the same writes, after `committed` was read again.

        Writes that have failed are left out, also those whose `id` is in `failed`.
        """
        rebuilt = CommitBuilder(
            self._committed, epoch=self._epoch, time_ns=self._time_ns, age_ns=self._age_ns
        )
        for write, _ in self._results:
            if id(write) not in failed:
                rebuilt.add(write)
        return rebuilt

    @property
    def creates(self) -> list[PendingCreate]:
        """The writes that create a task."""
        return [write for write, _ in self._results if isinstance(write, PendingCreate)]

    def resolve(self) -> None:
        """Set the results of all writes, after the group was written."""
        for write, result in self._results:
            if not write.receiver.done():
                write.receiver.set_result(result)  # type: ignore[arg-type]  # each its own type

    def fail(self, error: BaseException) -> None:
        """Set an error on all writes, after the write of the group failed."""
        for write, _ in self._results:
            is_fenced = isinstance(error, FencedError)
            fail_write(write.receiver, FencedError(write.task_id) if is_fenced else error)

    def _append(self, task_id: str, drafts: Sequence[Draft]) -> int:
        row = old_row = self._row(task_id)
        if row is None:
            raise TaskNotFoundError(task_id)
        if row.is_ended:
            raise TaskEndedError(task_id, state_name(row.state))
        head = self._head(row)
        batches = []
        for draft in drafts:
            batches.append(self._seal(task_id, head + 1, draft))
            head += draft.count
            if draft.row_events:
                row = self._update_row(row, draft)
        self.group.batches += batches
        self._heads[task_id] = head
        if row is not old_row:
            self._rows[task_id] = row
            self.group.changed[task_id] = row._replace(head=head)
        return head

    def _create(self, pending: PendingCreate) -> CreateResult:
        key, task_id = pending.key, pending.task_id
        used = (self._keys.get(key) or self._committed.keys.get(key)) if key else None
        created = pending.created.created
        if used is not None and parse_journal_id(used.task_id) != parse_journal_id(task_id):
            if used.content_hash != pending.content_hash:
                raise MessageKeyReusedError(created.message.message_id)
            raise TaskExistsError(used.task_id)
        # If the key's task was deleted, the key counts as unused.
        if used is not None and (row := self._row(used.task_id)) is not None:
            if used.content_hash != pending.content_hash:
                raise MessageKeyReusedError(created.message.message_id)
            return CreateResult(used.task_id, is_new=False, head=self._head(row))
        if (row := self._row(task_id)) is not None:
            if row.account != created.account:
                raise TaskNotFoundError(task_id)
            return CreateResult(task_id, is_new=False, head=self._head(row))
        self.group.batches.append(self._seal(task_id, 1, build_draft([pending.created])))
        row = TaskRow(
            task_id=task_id,
            context_id=created.context_id,
            account=created.account,
            agent=created.agent,
            state=task_pb2.TASK_STATE_SUBMITTED,
            status_time_ns=self._time_ns,
            create_time_ns=self._time_ns,
            parent_task_id=created.parent.task_id,
            head=1,
            metadata=created.metadata.SerializeToString(),
        )
        self._rows[task_id] = self.group.created[task_id] = row
        self._heads[task_id] = 1
        if key:
            record = SubmissionKey(key, pending.content_hash, task_id, self._age_ns + KEY_TTL_NS)
            self._keys[key] = record
            self.group.keys.append(record)
        if pending.webhook is not None:
            self.group.webhooks[pending.webhook.key] = pending.webhook
        return CreateResult(task_id, is_new=True, time_ns=self._time_ns)

    def _bind(self, pending: PendingAlias) -> str:
        """Bind the alias if allowed. Return the id of the task that it is bound to afterwards."""
        name = pending.name
        bound = self._aliases.get(name) or self._committed.aliases.get(name)
        if bound is not None and bound != pending.replaces:
            return bound
        self._aliases[name] = pending.task_id
        self.group.aliases.append(AliasRecord(*name, pending.task_id, bound or ""))
        return pending.task_id

    def _write_webhook(self, pending: PendingWebhook) -> None:
        key: WebhookKey = (pending.task_id, pending.config_id)
        if pending.row is not None and self._row(pending.task_id) is None:
            raise TaskNotFoundError(pending.task_id)
        self.group.webhooks[key] = pending.row

    def _row(self, task_id: str) -> TaskRow | None:
        return (
            self._rows.get(task_id)
            or self._committed.unfinished.get(task_id)
            or self._committed.ended.get(task_id)
        )

    def _head(self, row: TaskRow) -> int:
        task_id = row.task_id
        return self._heads.get(task_id) or self._committed.heads.get(task_id) or row.head

    def _seal(self, task_id: str, first_sequence: int, draft: Draft) -> SealedBatch:
        sealed = self._sealer.seal(draft, task_id=task_id, first_sequence=first_sequence)
        return SealedBatch(task_id, first_sequence, draft.count, sealed)

    def _update_row(self, row: TaskRow, draft: Draft) -> TaskRow:
        """Return the row after the events of a draft. Its head is not updated."""
        state, status_time_ns = row.state, row.status_time_ns
        metadata = json_pb2.Struct.FromString(row.metadata)
        for event in draft.row_events:
            merge_metadata(metadata, event)
            if event.HasField("status"):
                status = event.status.status
                state = status.state
                has_time = status.HasField("timestamp")
                status_time_ns = status.timestamp.ToNanoseconds() if has_time else self._time_ns
                if not -(2**63) <= status_time_ns < 2**63:
                    raise InvalidArgumentError("timestamp", "must be in the years 1678 to 2261")
        return row._replace(
            state=state,
            status_time_ns=status_time_ns,
            metadata=metadata.SerializeToString(),
            ended_ns=max(self._age_ns, 1) if state in TERMINAL else 0,
        )


def fail_write(receiver: Receiver, error: BaseException) -> None:
    """Set an error on a write, unless its result would be ignored."""
    if not receiver.done():
        receiver.set_exception(error)
