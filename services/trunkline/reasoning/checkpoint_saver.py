"""Saves LangGraph's checkpoints in a SQLite file. Imports LangGraph, so load it lazily."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.checkpoint.sqlite import SqliteSaver

logger = logging.getLogger(__name__)

# A thread of one checkpoint, and nothing of how it came to be.
_SELECT: Final = (
    "SELECT type, checkpoint, metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
)
_DELETE: Final = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
_INSERT: Final = (
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_SOME: Final = 20
_DELETE_SOME: Final = (
    "DELETE FROM checkpoints WHERE rowid IN"
    " (SELECT rowid FROM checkpoints WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
    "DELETE FROM writes WHERE rowid IN"
    " (SELECT rowid FROM writes WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
)


class EventLoopSaver(SqliteSaver):
    """Saves on the event loop: a checkpoint takes some 50 µs there, and more in a thread."""

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
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a node wrote: it doesn't run again."""
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread, the oldest first.

        Those of a long run take seconds: others have their turns meanwhile.
        """
        for statement in _DELETE_SOME:
            count = _SOME
            while count == _SOME:
                with self.cursor() as cursor:
                    count = cursor.execute(statement, (thread_id, _SOME)).rowcount
                await asyncio.sleep(0)


class CheckpointSaver(EventLoopSaver):
    """Keeps turns and conversations of agents that reason.

    Nothing is synced: a killed process loses nothing, and after a power failure a turn that finds
    no checkpoint starts over. Trouble with the file is no trouble of the turn's: it goes on, and
    would be gone on with from an earlier checkpoint.
    """

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, if that is possible."""
        try:
            return await super().aput(config, checkpoint, metadata, new_versions)
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

    def load_state(self, thread_id: str) -> dict[str, Any] | None:
        """Return the state that the last checkpoint of a thread holds; None without one."""
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        try:
            found = self.get_tuple(config)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            # Torn by a power failure, or of another version: the turn starts over.
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            self.delete_checkpoints(thread_id)
            return None
        return None if found is None else found.checkpoint["channel_values"]

    def delete_checkpoints(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread."""
        try:
            self.delete_thread(thread_id)
        except sqlite3.Error as error:
            logger.warning("checkpoint.not_deleted", extra={"problem": str(error)})

    def replace_state(
        self, thread_id: str, namespace: str, values: dict[str, Any], step: int
    ) -> None:
        """Save a state in the place of all that a thread held, in one write."""
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = values
        kind, body = self.serde.dumps_typed(checkpoint)
        metadata = json.dumps({"source": "update", "step": step}).encode()
        thread = (thread_id, namespace)
        try:
            with self.cursor() as cursor:
                cursor.execute(_DELETE, thread)
                cursor.execute(_INSERT, (*thread, checkpoint["id"], kind, body, metadata))
        except sqlite3.Error as error:
            logger.warning("checkpoint.not_saved", extra={"problem": str(error)})

    def find_newest_state(
        self,
        connections: Iterable[sqlite3.Connection],
        thread_id: str,
        namespace: str,
        *,
        known_step: int = 0,
    ) -> tuple[int, dict[str, Any]] | None:
        """Return the state of the thread that most steps have led to, and how many.

        It is looked for in several files: in each that a host has kept the thread in. None: there
        is none behind the step that is `known`.
        """
        best: tuple[int, str, bytes] | None = None
        for connection in connections:
            try:
                found = connection.execute(_SELECT, (thread_id, namespace)).fetchone()
                step = int(json.loads(found[2])["step"]) if found else 0
            except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
                logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
                continue
            if found and (best is None or step > best[0]):
                best = (step, found[0], found[1])
        if best is None or best[0] == known_step:
            return None
        try:
            return best[0], self.serde.loads_typed(best[1:])["channel_values"]
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            return None
