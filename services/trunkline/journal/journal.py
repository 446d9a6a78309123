"""The journal of a host: ordered appends, committed in groups and published after the commit."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from pathlib import Path
from time import perf_counter
from typing import Final, Self

from trunkline.core.encryption import Keyring
from trunkline.core.runtime import finish
from trunkline.core.storable_texts import is_storable
from trunkline.core.task_states import StateValue, state_name
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
)
from trunkline.journal.artifacts import BlobStore
from trunkline.journal.events import Draft, new_task_id
from trunkline.journal.group_commit import (
    CommitBuilder,
    CommittedState,
    CreateResult,
    DraftSource,
    Pending,
    PendingAlias,
    PendingAppend,
    PendingCreate,
    PendingDrafts,
    check_pending,
    fail_write,
)
from trunkline.journal.maintenance import Maintenance
from trunkline.journal.measurements import count_failed_commit, record_commit
from trunkline.journal.retention import Retention
from trunkline.journal.side_tables import AliasTable, WebhookTable
from trunkline.journal.store import (
    ClaimedError,
    JournalStore,
    OrphanedChild,
    TaskRow,
    WebhookRow,
)
from trunkline.journal.subscribers import Subscribers
from trunkline.journal.tail import Tails
from trunkline.journal.task_reader import READ_BYTES, Batches, TaskReader
from trunkline.observe.metrics.instruments import TASKS_OPEN
from trunkline.observe.metrics.kinds import Reading
from trunkline.v1 import event_pb2

__all__ = ["CreateResult", "Journal", "Retention", "TaskRow"]

logger = logging.getLogger(__name__)

_TAIL_BYTES: Final = 64 * 1024
# The limit of all tails together.
_TAILS_BYTES: Final = 16 * 1024 * 1024
# The number of ended tasks' rows in memory.
_ENDED_ROWS: Final = 1024
_RETENTION: Final = Retention()
# The time for the last commit of a journal that is closed.
_CLOSE_S: Final = 5.0


class Journal(TaskReader):
    """The ordered, gap-free, durable events of each task, and the states folded from them.

    Appends of one iteration of the event loop are written in one transaction and then published. No
    reader sees them before. If a write fails, all appends in it fail and none of them is stored.
    The next write may succeed.

    The rows, heads and latest events of unfinished tasks are in memory. A coroutine that needs only
    these does not suspend its caller, so a row of an unfinished task is current until the next
    `await`. A coroutine that suspends its caller to read the store returns an ended task, which
    does not change any more, or finds no task.

    Methods that return a future set their errors on it. Coroutines raise JournalUnavailableError if
    the store can't be read or written. An async context manager, which closes it.
    """

    def __init__(  # noqa: PLR0913  independent options
        self,
        store: JournalStore,
        unfinished: Iterable[TaskRow],
        *,
        tail_bytes: int = _TAIL_BYTES,
        retention: Retention = _RETENTION,
        path: Path | None = None,
        keyring: Keyring | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Use a store that a `JournalCatalog` has opened, which has these unfinished tasks.

        `tail_bytes` of each task's latest events stay in memory. Ended tasks are compacted and
        deleted after the times of `retention`, which each renewal of the lease checks.
        """
        super().__init__(store, str(path or store.id))
        self.id: str = store.id
        self.path = path
        """The journal's file, if it has one."""
        self.keyring = keyring
        """The keys of the journal's data directory, if it has some."""
        self.blobs = blobs
        """The files of its tasks, if it stores files."""
        self.epoch: int = store.epoch
        self.aliases: AliasTable = AliasTable(store, self._put)
        """Task ids that clients chose."""
        self.webhooks: WebhookTable = WebhookTable(store, self._put)
        """The webhooks of tasks."""
        self._store: JournalStore = store
        self._pending: list[Pending] = []
        # When the first of them came.
        self._pending_since_s = 0.0
        # Held from the look-ups of a commit to its publication, and during maintenance writes.
        self._write_lock = asyncio.Lock()
        # The task that has the writer and the maintenance in its group; see `_run`.
        self._running: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        # What the writer awaits when nothing is pending.
        self._wakeup: asyncio.Future[None] | None = None
        self._is_closed = False
        self._maintenance = Maintenance(
            store, self._write_lock, retention, on_changed=self._forget_all
        )
        # Rows and heads of all unfinished tasks. The heads in these rows may be outdated.
        self._unfinished = {row.task_id: row for row in unfinished}
        self.has_tasks: bool = bool(self._unfinished)
        """True if it certainly has tasks: unfinished ones when it was opened, or new ones since."""
        self._heads = {task_id: row.head for task_id, row in self._unfinished.items()}
        # The state for commits that need no look-ups.
        self._in_memory = CommittedState(self._unfinished, self._heads)
        # A cache of rows of ended tasks.
        self._ended_rows: OrderedDict[str, TaskRow] = OrderedDict()
        # The number of times that a row was dropped from it.
        self._forgotten_count = 0
        self._tails = Tails(task_limit_bytes=tail_bytes, limit_bytes=_TAILS_BYTES)
        self._subscribers = Subscribers()
        self.on_rows_changed: Callable[[Iterable[TaskRow]], None] | None = None
        """Called after each commit with the rows of tasks that it created, or whose state or
        metadata it changed. It must be fast and must not raise."""
        TASKS_OPEN.watch(self, Journal._count_open)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """The journal was closed."""
        return self._is_closed

    def new_task_id(self) -> str:
        """Return a new task id, which begins with the journal's id and cannot be guessed."""
        return new_task_id(self.id)

    def create(
        self,
        task_id: str,
        created: event_pb2.Event,
        *,
        key: str = "",
        content_hash: str = "",
        webhook: WebhookRow | None = None,
        is_first_attempt: bool = False,
    ) -> asyncio.Future[CreateResult]:
        """Create a task unless it exists. The future resolves after the commit.

        A task exists if it has this id, or was created with the same `key` and `content_hash`
        within 24 hours. A webhook is stored in the same commit if the task is new. The id of a
        first attempt is expected to be new, which saves its look-up.

        Errors of the future: MessageKeyReusedError (the key was used with another hash),
        InvalidArgumentError (a text has NUL or an unpaired surrogate), FencedError (another process
        has taken over), JournalUnavailableError.
        """
        done: asyncio.Future[CreateResult] = asyncio.get_running_loop().create_future()
        self._put(
            PendingCreate(task_id, created, key, content_hash, webhook, is_first_attempt, done)
        )
        return done

    def append(self, task_id: str, fence: int, drafts: Sequence[Draft]) -> asyncio.Future[int]:
        """Append events. They get sequences in the order of the calls.

        The future resolves to the last sequence after the commit. Canceling the future does not
        undo the append.

        Errors of the future: FencedError (`fence` is not the journal's epoch, or another process
        has taken over), InvalidArgumentError (there are no drafts), TaskNotFoundError,
        TaskEndedError (the task is in a terminal state), JournalUnavailableError.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if fence != self.epoch:
            done.set_exception(FencedError(task_id))
        elif not drafts:
            done.set_exception(InvalidArgumentError("drafts", "must not be empty"))
        else:
            self._put(PendingAppend(task_id, drafts, done))
        return done

    def append_from(self, task_id: str, fence: int, source: DraftSource) -> None:
        """Append the drafts that `source` returns when the next commit is built.

        The source gets the result or the error as the future of `append` does.
        """
        if fence == self.epoch:
            self._put(PendingDrafts(task_id, source))
        else:
            source.set_exception(FencedError(task_id))

    def latest(self, task_id: str) -> tuple[int, StateValue] | None:
        """Return the last committed sequence and the state of a task, if they are in memory.

        They are in memory for all unfinished tasks and for some ended tasks. For all other tasks
        and for tasks that do not exist, the result is None.
        """
        row = self._unfinished.get(task_id)
        if row is not None:
            return self._heads[task_id], row.state
        row = self._ended_rows.get(task_id)
        return None if row is None else (row.head, row.state)

    async def head(self, task_id: str) -> int:
        """Return the last committed sequence of a task.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
        """
        head = self._heads.get(task_id)
        return (await self.row(task_id)).head if head is None else head

    def find_in_memory(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, with its current head, if the row is in memory.

        The rows of all unfinished tasks are in memory, and those of the tasks that ended last.
        """
        row = self._unfinished.get(task_id)
        if row is None:
            row = self._ended_rows.get(task_id)
            if row is not None:
                self._ended_rows.move_to_end(task_id)
            return row
        head = self._heads[task_id]
        if head != row.head:
            row = self._unfinished[task_id] = row._replace(head=head)
        return row

    async def find(self, task_id: str) -> TaskRow | None:
        """Return the row of a task, with its current head, or None if there is no such task."""
        row = self.find_in_memory(task_id)
        if row is None:
            found = await self._find_ended([task_id])
            # Its creation, and even its end, may have been published meanwhile.
            row = found.get(task_id) or self.find_in_memory(task_id)
        return row

    def read_tail(
        self, task_id: str, after: int, *, limit_bytes: int = READ_BYTES
    ) -> tuple[Batches, int, int, StateValue] | None:
        """Return the results of `read_next` and `latest`, if both are in memory.

        Most reads are of the latest events, which are there. No batch is parsed. The result of a
        closed journal is None.
        """
        latest = self.latest(task_id)
        if latest is None or self._is_closed:
            return None
        head, state = latest
        if after >= head:
            return [], after, head, state
        tail = self._tails.find(task_id)
        cached = None if tail is None else tail.read_next(after, limit_bytes=limit_bytes)
        if cached is None:
            return None
        batches, last = cached
        return batches, last or head, head, state

    async def wait(self, task_id: str, after: int) -> None:
        """Wait until there is an event after `after` or the task has ended.

        Raises:
            TaskNotFoundError: no such task, or it was deleted.
            JournalUnavailableError: the journal was closed.
        """
        while (row := await self.row(task_id)).head <= after and not row.is_ended:
            if self._is_closed:
                raise self._closed_error()
            await self._subscribers.wait(task_id)

    def subscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call `listener` after each publication of the task's events, and when the journal closes.

        It must be fast and must not raise. After the close, `read` raises an error.
        """
        self._subscribers.subscribe(task_id, listener)

    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Remove a listener. Removing it twice has no effect."""
        self._subscribers.unsubscribe(task_id, listener)

    def list_unfinished(self) -> Sequence[TaskRow]:
        """Return the rows of all unfinished tasks."""
        return [
            row if row.head == (head := self._heads[row.task_id]) else row._replace(head=head)
            for row in self._unfinished.values()
        ]

    async def list_orphaned_children(self) -> Sequence[OrphanedChild]:
        """Return the stored children of ended tasks, which may still run."""
        return await self._store.list_orphaned_children()

    async def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task.

        Raises:
            FencedError: another process has taken over.
        """
        await self._store.add_orphaned_child(child)

    async def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a stored child of an ended task.

        Raises:
            FencedError: another process has taken over.
        """
        await self._store.delete_orphaned_child(task_id)

    async def renew_lease(self, lease_s: float) -> None:
        """Let the owner's lease end this many seconds from now, and look for tasks past retention.

        Changes of the wall clock do not affect leases.

        Raises:
            FencedError: another process has taken over.
            JournalUnavailableError: the journal can't be written, or its files were moved.
        """
        await self._store.renew_lease(lease_s)
        if not self._is_closed:
            self._start()
            self._maintenance.scan()

    async def close(self, *, for_takeover: bool = False) -> None:
        """Write what is pending and release the journal. Waiting readers get an error.

        With `for_takeover`, the journal looks as if its host died, so that another host takes it
        over. Every call returns once the journal is released, also if it is canceled or if another
        call has begun the close.
        """
        if self._closing is None:
            self._is_closed = True
            self._maintenance.close()
            self._wake_writer()
            self._closing = asyncio.get_running_loop().create_task(self._close(for_takeover))
        await finish(self._closing)

    async def _close(self, for_takeover: bool) -> None:  # noqa: FBT001
        if self._running is not None:
            _, running = await asyncio.wait({self._running}, timeout=_CLOSE_S)
            for writer in running:
                # The store may be away. The next owner sees whether the last commit was stored.
                writer.cancel()
                await asyncio.wait({writer})
        self._subscribers.close(self._closed_error)
        await self._store.close(for_takeover=for_takeover)

    def _start(self) -> None:
        """Start the writer and the maintenance with the first write, if they do not run yet.

        The journal may have been opened without an event loop.
        """
        if self._running is None:
            # The tasks must not inherit the context variables of the first caller.
            self._running = asyncio.get_running_loop().create_task(self._run(), context=Context())

    async def _run(self) -> None:
        """Write and maintain the journal until it is closed.

        An event loop that ends cancels all its tasks. Nothing is written or read after that.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write_pending())
                self._maintenance.start(group)
        finally:
            self._is_closed = True
            for write in self._pending:
                fail_write(write.receiver, self._closed_error())

    def _put(self, pending: Pending) -> None:
        if self._is_closed:
            pending.receiver.set_exception(self._closed_error())
            return
        try:
            check_pending(pending)
        except InvalidArgumentError as error:
            pending.receiver.set_exception(error)
            return
        if not self._pending:
            self._pending_since_s = perf_counter()
        self._pending.append(pending)
        if self._running is None:
            self._start()
        else:
            self._wake_writer()

    def _wake_writer(self) -> None:
        if self._wakeup is not None:
            wakeup, self._wakeup = self._wakeup, None
            if not wakeup.done():
                wakeup.set_result(None)

    async def _write_pending(self) -> None:
        """Write what is pending, one commit after the other, until the journal is closed."""
        loop = asyncio.get_running_loop()
        while self._pending or not self._is_closed:
            if not self._pending:
                self._wakeup = loop.create_future()
                await self._wakeup
                continue
            async with self._write_lock:
                await self._commit_pending()

    async def _commit_pending(self) -> None:
        """Write what is pending in one transaction, and publish it."""
        pending, self._pending = self._pending, []
        try:
            await self._commit(pending, self._pending_since_s)
        except asyncio.CancelledError:
            for write in pending:
                fail_write(write.receiver, self._closed_error())
            raise
        except Exception:
            # Each write of the commit has its result.
            logger.exception("journal.publication_failed", extra={"journal": self.id})

    async def _commit(self, pending: Sequence[Pending], since_s: float) -> None:
        age_ns = self._store.clock.age_ns()
        committed = self._in_memory
        unknown = [
            write
            for write in pending
            if write.task_id not in self._unfinished or isinstance(write, PendingAlias)
        ]
        if unknown:
            committed = CommittedState(self._unfinished, self._heads)
            failed = await self._look_up(unknown, committed, age_ns)
            if failed:
                pending = [write for write in pending if id(write) not in failed]
        commit = CommitBuilder(
            committed, epoch=self.epoch, time_ns=self._store.clock.time_ns(), age_ns=age_ns
        )
        for write in pending:
            commit.add(write)
        while not (group := commit.group).is_empty:
            started_s = perf_counter()
            try:
                await self._store.commit(group)
            except Exception as error:  # noqa: BLE001  The waiting callers get any error.
                if isinstance(error, ClaimedError):
                    creates = commit.creates
                    failed = await self._look_up(creates, committed, age_ns, is_claimed=True)
                    commit = commit.rebuild(failed)
                    if len(commit.group.created) < len(group.created):
                        continue
                count_failed_commit(error)
                commit.fail(error)
            else:
                written_s = perf_counter()
                self._publish(commit)
                record_commit(group, since_s=since_s, started_s=started_s, written_s=written_s)
            if group.created or group.changed or self._store.needs_checkpoint:
                self._maintenance.schedule()
            return
        commit.resolve()

    async def _look_up(
        self,
        writes: Sequence[Pending],
        committed: CommittedState,
        age_ns: int,
        *,
        is_claimed: bool = False,
    ) -> set[int]:
        """Read what a commit of these writes needs and memory does not have.

        The ids of first attempts are looked up only if `is_claimed`: the store has one of the
        commit's keys or ids. If a look-up fails, the error is set on its write. Return the `id` of
        each such write.
        """
        try:
            await self._read_committed(writes, committed, age_ns, is_claimed=is_claimed)
        except Exception as error:  # noqa: BLE001  The waiting callers get any error.
            if len(writes) == 1:
                fail_write(writes[0].receiver, error)
                return {id(writes[0])}
            # One damaged row fails only the writes that need it.
            failed: set[int] = set()
            for write in writes:
                failed |= await self._look_up([write], committed, age_ns, is_claimed=is_claimed)
            return failed
        return set()

    async def _read_committed(
        self,
        writes: Sequence[Pending],
        committed: CommittedState,
        age_ns: int,
        *,
        is_claimed: bool,
    ) -> None:
        creates = [write for write in writes if isinstance(write, PendingCreate)]
        task_ids = {write.task_id for write in writes if not isinstance(write, PendingAlias)}
        if not is_claimed:
            task_ids -= {write.task_id for write in creates if write.is_first_attempt}
        if keys := {write.key for write in creates if write.key}:
            found = await self._store.find_keys(keys, now_ns=age_ns)
            committed.keys |= found
            task_ids.update(used.task_id for used in found.values())
        if names := {write.name for write in writes if isinstance(write, PendingAlias)}:
            committed.aliases |= await self._store.find_aliases(names)
        committed.ended |= await self._find_ended(task_ids - self._unfinished.keys())

    def _publish(self, commit: CommitBuilder) -> None:
        group = commit.group
        self._unfinished.update(group.created)
        self.has_tasks |= bool(group.created)
        self._unfinished.update(group.changed)
        for batch in group.batches:
            self._heads[batch.task_id] = batch.first_sequence + batch.count - 1
            self._tails.add(batch.task_id, batch.first_sequence, batch.sealed)
        for row in group.changed.values():
            if row.is_ended:
                del self._unfinished[row.task_id], self._heads[row.task_id]
                self._cache_ended_row(row)
        try:
            for task_id in dict.fromkeys(batch.task_id for batch in group.batches):
                self._subscribers.notify(task_id)
            if self.on_rows_changed is not None and (group.created or group.changed):
                self.on_rows_changed({**group.created, **group.changed}.values())
        finally:
            # The events are stored, whatever a listener does.
            commit.resolve()

    def _cache_ended_row(self, row: TaskRow) -> None:
        self._ended_rows[row.task_id] = row
        if len(self._ended_rows) > _ENDED_ROWS:
            self._ended_rows.popitem(last=False)

    async def _find_ended(self, task_ids: Iterable[str]) -> dict[str, TaskRow]:
        """Return the rows of those tasks that have ended, from memory or from the store."""
        found: dict[str, TaskRow] = {}
        unknown: list[str] = []
        for task_id in task_ids:
            row = self._ended_rows.get(task_id)
            if row is None:
                if is_storable(task_id):
                    unknown.append(task_id)
            else:
                self._ended_rows.move_to_end(task_id)
                found[task_id] = row
        if unknown:
            forgotten_count = self._forgotten_count
            for row in (await self._store.find_rows(unknown)).values():
                # The creation of an unfinished task may be committed and not published yet.
                if row.is_ended:
                    found[row.task_id] = row
                    if forgotten_count == self._forgotten_count:
                        self._cache_ended_row(row)
        return found

    async def _check_open(self, row: TaskRow) -> None:
        if self._is_closed and not row.is_ended:
            raise self._closed_error()

    def _forget(self, task_id: str) -> None:
        super()._forget(task_id)
        self._forgotten_count += 1
        self._ended_rows.pop(task_id, None)
        self._tails.drop(task_id)

    def _forget_all(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            self._forget(task_id)

    async def _batches(self, task_id: str, after: int, limit_bytes: int) -> Batches:
        tail = self._tails.find(task_id)
        cached = None if tail is None else tail.read(after, limit_bytes=limit_bytes)
        if cached is None:
            return await super()._batches(task_id, after, limit_bytes)
        return cached

    def _count_open(self) -> Sequence[Reading]:
        """Return the number of unfinished tasks by agent and state, for metrics."""
        if self._is_closed:
            return ()
        rows = tuple(self._unfinished.values())
        counts = Counter((row.agent, row.state) for row in rows)
        return [((agent, state_name(state)), count) for (agent, state), count in counts.items()]

    def _closed_error(self) -> JournalUnavailableError:
        return JournalUnavailableError(self.id, "it is closed; open it again")
