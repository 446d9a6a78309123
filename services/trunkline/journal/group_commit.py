"""Builds one commit of all pending writes: sequences, headers, rows and keys."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

from google.protobuf import struct_pb2

from trunkline.errors import (
    FencedError,
    MessageKeyReusedError,
    TaskEndedError,
    TaskNotFoundError,
)
from trunkline.journal.events import BatchSealer, Draft, build_draft
from trunkline.journal.fold import merge_metadata
from trunkline.journal.store import (
    AliasRecord,
    CommitGroup,
    SealedBatch,
    SubmissionKey,
    TaskRow,
    WebhookKey,
    WebhookRow,
)
from trunkline.task_states import TERMINAL, state_name
from trunkline.v1 import event_pb2, task_pb2

KEY_TTL_NS: Final = 24 * 60 * 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class CreateResult:
    """The task that a submission created, now or when it was sent before."""

    task_id: str
    is_new: bool
    time_ns: int = field(default=0, compare=False)
    """The time of the commit; 0 for an existing task."""


class DraftSource(Protocol):
    """A writer that gives its drafts when the commit is built. It is cheaper than a future."""

    def take(self) -> Sequence[Draft]:
        """Return the drafts to append."""

    def done(self) -> bool:
        """Return whether the result is no longer wanted."""

    def set_result(self, result: int, /) -> None:
        """Report that the drafts are committed. `result` is their last sequence."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report that nothing was written."""


class PendingDrafts(NamedTuple):
    """A source of drafts that waits for the next commit."""

    task_id: str
    done: DraftSource


class PendingAppend(NamedTuple):
    """Events of a task that wait for the next commit."""

    task_id: str
    drafts: Sequence[Draft]
    done: asyncio.Future[int]


class PendingCreate(NamedTuple):
    """A task that waits for the next commit."""

    task_id: str
    created: event_pb2.Event
    key: str
    content_hash: str
    webhook: WebhookRow | None
    done: asyncio.Future[CreateResult]


class PendingAlias(NamedTuple):
    """An alias that waits for the next commit."""

    account: str
    alias: str
    task_id: str
    replaces: str
    done: asyncio.Future[str]


class PendingWebhook(NamedTuple):
    """A webhook that waits for the next commit. Without a row, it is deleted."""

    task_id: str
    config_id: str
    row: WebhookRow | None
    done: asyncio.Future[None]


Pending = PendingDrafts | PendingAppend | PendingCreate | PendingAlias | PendingWebhook

# The receiver of each kind of result.
_Done: TypeAlias = (
    DraftSource
    | asyncio.Future[int]
    | asyncio.Future[CreateResult]
    | asyncio.Future[str]
    | asyncio.Future[None]
)


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The state of the journal before a commit."""

    find_row: Callable[[str], TaskRow | None]
    heads: Mapping[str, int]
    find_key: Callable[[str, int], SubmissionKey | None]
    """Takes the key and the journal's age."""
    find_alias: Callable[[str, str], str | None]


class CommitBuilder:
    """Builds one commit. Nothing of it is visible before the group is written."""

    def __init__(self, known: CommittedState, *, epoch: int, time_ns: int, age_ns: int) -> None:
        self.group: CommitGroup = CommitGroup()
        self._sealer = BatchSealer(epoch=epoch, time_ns=time_ns)
        self._time_ns = time_ns
        self._age_ns = age_ns
        self._known = known
        # Heads, rows and keys after the group. A row is replaced only when its listed fields
        # change, so the head in it may be older than the one in `_heads`.
        self._heads: dict[str, int] = {}
        self._rows: dict[str, TaskRow] = {}
        self._keys: dict[str, SubmissionKey] = {}
        self._aliases: dict[tuple[str, str], str] = {}
        self._outcomes: list[tuple[str, _Done, object]] = []

    def add(self, pending: Pending) -> None:
        """Add a pending write. If it is invalid, only this write fails, at once."""
        try:
            if isinstance(pending, PendingDrafts):
                outcome: object = self._append(pending.task_id, pending.done.take())
            elif isinstance(pending, PendingAppend):
                outcome = self._append(pending.task_id, pending.drafts)
            elif isinstance(pending, PendingCreate):
                outcome = self._create(pending)
            elif isinstance(pending, PendingAlias):
                outcome = self._bind(pending)
            else:
                self._keep(pending)
                outcome = None
        except Exception as error:  # noqa: BLE001  The waiting caller gets any error.
            _fail(pending.done, error)
        else:
            self._outcomes.append((pending.task_id, pending.done, outcome))

    def resolve(self) -> None:
        """Set the results of all writes: the group is written."""
        for _, done, outcome in self._outcomes:
            if not done.done():
                done.set_result(outcome)  # type: ignore[arg-type]  # each its own type

    def fail(self, error: BaseException) -> None:
        """Set an error on all writes: nothing of the group is written."""
        for task_id, done, _ in self._outcomes:
            _fail(done, FencedError(task_id) if isinstance(error, FencedError) else error)

    def _append(self, task_id: str, drafts: Sequence[Draft]) -> int:
        row = found = self._row(task_id)
        if row is None:
            raise TaskNotFoundError(task_id)
        if row.is_ended:
            raise TaskEndedError(task_id, state_name(row.state))
        head = self._head(row)
        batches = []
        for one in drafts:
            batches.append(self._seal(task_id, head + 1, one))
            head += one.count
            if one.row_events:
                row = self._behind(row, one)
        self.group.batches += batches
        self._heads[task_id] = head
        if row is not found:
            self._rows[task_id] = row
            self.group.changed[task_id] = replace(row, head=head)
        return head

    def _create(self, pending: PendingCreate) -> CreateResult:
        key, task_id = pending.key, pending.task_id
        known = (self._keys.get(key) or self._known.find_key(key, self._age_ns)) if key else None
        created = pending.created.created
        # If the key's task is past retention, the key counts as unused.
        if known is not None and self._row(known.task_id) is not None:
            if known.content_hash != pending.content_hash:
                raise MessageKeyReusedError(created.message.message_id)
            return CreateResult(known.task_id, is_new=False)
        if self._row(task_id) is not None:
            return CreateResult(task_id, is_new=False)
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
        """Return the id of the task that the alias is bound to after the group."""
        name = (pending.account, pending.alias)
        bound = self._aliases.get(name) or self._known.find_alias(*name)
        if bound is not None and bound != pending.replaces:
            return bound
        self._aliases[name] = pending.task_id
        self.group.aliases.append(AliasRecord(*name, pending.task_id))
        return pending.task_id

    def _keep(self, pending: PendingWebhook) -> None:
        key: WebhookKey = (pending.task_id, pending.config_id)
        if pending.row is not None and self._row(pending.task_id) is None:
            raise TaskNotFoundError(pending.task_id)
        self.group.webhooks[key] = pending.row

    def _row(self, task_id: str) -> TaskRow | None:
        return self._rows.get(task_id) or self._known.find_row(task_id)

    def _head(self, row: TaskRow) -> int:
        task_id = row.task_id
        return self._heads.get(task_id) or self._known.heads.get(task_id) or row.head

    def _seal(self, task_id: str, first_sequence: int, one: Draft) -> SealedBatch:
        sealed = self._sealer.seal(one, task_id=task_id, first_sequence=first_sequence)
        return SealedBatch(task_id, first_sequence, one.count, sealed)

    def _behind(self, row: TaskRow, one: Draft) -> TaskRow:
        """Return the row after these events."""
        state, status_time_ns = row.state, row.status_time_ns
        metadata = struct_pb2.Struct.FromString(row.metadata)
        for event in one.row_events:
            merge_metadata(metadata, event)
            if event.HasField("status"):
                status = event.status.status
                state = status.state
                has_time = status.HasField("timestamp")
                status_time_ns = status.timestamp.ToNanoseconds() if has_time else self._time_ns
        return replace(
            row,
            state=state,
            status_time_ns=status_time_ns,
            metadata=metadata.SerializeToString(),
            ended_ns=self._age_ns if state in TERMINAL else 0,
        )


def _fail(done: _Done, error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
