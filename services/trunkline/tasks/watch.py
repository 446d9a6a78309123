"""Reads a task's journal as a cursor does: what is there, then what comes."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline.journal.journal import Journal
from trunkline.task_states import TERMINAL, TURN_END
from trunkline.v1 import snapshot_pb2

_READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class WatchFrame:
    """What is ready for a reader: sealed batches, in order; in the first frame the snapshot."""

    snapshot: snapshot_pb2.TaskSnapshot | None
    batches: list[bytes]


def check_cursor(journal: Journal, task_id: str, after: int, epoch: int) -> None:
    """Refuse a cursor that this task never gave, or gave in a life of the journal that was lost.

    Raises:
        InvalidArgumentError: the task has not come that far.
        CursorExpiredError: what the reader saw was lost, or what follows it is gone.
    """
    head = journal.head(task_id)
    if after > head and not epoch:
        raise InvalidArgumentError("after_sequence", f"the task has {head} events so far")
    journal.check_cursor(task_id, after, epoch)


class TaskWatch:
    """A reader of one task: every event behind a cursor once, in order, up to the terminal one.

    It holds a position and no queue: one that nobody reads costs nothing but itself. Pull with
    `take` whenever `on_ready` calls, or iterate.
    """

    __slots__ = (
        "_cursor",
        "_journal",
        "_listener",
        "_until_head",
        "_until_turn_ends",
        "_with_snapshot",
        "is_over",
        "task_id",
    )

    def __init__(
        self,
        journal: Journal,
        task_id: str,
        *,
        after: int,
        with_snapshot: bool = False,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> None:
        """`until_head` ends it where the journal ends now, `until_turn_ends` also at a question."""
        self.task_id = task_id
        self.is_over = False
        """Nothing will ever come behind what was taken."""
        self._journal = journal
        self._cursor = after
        self._with_snapshot = with_snapshot
        self._until_head = until_head
        self._until_turn_ends = until_turn_ends
        self._listener: Callable[[], None] | None = None

    async def snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the fold at the cursor if the reader wants one: before anything is taken.

        Raises:
            CursorExpiredError: events up to there are gone.
            JournalUnavailableError.
        """
        if not self._with_snapshot:
            return None
        return await self._journal.snapshot(self.task_id, at=self._cursor)

    def take(self, limit_bytes: int) -> list[bytes]:
        """Return what is ready, at least one batch if any is, and move the cursor behind it.

        Raises:
            CursorExpiredError: events behind the cursor are gone.
            JournalUnavailableError: it can't be read, or was closed.
        """
        journal, task_id = self._journal, self.task_id
        batches, self._cursor = journal.read_next(task_id, self._cursor, limit_bytes=limit_bytes)
        if self._cursor >= journal.head(task_id):
            state = journal.state(task_id)
            self.is_over = (
                self._until_head
                or state in TERMINAL
                or (self._until_turn_ends and state in TURN_END)
            )
        return batches

    @property
    def is_at_head(self) -> bool:
        """Whether everything there is was taken."""
        return self._cursor >= self._journal.head(self.task_id)

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever there may be more to take, and when there never will be."""
        self.close()
        self._listener = listener
        self._journal.subscribe(self.task_id, listener)

    def close(self) -> None:
        """Call nobody any more. Repeating this is harmless."""
        if self._listener is not None:
            self._journal.unsubscribe(self.task_id, self._listener)
            self._listener = None

    async def __aiter__(self) -> AsyncIterator[WatchFrame]:
        """Yield what is ready, again and again, until the watch is over; raises as `take` does."""
        snapshot = await self.snapshot()
        batches = self.take(_READ_BYTES)
        if snapshot is not None or batches:
            yield WatchFrame(snapshot, batches)
        while not self.is_over:
            await self._journal.wait(self.task_id, self._cursor)
            batches = self.take(_READ_BYTES)
            if batches:
                yield WatchFrame(None, batches)
