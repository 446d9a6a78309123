"""Checkpoints of turns that are reasoned: what a killed process thought is not lost.

They live in one SQLite file beside the host's journal, so that whoever takes the journal over
finds them. Each turn of a task is a thread of its own: what was said before is in the task's
history, so a task that waits holds up nobody, and the checkpoints of a turn go when it ends.
Imports LangGraph, so load it lazily.
"""

import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver

from trunkline.tasks.turn.context import TaskContext

logger = logging.getLogger(__name__)

# Of turns that nobody took up again.
_KEPT_DAYS: Final = 7
_DAY_NS: Final = 24 * 3600 * 1_000_000_000
# From 1582, where UUIDs begin to count, to 1970; in steps of 100 ns.
_UUID_EPOCH: Final = 0x01B21DD213814000


class Checkpoints(SqliteSaver):
    """Saves on the event loop: a checkpoint takes some 50 µs there, and more in a thread.

    Nothing is synced: a killed process loses nothing, and after a power failure a turn that finds
    no checkpoint starts over. Trouble with the file is no trouble of the turn's: it goes on, and
    would be gone on with from an earlier checkpoint.
    """

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a run goes on from."""
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        try:
            return self.put(config, checkpoint, metadata, new_versions)
        except sqlite3.Error as error:
            logger.warning("checkpoint.not_saved", extra={"problem": str(error)})
            return config

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save nothing: a node whose checkpoint is missing runs again, and streams again."""

    def values(self, thread_id: str) -> dict[str, Any] | None:
        """Return the state that the last checkpoint of a thread holds; None without one."""
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        try:
            found = self.get_tuple(config)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            # Torn by a power failure, or of another version: the turn starts over.
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            self.forget(thread_id)
            return None
        return None if found is None else found.checkpoint["channel_values"]

    def forget(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread."""
        try:
            self.delete_thread(thread_id)
        except sqlite3.Error as error:
            logger.warning("checkpoint.not_deleted", extra={"problem": str(error)})


@dataclass(frozen=True, slots=True)
class Thread:
    """The checkpoints of one turn of a task."""

    checkpoints: Checkpoints
    id: str
    state: dict[str, Any] | None
    """What the last one holds, if an earlier attempt of the turn made any."""


@dataclass(slots=True)
class _Shared:
    saver: Checkpoints
    users: int = 0


_shared: dict[Path, _Shared] = {}


@contextmanager
def thread_of(task: TaskContext) -> Iterator[Thread | None]:
    """Open the checkpoints of a turn; when it has ended they are deleted.

    None where the host keeps none. Turns that run at once share the file, and a file that can't
    be read is made anew: what it held is started over.
    """
    path = task.checkpoint_path
    if path is None:
        yield None
        return
    thread_id = f"{task.agent}/{task.context_id}/{task.id}/{task.turn}"
    shared = _shared.get(path)
    if shared is None:
        shared = _shared[path] = _Shared(_open(path))
    shared.users += 1
    saver = shared.saver
    try:
        yield Thread(saver, thread_id, saver.values(thread_id) if task.attempt > 1 else None)
    finally:
        saver.forget(thread_id)
        shared.users -= 1
        if not shared.users:
            del _shared[path]
            shared.saver.conn.close()


def _open(path: Path) -> Checkpoints:
    try:
        return _connected(path)
    except sqlite3.DatabaseError as error:
        logger.warning("checkpoints.made_anew", extra={"file": str(path), "problem": str(error)})
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    try:
        return _connected(path)
    except sqlite3.DatabaseError:
        # No file can be made there now: this turn does without.
        return _connected(Path(":memory:"))


def _connected(path: Path) -> Checkpoints:
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        saver = Checkpoints(connection)
        saver.setup()
        with closing(connection.cursor()) as cursor:
            for table in ("checkpoints", "writes"):
                cursor.execute(f"DELETE FROM {table} WHERE checkpoint_id < ?", (_oldest(),))  # noqa: S608 - a name of ours
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return saver


def _oldest() -> str:
    """The id of a checkpoint that is as old as one may be: the ids begin with their time."""
    steps = (time.time_ns() - _KEPT_DAYS * _DAY_NS) // 100 + _UUID_EPOCH
    digits = f"{steps >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}"
