"""Reads the events of a task after a cursor, and waits for new events."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from trunkline.core.task_states import TERMINAL, TURN_END, StateValue
from trunkline.errors import InvalidArgumentError
from trunkline.journal.task_reader import TaskReader
from trunkline.v1 import snapshot_pb2

_READ_BYTES: Final = 64 * 1024


async def check_cursor(journal: TaskReader, task_id: str, after: int, epoch: int) -> None:
    """Check that a reader can continue after a cursor.

    Raises:
        InvalidArgumentError: the cursor is past the task's last event.
        CursorExpiredError: the events after the cursor are past retention, or events before it were
            lost in a power failure.
    """
    head = await journal.head(task_id)
    if after > head and not epoch:
        raise InvalidArgumentError("after_sequence", f"the task has {head} events so far")
    await journal.check_cursor(task_id, after, epoch)


class TaskWatch:
    """A reader of one task: every event after a cursor once, in order, up to the terminal one.

    It has a position and no queue, so a slow reader buffers nothing. Either call `take_ready` or
    `take` whenever the `on_ready` listener is called, or iterate over lists of batches.
    """

    __slots__ = (
        "_cursor",
        "_journal",
        "_listener",
        "_until_head",
        "_until_turn_ends",
        "_with_snapshot",
        "is_at_head",
        "is_over",
        "task_id",
    )

    def __init__(
        self,
        journal: TaskReader,
        task_id: str,
        *,
        after: int,
        with_snapshot: bool = False,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> None:
        """`until_head` ends the watch at the head, `until_turn_ends` also where a turn ends."""
        self.task_id: str = task_id
        self.is_over: bool = False
        """True when the last event of the watch was taken."""
        self.is_at_head: bool = False
        """True if the last call took all events that were journaled by then."""
        self._journal = journal
        self._cursor = after
        self._with_snapshot = with_snapshot
        self._until_head = until_head
        self._until_turn_ends = until_turn_ends
        self._listener: Callable[[], None] | None = None

    async def snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the snapshot at the cursor if the reader wants one; call it before `take`.

        Raises:
            CursorExpiredError: events up to the cursor are past retention.
            JournalUnavailableError.
        """
        if not self._with_snapshot:
            return None
        return await self._journal.snapshot(self.task_id, at=self._cursor)

    def take_ready(self, limit_bytes: int) -> list[bytes] | None:
        """Return the batches that are ready if they are in memory, and advance the cursor.

        Otherwise the result is None, and only `take` knows whether there are any.
        """
        read = self._journal.read_tail(self.task_id, self._cursor, limit_bytes=limit_bytes)
        if read is None:
            return None
        batches, self._cursor, head, state = read
        self._compare(head, state)
        return batches

    async def take(self, limit_bytes: int) -> list[bytes]:
        """Return the batches that are ready, at least one if any is, and advance the cursor.

        Raises:
            CursorExpiredError: events after the cursor are past retention.
            JournalUnavailableError: the journal can't be read, or was closed.
        """
        journal, task_id = self._journal, self.task_id
        batches, cursor = await journal.read_next(task_id, self._cursor, limit_bytes=limit_bytes)
        latest = journal.latest(task_id)
        if latest is None:
            row = await journal.row(task_id)
            latest = row.head, row.state
        self._cursor = cursor
        self._compare(*latest)
        return batches

    def _compare(self, head: int, state: StateValue) -> None:
        """Compare the cursor with the last event of the task."""
        self.is_at_head = self._cursor >= head
        self.is_over = self.is_at_head and (
            self._until_head or state in TERMINAL or (self._until_turn_ends and state in TURN_END)
        )

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever more events may be ready, and when the task has ended."""
        self.close()
        self._listener = listener
        self._journal.subscribe(self.task_id, listener)

    def close(self) -> None:
        """Remove the listener. Repeating this is harmless."""
        if self._listener is not None:
            self._journal.unsubscribe(self.task_id, self._listener)
            self._listener = None

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yield the batches that are ready, perhaps none, then new batches until the watch ends.

        Raises:
            As `take`.
        """
        yield await self.take(_READ_BYTES)
        while not self.is_over:
            await self._journal.wait(self.task_id, self._cursor)
            batches = await self.take(_READ_BYTES)
            if batches:
                yield batches
