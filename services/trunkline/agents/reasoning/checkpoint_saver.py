"""Saves LangGraph checkpoints in a SQLite file. Imports LangGraph, so load it lazily."""

import asyncio
import copy
import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from trunkline.agents.reasoning.checkpoint_types import CheckpointSerializer
from trunkline.core.encryption import Cipher, Keyring
from trunkline.errors import JournalUnavailableError

logger = logging.getLogger(__name__)

# The only checkpoint of a conversation's thread: earlier checkpoints are not kept.
_SELECT: Final = (
    "SELECT type, checkpoint, metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
)
_DELETE: Final = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
_INSERT: Final = (
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_BATCH_SIZE: Final = 20
# The name of our cipher in the type of an encrypted value.
_CIPHER: Final = "trunkline"
_DELETE_BATCH: Final = (
    "DELETE FROM checkpoints WHERE rowid IN"
    " (SELECT rowid FROM checkpoints WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
    "DELETE FROM writes WHERE rowid IN"
    " (SELECT rowid FROM writes WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
)


class CheckpointCipher:
    """Encrypts values bound to the thread that they belong to.

    It is used on the event loop: set `thread_id` before a thread is read or written. Values that
    were written before a key was set are plain, and the serializer does not decrypt them.
    """

    def __init__(self, keyring: Keyring) -> None:
        self._cipher: Cipher = keyring.cipher("checkpoints", name="checkpoints")
        self.thread_id: str = ""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return the name of the cipher and the encrypted value."""
        return _CIPHER, self._cipher.encrypt(plaintext, self.thread_id)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return a value.

        Raises:
            ValueError: another cipher encrypted it, it was altered, or it is of another thread.
        """
        if ciphername != _CIPHER:
            raise ValueError(f"it is encrypted by {ciphername}")
        try:
            return self._cipher.decrypt(ciphertext, self.thread_id)
        except JournalUnavailableError as error:
            raise ValueError(error.problem) from error


class EventLoopSaver(SqliteSaver):
    """Saves checkpoints on the event loop: one takes about 50 µs there, and longer in a thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use the connection of a checkpoint file."""
        super().__init__(connection, serde=CheckpointSerializer())
        self._cipher: CheckpointCipher | None = None

    def encrypt(self, keyring: Keyring | None) -> None:
        """Encrypt what is saved from now on, if the keyring has data keys."""
        if keyring is not None and keyring.is_encrypting:
            self._cipher = CheckpointCipher(keyring)
            self.serde = EncryptedSerializer(self._cipher, self.serde)

    def with_types(self, types: Iterable[type]) -> Self:
        """Return a saver of the same file that also restores objects of these types."""
        saver = copy.copy(self)
        names = [(kind.__module__, kind.__name__) for kind in types]
        saver.serde = self.with_allowlist(names).serde
        return saver

    def _select_thread(self, thread_id: str) -> None:
        """Bind the values that are read and written next to a thread."""
        if self._cipher is not None:
            self._cipher.thread_id = thread_id

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a run resumes from."""
        self._select_thread(config["configurable"]["thread_id"])
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        self._select_thread(config["configurable"]["thread_id"])
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a node wrote, so that the node does not run again."""
        self._select_thread(config["configurable"]["thread_id"])
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread, oldest first.

        Deletes in small batches, because the many checkpoints of a long run take seconds.
        """
        for statement in _DELETE_BATCH:
            count = _BATCH_SIZE
            while count == _BATCH_SIZE:
                with self.cursor() as cursor:
                    count = cursor.execute(statement, (thread_id, _BATCH_SIZE)).rowcount
                await asyncio.sleep(0)


class CheckpointSaver(EventLoopSaver):
    """Saves turns and conversations of reasoning agents.

    Writes are not synced: they survive a killed process, and after a power failure a turn without a
    checkpoint starts over. A failed write is logged and does not fail the turn. A later attempt
    then resumes from an earlier checkpoint.
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
        """Do nothing: a node without a checkpoint runs and streams again."""

    def load_state(self, thread_id: str) -> dict[str, Any] | None:
        """Return the state in the last checkpoint of a thread, if it has a checkpoint."""
        config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        self._select_thread(thread_id)
        try:
            checkpoint_tuple = self.get_tuple(config)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            # The checkpoint is torn after a power failure or of another version. The turn starts
            # over.
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            self.delete_checkpoints(thread_id)
            return None
        return None if checkpoint_tuple is None else checkpoint_tuple.checkpoint["channel_values"]

    def delete_checkpoints(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread."""
        try:
            self.delete_thread(thread_id)
        except sqlite3.Error as error:
            logger.warning("checkpoint.not_deleted", extra={"problem": str(error)})

    def replace_state(
        self, thread_id: str, namespace: str, values: dict[str, Any], step: int
    ) -> None:
        """Replace everything saved for a thread by one state, in one transaction."""
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = values
        self._select_thread(thread_id)
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
        """Return the thread's state with the most steps, and the number of its steps.

        Searches one file per host that may have saved the thread. Returns None if no file has more
        steps than `known_step`.
        """
        best: tuple[int, str, bytes] | None = None
        for connection in connections:
            try:
                row = connection.execute(_SELECT, (thread_id, namespace)).fetchone()
                step = int(json.loads(row[2])["step"]) if row else 0
            except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
                logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
                continue
            if row and (best is None or step > best[0]):
                best = (step, row[0], row[1])
        if best is None or best[0] <= known_step:
            return None
        self._select_thread(thread_id)
        try:
            return best[0], self.serde.loads_typed(best[1:])["channel_values"]
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("checkpoint.not_read", extra={"problem": type(error).__name__})
            return None
