"""Saves LangGraph's checkpoints in a SQLite file. Imports LangGraph, so load it lazily."""

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver

logger = logging.getLogger(__name__)


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
