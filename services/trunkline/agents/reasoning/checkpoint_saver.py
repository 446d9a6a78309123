"""LangGraph's checkpointer over a `CheckpointStore`. Imports LangGraph, so load it lazily."""

import json
import logging
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from trunkline.agents.reasoning.checkpoint_types import CheckpointSerializer
from trunkline.conversations.store import CheckpointStore, StoredCheckpoint, StoredWrite, ThreadKey
from trunkline.errors import JournalDamagedError, JournalUnavailableError

logger = logging.getLogger(__name__)

_VERSION_DIGITS: Final = 32


class StoreSaver(BaseCheckpointSaver[str]):
    """Saves the checkpoints of graphs in a store."""

    def __init__(self, store: CheckpointStore, types: Iterable[type] = ()) -> None:
        """Checkpoints restore objects if LangGraph or `types` has their type."""
        super().__init__(serde=CheckpointSerializer.for_types(types))
        self.store: CheckpointStore = store

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a run resumes from."""
        thread = _get_thread(config)
        stored = await self.store.find(thread, get_checkpoint_id(config) or "")
        if stored is None:
            return None
        parent = None if not stored.parent_id else _build_config(thread, stored.parent_id)
        return CheckpointTuple(
            _build_config(thread, stored.checkpoint_id),
            self.serde.loads_typed((stored.kind, stored.body)),
            json.loads(stored.metadata),
            parent,
            [
                (write.task_id, write.channel, self.serde.loads_typed((write.kind, write.body)))
                for write in stored.writes
            ],
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        thread = _get_thread(config)
        kind, body = self.serde.dumps_typed(checkpoint)
        described = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False)
        stored = StoredCheckpoint(
            checkpoint["id"],
            get_checkpoint_id(config),
            kind,
            body,
            described.encode("utf-8", "ignore"),
        )
        await self.store.put(thread, stored)
        return _build_config(thread, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a node wrote, so that the node does not run again."""
        stored = [
            StoredWrite(
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                *self.serde.dumps_typed(value),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        checkpoint_id = get_checkpoint_id(config) or ""
        await self.store.add_writes(_get_thread(config), checkpoint_id, stored, replaces=replaces)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread."""
        await self.store.delete(thread_id)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version of a channel after `current`, as LangGraph's own savers name them.

        The number increases. The fraction tells versions of different runs apart.
        """
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:0{_VERSION_DIGITS}}.{secrets.token_hex(8)}"


class TurnSaver(StoreSaver):
    """Saves the turns of reasoning agents.

    A failed write is logged and does not fail the turn. A later attempt then resumes from an
    earlier checkpoint, or begins again.
    """

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, or log the failure."""
        try:
            return await super().aput(config, checkpoint, metadata, new_versions)
        except JournalUnavailableError as error:
            logger.warning("checkpoint.not_saved", extra={"problem": error.problem})
            return config

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do nothing: a node without a checkpoint runs and streams again."""

    async def load_state(self, thread_id: str) -> dict[str, Any] | None:
        """Return the state in the last checkpoint of a thread, if it has a checkpoint.

        Raises:
            JournalUnavailableError: the store can't be read now.
        """
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        try:
            found = await self.aget_tuple(config)
        except (JournalDamagedError, ValueError, TypeError, KeyError) as error:
            # The checkpoint is torn after a power failure or of another version, or its key is
            # missing. The turn starts over.
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            await self.delete_turn(thread_id)
            return None
        return None if found is None else found.checkpoint["channel_values"]

    async def delete_turn(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread, or log the failure."""
        try:
            await self.store.delete(thread_id)
        except JournalUnavailableError as error:
            logger.warning("checkpoint.not_deleted", extra={"problem": error.problem})


def _get_thread(config: RunnableConfig) -> ThreadKey:
    configurable = config["configurable"]
    return ThreadKey(str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""))


def _build_config(thread: ThreadKey, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread.thread_id,
            "checkpoint_ns": thread.namespace,
            "checkpoint_id": checkpoint_id,
        }
    }
