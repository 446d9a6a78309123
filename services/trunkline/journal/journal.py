"""The journal of a host: appends in order, commits in groups, and only then lets anyone read."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

from trunkline.errors import (
    CursorExpiredError,
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.batches import trim_batch
from trunkline.journal.events import Draft, last_sequence, parse_header
from trunkline.journal.fold_cache import FoldCache
from trunkline.journal.group_commit import (
    CommitBuilder,
    CommittedState,
    CreateResult,
    DraftSource,
    Pending,
    PendingAppend,
    PendingCreate,
    PendingDrafts,
)
from trunkline.journal.ids import new_task_id
from trunkline.journal.listing import build_page, parse_filter, parse_page_size, parse_page_token
from trunkline.journal.maintenance import Maintenance
from trunkline.journal.retention import Retention
from trunkline.journal.serial_writer import SerialWriter
from trunkline.journal.side_tables import AliasTable, WebhookTable
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.store import JournalStore, OrphanedChild, TaskPage, TaskRow, WebhookRow
from trunkline.journal.subscribers import Subscribers
from trunkline.journal.tail import Tails
from trunkline.task_states import StateValue
from trunkline.v1 import event_pb2, snapshot_pb2, task_service_pb2

__all__ = ["CreateResult", "Journal", "Retention", "TaskRow"]

_TAIL_BYTES: Final = 64 * 1024
# Of all tails together, and how many rows of ended tasks are kept at hand.
_TAILS_BYTES: Final = 16 * 1024 * 1024
_ENDED_ROWS: Final = 1024
_RETENTION: Final = Retention()
_READ_BYTES: Final = 64 * 1024
# The class has a `list` of its own.
Batches: TypeAlias = list[bytes]


class Journal:
    """The ordered, gap-free, durable list of each task's events, and what is made of it.

    Appends that are pending in one turn of the loop are written in one transaction; then they are
    published: until then no reader sees them. A write that fails fails the appends that were in
    it, none of which happened; the next may succeed. Readers hold cursors and nothing else.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        is_threaded: bool,
        tail_bytes: int = _TAIL_BYTES,
        retention: Retention = _RETENTION,
        path: Path | None = None,
    ) -> None:
        """Use `open`, unless you bring a store of your own."""
        self.id = store.id
        self.path = path
        """The file that it is in, if it is in one: what belongs to its tasks lies beside that."""
        self.epoch = store.epoch
        self.aliases = AliasTable(store, self._put)
        """The ids that clients chose for tasks."""
        self.webhooks = WebhookTable(store, self._put)
        """The webhooks of tasks, as they are kept."""
        self._store = store
        self._lane = SerialWriter(is_threaded=is_threaded)
        self._pending: list[Pending] = []
        self._is_scheduled = False
        self._is_closed = False
        self._upkeep = Maintenance(
            store, self._lane, retention, on_changed=self._forget_all, on_idle=self._go_on
        )
        # Rows of all tasks that have not ended, of some that have, and the heads of the former.
        self._live = {row.task_id: row for row in store.list_unfinished()}
        self._heads = {task_id: row.head for task_id, row in self._live.items()}
        self._ended: OrderedDict[str, TaskRow] = OrderedDict()
        self._known = CommittedState(
            find_row=self._find_row,
            heads=self._heads,
            find_key=lambda key, age_ns: store.find_key(key, now_ns=age_ns),
            find_alias=store.find_alias,
        )
        self._tails = Tails(task_limit_bytes=tail_bytes, limit_bytes=_TAILS_BYTES)
        self._audience = Subscribers()
        self._folds = FoldCache(head=self.head, read=self.read, find_stored=store.find_fold)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        synchronous: Literal["normal", "full"] = "normal",
        tail_bytes: int = _TAIL_BYTES,
        retention: Retention = _RETENTION,
    ) -> Self:
        """Open the journal in a file, or make one there.

        `normal` survives the death of the process, `full` also that of the machine. `tail_bytes`
        are kept in memory of each task. What `retention` lets go is looked for at each renewal of
        the lease.

        Raises:
            JournalUnavailableError: another process has it open, it is no journal, it can't be
                read or written.
        """
        store = SqliteStore.open(path, synchronous=synchronous)
        is_threaded = synchronous == "full"
        return cls(
            store, is_threaded=is_threaded, tail_bytes=tail_bytes, retention=retention, path=path
        )

    @classmethod
    def take_over(
        cls,
        path: Path,
        *,
        synchronous: Literal["normal", "full"] = "normal",
        tail_bytes: int = _TAIL_BYTES,
        retention: Retention = _RETENTION,
    ) -> Self:
        """Open the journal of another process that let its lease run out.

        If that process is still there, frozen perhaps, it is killed first; this blocks until it is
        gone, so call it in a thread. The epoch goes up.

        Raises:
            JournalUnavailableError: the owner's lease holds, somebody else was quicker, it can't
                be read or written.
        """
        store = SqliteStore.take_over(path, synchronous=synchronous)
        is_threaded = synchronous == "full"
        return cls(
            store, is_threaded=is_threaded, tail_bytes=tail_bytes, retention=retention, path=path
        )

    def new_task_id(self) -> str:
        """Return an id that no task has, and that nobody can guess."""
        return new_task_id(self.id)

    def create(
        self,
        task_id: str,
        created: event_pb2.Event,
        *,
        key: str = "",
        content_hash: str = "",
        webhook: WebhookRow | None = None,
    ) -> asyncio.Future[CreateResult]:
        """Make a task exist. Resolves once it does, or with the one that there is already.

        A webhook is kept if the task is new: both, or neither.

        That is the task of this id, or for 24 hours the one that was created with the same key
        and content hash. Errors are those of the future: MessageKeyReusedError when the key was
        used with another hash, JournalUnavailableError, FencedError.
        """
        done: asyncio.Future[CreateResult] = asyncio.get_running_loop().create_future()
        self._put(PendingCreate(task_id, created, key, content_hash, webhook, done))
        return done

    def append(self, task_id: str, fence: int, drafts: Sequence[Draft]) -> asyncio.Future[int]:
        """Append events; they get their sequences in the order of the calls.

        Resolves to the last sequence once they are committed and can be read. Canceling the
        future takes nothing back. Errors are those of the future: FencedError for the token of
        somebody who has lost the task, TaskNotFoundError, TaskEndedError behind a terminal
        status, JournalUnavailableError.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if fence != self.epoch:
            done.set_exception(FencedError(task_id))
        elif not drafts:
            done.set_exception(InvalidArgumentError("drafts", "are none"))
        else:
            self._put(PendingAppend(task_id, drafts, done))
        return done

    def append_from(self, task_id: str, fence: int, source: DraftSource) -> None:
        """Append what `writer` has when the next write begins; it is told as `append`'s future."""
        if fence == self.epoch:
            self._put(PendingDrafts(task_id, source))
        else:
            source.set_exception(FencedError(task_id))

    def head(self, task_id: str) -> int:
        """Return the last committed sequence of a task. TaskNotFoundError."""
        head = self._heads.get(task_id)
        return self.row(task_id).head if head is None else head

    def first_available(self, task_id: str) -> int:
        """Return the first sequence that can still be read. TaskNotFoundError."""
        return self.row(task_id).first_available

    def state(self, task_id: str) -> StateValue:
        """Return the state that a task is in. TaskNotFoundError."""
        row = self._find_row(task_id)
        if row is None:
            raise TaskNotFoundError(task_id)
        return row.state

    def row(self, task_id: str) -> TaskRow:
        """Return what is known of a task without reading its events. TaskNotFoundError."""
        row = self._find_row(task_id)
        if row is None:
            raise TaskNotFoundError(task_id)
        head = self._heads.get(task_id, row.head)
        if head != row.head:
            row = self._live[task_id] = replace(row, head=head)
        return row

    def read(self, task_id: str, after: int, *, limit_bytes: int = _READ_BYTES) -> list[bytes]:
        """Return sealed batches of what follows `after`, the first beginning right there.

        At least one if there is any, and more as long as they fit into the limit.

        Raises:
            TaskNotFoundError.
            JournalUnavailableError: it can't be read, or it was closed before the task ended and
                all there is here was read: what follows is in the journal's next life.
            CursorExpiredError: what follows `after` is past retention.
        """
        row = self.row(task_id)
        if after + 1 < row.first_available:
            raise _expired(row, after)
        if after >= row.head:
            if self._is_closed and not row.is_ended:
                raise self._closed()
            return []
        batches = self._batches(task_id, after, limit_bytes)
        first_sequence = parse_header(batches[0]).first_sequence if batches else row.head
        if first_sequence > after + 1 or not batches:
            # Compacted, or gone, since its row was looked up.
            self._forget(task_id)
            raise _expired(self.row(task_id), after)
        if first_sequence <= after:
            batches[0] = trim_batch(batches[0], after)
        return batches

    def read_next(
        self, task_id: str, after: int, *, limit_bytes: int = _READ_BYTES
    ) -> tuple[list[bytes], int]:
        """Return what `read` does, and the last sequence that it covers; `after` if nothing.

        For those who read on and on: what came last is found without parsing anything.
        """
        head = self._heads.get(task_id)
        if head is not None and after < head:
            found = self._tails.read_next(task_id, after, limit_bytes=limit_bytes)
            if found is not None:
                batches, last = found
                return batches, last or head
        batches = self.read(task_id, after, limit_bytes=limit_bytes)
        return batches, last_sequence(batches[-1]) if batches else after

    def check_cursor(self, task_id: str, after: int, epoch: int) -> None:
        """See that a reader who holds all events up to `after` may go on from there.

        `epoch` is that of the batch it read last; 0: it doesn't know.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            CursorExpiredError: what follows is past retention, or the machine lost its power and
                with it what the reader had seen: what stands there now is something else.
        """
        row = self.row(task_id)
        if not row.first_available - 1 <= after <= row.head:
            raise _expired(row, after)
        if epoch and after and self._epoch_at(row, after) != epoch:
            raise _expired(row, after)

    async def wait(self, task_id: str, after: int) -> None:
        """Return as soon as there is something behind `after`, or nothing ever will be.

        Raises:
            TaskNotFoundError: no such task.
            JournalUnavailableError: the journal was closed.
        """
        while (row := self.row(task_id)).head <= after and not row.is_ended:
            if self._is_closed:
                raise self._closed()
            await self._audience.wait(task_id)

    def subscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call `listener` whenever events of the task were published; it must be quick.

        Also once when the journal is closed: reading says so then.
        """
        self._audience.subscribe(task_id, listener)

    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call it no more. Repeating this is harmless."""
        self._audience.unsubscribe(task_id, listener)

    async def snapshot(self, task_id: str, *, at: int | None = None) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task's events, up to and including sequence `at`, or all.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            InvalidArgumentError: the task has not come that far.
            CursorExpiredError: the events up to there are past retention.
        """
        head = self.head(task_id)
        until = head if at is None else at
        if not 0 <= until <= head:
            raise InvalidArgumentError("at", f"the task has {head} events so far")
        return (await self._folds.fold(task_id, until)).snapshot()

    async def forwarded_sequences(self, task_id: str) -> dict[str, int]:
        """Return what a task has taken over: the last sequence of each task that wrote first.

        With it, `splice` leaves out what was forwarded in an earlier turn or an earlier life.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        return (await self._folds.fold(task_id, self.head(task_id))).forwarded_sequences

    def list(self, query: task_service_pb2.ListTasksRequest) -> task_service_pb2.ListTasksResponse:
        """Return a page of an account's tasks by status time, newest first, then by id.

        Raises:
            InvalidArgumentError: the page size or token is wrong.
            JournalUnavailableError.
        """
        size = parse_page_size(query)
        behind = parse_page_token(query.page_token)
        found = self._store.list_rows(parse_filter(query), limit=size + 1, after=behind)
        page = TaskPage(found.rows[:size], found.total)
        return build_page(page, has_more=len(found.rows) > size)

    def list_unfinished(self) -> Sequence[TaskRow]:
        """Return the rows of all tasks that have not ended."""
        return [self.row(task_id) for task_id in self._live]

    def list_orphaned_children(self) -> Sequence[OrphanedChild]:
        """Return the children of ended tasks that may still work. JournalUnavailableError."""
        return self._store.list_orphaned_children()

    def add_orphaned_child(self, stray: OrphanedChild) -> None:
        """Remember a child of a task that has ended. FencedError, JournalUnavailableError."""
        self._store.add_orphaned_child(stray)

    def delete_orphaned_child(self, task_id: str) -> None:
        """Forget a stray: it has ended. FencedError, JournalUnavailableError."""
        self._store.delete_orphaned_child(task_id)

    def renew_lease(self, lease_s: float) -> None:
        """Let this owner's lease hold for so long from now, whatever the clock on the wall does.

        Raises:
            FencedError: somebody has taken over.
            JournalUnavailableError.
        """
        self._store.renew_lease(lease_s)
        self._upkeep.scan()

    def close(self, *, for_takeover: bool = False) -> None:
        """Write what is pending and give the journal back. Whoever still waits gets an error.

        Left `as_lost` it is for whoever takes over the journals of hosts that are gone.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._upkeep.close()
        self._lane.close()
        self._flush()
        self._audience.close(self._closed)
        self._store.close(for_takeover=for_takeover)

    def _put(self, pending: Pending) -> None:
        if self._is_closed:
            pending.done.set_exception(self._closed())
            return
        self._pending.append(pending)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write what has gathered, unless a write is in flight: its landing flushes again."""
        self._is_scheduled = False
        if not self._pending or self._lane.is_busy:
            return
        pending, self._pending = self._pending, []
        grouping = CommitBuilder(
            self._known,
            epoch=self.epoch,
            time_ns=self._store.clock.time_ns(),
            age_ns=self._store.clock.age_ns(),
        )
        for one in pending:
            grouping.add(one)
        if not grouping.group.is_empty:
            self._lane.run(
                lambda: self._store.commit(grouping.group),
                lambda error: self._on_committed(grouping, error),
            )
        else:
            grouping.resolve()

    def _on_committed(self, grouping: CommitBuilder, error: BaseException | None) -> None:
        if error is None:
            self._publish(grouping)
        else:
            grouping.fail(error)
        self._go_on()
        if grouping.group.created or grouping.group.changed or self._store.needs_checkpoint:
            self._upkeep.schedule()

    def _go_on(self) -> None:
        """The lane is free again: upkeep that waited for it is short and goes first."""
        if self._upkeep.is_step_waiting:
            self._upkeep.run_step()
        if self._pending and not self._is_scheduled:
            self._flush()

    def _publish(self, grouping: CommitBuilder) -> None:
        group = grouping.group
        self._live.update(group.created)
        self._live.update(group.changed)
        for batch in group.batches:
            self._heads[batch.task_id] = batch.first_sequence + batch.count - 1
            self._tails.add(batch.task_id, batch.first_sequence, batch.sealed)
        for row in group.changed.values():
            if row.is_ended:
                del self._live[row.task_id], self._heads[row.task_id]
                self._keep_ended(row)
        for task_id in dict.fromkeys(batch.task_id for batch in group.batches):
            self._audience.notify(task_id)
        grouping.resolve()

    def _keep_ended(self, row: TaskRow) -> None:
        self._ended[row.task_id] = row
        if len(self._ended) > _ENDED_ROWS:
            self._ended.popitem(last=False)

    def _find_row(self, task_id: str) -> TaskRow | None:
        """The row; that of a live task has the head it had when it was last asked for."""
        row = self._live.get(task_id)
        if row is not None:
            return row
        row = self._ended.get(task_id)
        if row is not None:
            self._ended.move_to_end(task_id)
            return row
        row = self._store.find_row(task_id)
        if row is None or not row.is_ended:
            return None  # What has not ended is live, or its creation is not published yet.
        self._keep_ended(row)
        return row

    def _forget(self, task_id: str) -> None:
        """Look an ended task up in the store again when it is asked for."""
        self._ended.pop(task_id, None)
        self._folds.drop(task_id)
        self._tails.drop(task_id)

    def _forget_all(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            self._forget(task_id)

    def _batches(self, task_id: str, after: int, limit_bytes: int) -> Batches:
        kept = self._tails.read(task_id, after, limit_bytes=limit_bytes)
        return self._store.read(task_id, after, limit_bytes=limit_bytes) if kept is None else kept

    def _epoch_at(self, row: TaskRow, sequence: int) -> int:
        """The epoch of the batch that covers a sequence."""
        if sequence < row.first_available:
            stored = self._store.find_fold(row.task_id)
            return stored.epoch if stored else 0
        batches = self._batches(row.task_id, sequence - 1, 0)
        return parse_header(batches[0]).epoch if batches else 0

    def _closed(self) -> JournalUnavailableError:
        return JournalUnavailableError(self.id, "it is closed; open it again")


def _expired(row: TaskRow, after: int) -> CursorExpiredError:
    kept = row.first_available - 1
    # What was before that is in the snapshot at least; a reader ahead of the task begins with all.
    sequence = kept if after < kept else row.head
    return CursorExpiredError(row.task_id, str(after), str(sequence))
