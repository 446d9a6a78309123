"""Finds tasks in a journal, reads the texts of lists of tasks, and waits for the end of turns."""

from typing import Final

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import CursorExpiredError, TaskNotFoundError
from trunkline.journal.batches import parse_batch
from trunkline.journal.store import TaskRow
from trunkline.journal.task_reader import TaskReader
from trunkline.tasks.content import message_text, part_content
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL
from trunkline.v1 import message_pb2, snapshot_pb2

_TEXT_CHARS: Final = 200
# Rendering larger data for its first characters would slow lists down.
_DATA_BYTES: Final = 64 * 1024


async def get_account_row(journal: TaskReader, task_id: str, account: str) -> TaskRow:
    """Return the row of a task of the account; tasks of other accounts are reported as missing.

    Raises:
        TaskNotFoundError: the account has no such task.
    """
    row = await journal.find(task_id)
    if row is None or row.account != (account or ANONYMOUS_ACCOUNT):
        raise TaskNotFoundError(task_id)
    return row


async def wait_for_turn_end(
    journal: TaskReader, task_id: str, since: snapshot_pb2.TaskSnapshot | None = None
) -> snapshot_pb2.TaskSnapshot:
    """Wait until a task has ended or is interrupted, and return its snapshot.

    `since` is the task's snapshot after its creation, if the caller has it.
    """
    while (row := await journal.row(task_id)).state not in TERMINAL | INTERRUPTED:
        await journal.wait(task_id, row.head)
    return await journal.snapshot(task_id, since=since)


async def read_first_text(journal: TaskReader, task_id: str) -> str:
    """Return the begin of the text of a task's first message, or "" if it is not stored.

    A message without text has its data as JSON, unless that is large.

    Raises:
        TaskNotFoundError: there is no such task.
        JournalUnavailableError: the journal can't be read.
    """
    try:
        batches = await journal.read(task_id, 0, limit_bytes=0)
    except CursorExpiredError:
        stored = await journal.find_stored_snapshot(task_id)
        history = stored.task.history if stored is not None else ()
        return _render_message(history[0]) if history else ""
    for event in parse_batch(batches[0]).events if batches else ():
        if event.HasField("created"):
            return _render_message(event.created.message)
    return ""


def _render_message(message: message_pb2.Message) -> str:
    text = message_text(message) or " ".join(
        part_content(part).decode()
        for part in message.parts
        if part.HasField("data") and part.ByteSize() <= _DATA_BYTES
    )
    return text[:_TEXT_CHARS]
