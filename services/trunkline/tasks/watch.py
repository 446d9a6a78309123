"""Reads a task's journal as a cursor does: what is there, then what comes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from trunkline.journal.events import last_sequence
from trunkline.journal.journal import Journal
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import snapshot_pb2

_TURN_ENDS = TERMINAL | {State.TASK_STATE_INPUT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Frame:
    """What is ready for a reader: sealed batches, in order; in the first frame the snapshot."""

    snapshot: snapshot_pb2.TaskSnapshot | None
    batches: list[bytes]


async def watch(
    journal: Journal,
    task_id: str,
    *,
    after: int,
    with_snapshot: bool,
    until_head: bool = False,
    until_turn_ends: bool = False,
) -> AsyncIterator[Frame]:
    """Yield every event behind `after` once, in order, and end behind the terminal one.

    `until_head` ends it where the journal ends now; `until_turn_ends` also where the task asks for
    input. A reader that stops reading costs nothing: it holds a cursor and no queue.

    Raises:
        CursorExpiredError: events behind `after` are gone.
    """
    cursor = after
    batches = journal.read(task_id, cursor)
    if with_snapshot or batches:
        snapshot = await journal.snapshot(task_id, at=after) if with_snapshot else None
        yield Frame(snapshot, batches)
    while True:
        if batches:
            cursor = last_sequence(batches[-1])
        row = journal.row(task_id)
        if cursor >= row.head:
            if until_head or row.state in TERMINAL:
                return
            if until_turn_ends and row.state in _TURN_ENDS:
                return
            await journal.wait(task_id, cursor)
        batches = journal.read(task_id, cursor)
        if batches:
            yield Frame(None, batches)
