"""Tells watchers which tasks of an account changed, and reads the texts of lists of tasks."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from trunkline.errors import CursorExpiredError
from trunkline.journal.batches import parse_batch
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.change_watchers import ChangeWatchers, PendingChanges
from trunkline.tasks.content import message_text, part_content
from trunkline.v1 import message_pb2

_TEXT_CHARS: Final = 200
# Rendering larger data for its first characters would slow lists down.
_DATA_BYTES: Final = 64 * 1024

ChangedTasks: TypeAlias = PendingChanges[str, TaskRow]
"""The changes that one watcher has not taken yet: the latest row of each changed task."""


class TaskChanges:
    """The watchers of the tasks of all journals of a host, by account."""

    def __init__(self) -> None:
        self._watchers = ChangeWatchers[str, TaskRow]()

    def publish(self, rows: Iterable[TaskRow]) -> None:
        """Pass changed rows on to the watchers of their accounts."""
        if not self._watchers.is_empty:
            for row in rows:
                self._watchers.publish(row.account, row.task_id, row)

    def watch(self, account: str) -> AbstractContextManager[ChangedTasks]:
        """Collect the changes of an account's tasks while the block runs."""
        return self._watchers.watch(account)


def read_first_text(journal: Journal, task_id: str) -> str:
    """Return the begin of the text of a task's first message; empty if it is not stored.

    A message without text has its data as JSON, unless that is large.

    Raises:
        TaskNotFoundError: there is no such task.
        JournalUnavailableError: the journal can't be read.
    """
    try:
        batches = journal.read(task_id, 0, limit_bytes=0)
    except CursorExpiredError:
        stored = journal.find_stored_snapshot(task_id)
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
