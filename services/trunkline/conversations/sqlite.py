"""Checkpoints in a SQLite file beside each journal, and conversations in a file of all hosts."""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite_file import SqliteFile
from trunkline.conversations.store import (
    ConversationKey,
    StoredCheckpoint,
    StoredState,
    StoredWrite,
    ThreadKey,
    Ticket,
    Turn,
    select_latest,
)
from trunkline.conversations.turn_order import LocalTurns, TurnOrder
from trunkline.core.database import run_script
from trunkline.core.encryption import Cipher, Keyring
from trunkline.errors import JournalDamagedError, JournalUnavailableError

logger = logging.getLogger(__name__)

_TurnRow: TypeAlias = tuple[str, str, str, str, int, str, int, str]

# The tables of LangGraph's own SQLite saver, which wrote the files of earlier builds.
CHECKPOINT_TABLES: Final = """
CREATE TABLE IF NOT EXISTS checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
CREATE TABLE IF NOT EXISTS writes (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL,
    channel TEXT NOT NULL, type TEXT, value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);
"""
CONVERSATION_TABLES: Final = """
CREATE TABLE IF NOT EXISTS conversations (
    agent TEXT NOT NULL, context_id TEXT NOT NULL, account TEXT NOT NULL, step INTEGER NOT NULL,
    kind TEXT NOT NULL, body BLOB NOT NULL, changed_ns INTEGER NOT NULL,
    PRIMARY KEY (agent, context_id, account)
);
CREATE INDEX IF NOT EXISTS conversations_by_change ON conversations (changed_ns);
-- ancestors: ids of tasks, separated by spaces
-- journal: the name of the file of its journal
CREATE TABLE IF NOT EXISTS open_turns (
    task_id TEXT NOT NULL, number INTEGER NOT NULL,
    agent TEXT NOT NULL, context_id TEXT NOT NULL, account TEXT NOT NULL, place INTEGER NOT NULL,
    request TEXT NOT NULL, ancestors TEXT NOT NULL, journal TEXT NOT NULL,
    PRIMARY KEY (task_id, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_turns_by_place
    ON open_turns (agent, context_id, account, place);
CREATE INDEX IF NOT EXISTS open_turns_by_request ON open_turns (request);
"""
_FIND_CHECKPOINT: Final = (
    "SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
    " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
_LIST_CHECKPOINTS: Final = (
    "SELECT checkpoint_id, metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
)
_FIND_WRITES: Final = (
    "SELECT task_id, task_path, idx, channel, type, value FROM writes"
    " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
    " ORDER BY task_path, task_id, idx"
)
_ADD_WRITE: Final = (
    "INSERT OR IGNORE INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path,"
    " idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_REPLACE_WRITE: Final = _ADD_WRITE.replace("IGNORE", "REPLACE")
_DELETE_BATCH: Final = (
    "DELETE FROM checkpoints WHERE rowid IN"
    " (SELECT rowid FROM checkpoints WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
    "DELETE FROM writes WHERE rowid IN"
    " (SELECT rowid FROM writes WHERE thread_id = ? ORDER BY rowid LIMIT ?)",
)
_BATCH_SIZE: Final = 20
_FIND_PLACE: Final = "SELECT place FROM open_turns WHERE task_id = ? AND number = ?"
_FIND_PLACES: Final = (
    "SELECT min(place), max(place), max(CASE WHEN request = ? THEN place END) FROM open_turns"
    " WHERE agent = ? AND context_id = ? AND account = ?"
)
_ADD_TURN: Final = "INSERT INTO open_turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LIST_TURNS: Final = (
    "SELECT agent, context_id, account, task_id, number, ancestors, place, journal FROM open_turns"
)
_LIST_CONVERSATION: Final = (
    f"{_LIST_TURNS} WHERE agent = ? AND context_id = ? AND account = ? ORDER BY place"
)
_LIST_REQUEST: Final = f"{_LIST_TURNS} WHERE request = ?"
_LIST_JOURNAL: Final = f"{_LIST_TURNS} WHERE journal = ?"
# The conversations in checkpoint files of earlier builds. Their namespaces were their accounts.
_FIND_EARLIER: Final = (
    "SELECT thread_id, checkpoint_ns, type, checkpoint, metadata FROM checkpoints"
    " WHERE checkpoint_ns <> '' AND thread_id NOT LIKE 'graph/%'"
)
_DELETE_EARLIER: Final = "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"

# Age limits: for turns that were never resumed, and for conversations without new messages. The
# tasks of users' graphs may wait for input for as long as conversations are retained.
_TURN_RETENTION_DAYS: Final = 7
_CONVERSATION_RETENTION_DAYS: Final = 90
_DAY_NS: Final = 24 * 3600 * 1_000_000_000
# The time from 1582, where UUID timestamps begin, to 1970, in units of 100 ns.
_UUID_EPOCH: Final = 0x01B21DD213814000
# Marks the kind of an encrypted value.
_ENCRYPTED: Final = "+trunkline"

CHECKPOINT_SUFFIX: Final = ".checkpoints"
"""What the name of a checkpoint file has after the name of its journal's file."""
CONVERSATION_FILE: Final = "conversations.sqlite"
"""The file of conversations, in the folder of the journals."""


async def open_sqlite_memory(
    journal: Path, keyring: Keyring | None = None, local: LocalTurns | None = None
) -> AgentMemory:
    """Return the memory of the agents of a journal in a file, which this process owns.

    `keyring` belongs to the data directory. It encrypts content if it has data keys. The journals
    of a process share `local`.

    Raises:
        JournalUnavailableError: the open turns of the journal can't be read.
    """
    encryption = Encryption(keyring)
    checkpoints = SqliteCheckpoints(checkpoint_path(journal), encryption)
    conversations = SqliteConversations(
        journal.parent / CONVERSATION_FILE, encryption, journal=journal.name
    )
    memory = _build_memory(checkpoints, conversations, local)
    await memory.order.load()
    try:
        await _import_conversations(checkpoints, conversations)
    except JournalUnavailableError as error:
        extra = {"file": error.path, "problem": error.problem}
        logger.warning("conversations.not_imported", extra=extra)
    return memory


def open_memory_of_process() -> AgentMemory:
    """Return a memory that ends with the process, for hosts without a data directory."""
    return _build_memory(SqliteCheckpoints(None), SqliteConversations(None), None)


def checkpoint_path(journal: Path) -> Path:
    """Return the checkpoint file of a journal, whose name does not end like a journal's."""
    return Path(f"{journal}{CHECKPOINT_SUFFIX}")


def _build_memory(
    checkpoints: "SqliteCheckpoints",
    conversations: "SqliteConversations",
    local: LocalTurns | None,
) -> AgentMemory:
    order = TurnOrder(conversations, local or LocalTurns())

    async def close() -> None:
        order.close()
        checkpoints.file.close()
        conversations.file.close()

    async def clean() -> None:
        # A host without conversations makes no file.
        if checkpoints.file.exists:
            await checkpoints.file.write(_clean_checkpoints)
        if conversations.file.exists:
            await conversations.file.write(_clean_conversations)

    return AgentMemory(checkpoints, conversations, order, clean, close)


class Encryption:
    """Encrypts values bound to their place, if the data directory has keys.

    Values from before a key was set are plain.
    """

    def __init__(self, keyring: Keyring | None = None) -> None:
        self._cipher: Cipher | None = None
        if keyring is not None and keyring.is_encrypting:
            self._cipher = keyring.cipher("checkpoints", name="checkpoints")

    def seal(self, place: str, kind: str, body: bytes) -> tuple[str, bytes]:
        """Return the kind and the body to store."""
        if self._cipher is None:
            return kind, body
        return kind + _ENCRYPTED, self._cipher.encrypt(body, place)

    def open(self, place: str, kind: str, body: bytes) -> tuple[str, bytes]:
        """Return the kind and the body that were stored.

        Raises:
            JournalDamagedError: it was altered, it is from another place, or there is no key.
        """
        plain_kind, separator, _ = kind.partition("+")
        if not separator:
            return kind, body
        if self._cipher is None or plain_kind + _ENCRYPTED != kind:
            raise JournalDamagedError("checkpoints", f"it can't decrypt the kind {kind}")
        return plain_kind, self._cipher.decrypt(body, place)


class SqliteCheckpoints:
    """A `CheckpointStore` in a file, which the host that takes over the journal finds beside it."""

    def __init__(self, path: Path | None, encryption: Encryption | None = None) -> None:
        """Without a path, the checkpoints are in memory."""
        self.file: SqliteFile = SqliteFile(path, _prepare_checkpoints)
        self.encryption: Encryption = encryption or Encryption()

    @property
    def is_durable(self) -> bool:
        """True if the checkpoints are in a file; see `CheckpointStore`."""
        return self.file.path is not None

    async def find(self, thread: ThreadKey, checkpoint_id: str = "") -> StoredCheckpoint | None:
        """Return a checkpoint with its writes; see `CheckpointStore`."""

        def work(connection: sqlite3.Connection) -> StoredCheckpoint | None:
            wanted = checkpoint_id or select_latest(connection.execute(_LIST_CHECKPOINTS, thread))
            row = connection.execute(_FIND_CHECKPOINT, (*thread, wanted)).fetchone()
            if row is None:
                return None
            found_id, parent_id, kind, body, metadata = row
            rows = connection.execute(_FIND_WRITES, (*thread, found_id)).fetchall()
            unseal, place = self.encryption.open, thread.thread_id
            return StoredCheckpoint(
                found_id,
                parent_id,
                *unseal(place, kind, body),
                metadata or b"{}",
                [
                    StoredWrite(task_id, path, position, channel, *unseal(place, kind, body))
                    for task_id, path, position, channel, kind, body in rows
                ],
            )

        return await self.file.read(work)

    async def put(self, thread: ThreadKey, checkpoint: StoredCheckpoint) -> None:
        """Store a checkpoint; see `CheckpointStore`."""
        content = self.encryption.seal(thread.thread_id, checkpoint.kind, checkpoint.body)
        row = (
            *thread,
            checkpoint.checkpoint_id,
            checkpoint.parent_id,
            *content,
            checkpoint.metadata,
        )
        statement = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)"
        await self.file.write(lambda connection: connection.execute(statement, row))

    async def add_writes(
        self,
        thread: ThreadKey,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replaces: bool,
    ) -> None:
        """Store writes after a checkpoint; see `CheckpointStore`."""
        statement = _REPLACE_WRITE if replaces else _ADD_WRITE
        rows = [
            (
                *thread,
                checkpoint_id,
                *write[:4],
                *self.encryption.seal(thread.thread_id, write.kind, write.body),
            )
            for write in writes
        ]
        await self.file.write(lambda connection: connection.executemany(statement, rows))

    async def delete(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread, oldest first; see `CheckpointStore`.

        Deletes in small batches, because the many checkpoints of a long run take seconds.
        """
        is_complete = False
        while not is_complete:
            counts = await self.file.write(
                lambda connection: [
                    connection.execute(statement, (thread_id, _BATCH_SIZE)).rowcount
                    for statement in _DELETE_BATCH
                ]
            )
            is_complete = max(counts) < _BATCH_SIZE
            if not is_complete:
                await asyncio.sleep(0)


class SqliteConversations:
    """A `ConversationStore` in a file that all hosts of a data directory share."""

    def __init__(
        self, path: Path | None, encryption: Encryption | None = None, *, journal: str = ""
    ) -> None:
        """Without a path, the conversations are in memory.

        `journal` is the name of the file of the journal, in the same folder.
        """
        self._journal = journal
        self.file: SqliteFile = SqliteFile(path, _prepare_conversations)
        self.encryption: Encryption = encryption or Encryption()

    async def find(self, key: ConversationKey) -> StoredState | None:
        """Return the state of a conversation; see `ConversationStore`.

        A state that can't be decrypted has an empty kind. If the file is damaged, the conversation
        counts as new, so that the turn does not fail.
        """
        query = (
            "SELECT step, kind, body FROM conversations"
            " WHERE agent = ? AND context_id = ? AND account = ?"
        )
        try:
            row = await self.file.read(lambda connection: connection.execute(query, key).fetchone())
        except JournalDamagedError as error:
            logger.warning("conversation.not_read", extra={"problem": error.problem})
            return None
        if row is None:
            return None
        step, kind, body = row
        try:
            return StoredState(step, *self.encryption.open(_place(key), kind, body))
        except JournalDamagedError as error:
            logger.warning("conversation.not_read", extra={"problem": error.problem})
            return StoredState(step, "", b"")

    async def replace(self, key: ConversationKey, state: StoredState, *, known_step: int) -> bool:
        """Replace the state of a conversation; see `ConversationStore`."""
        kind, body = self.encryption.seal(_place(key), state.kind, state.body)
        content = (state.step, kind, body, time.time_ns())

        def work(connection: sqlite3.Connection) -> bool:
            if known_step:
                changed = connection.execute(
                    "UPDATE conversations SET step = ?, kind = ?, body = ?, changed_ns = ?"
                    " WHERE agent = ? AND context_id = ? AND account = ? AND step = ?",
                    (*content, *key, known_step),
                )
            else:
                changed = connection.execute(
                    "INSERT OR IGNORE INTO conversations VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, *content),
                )
            return changed.rowcount > 0

        return await self.file.write(work)

    async def take_ticket(self, turn: Turn) -> Ticket:
        """Return the ticket of a turn; see `ConversationStore`."""

        def work(connection: sqlite3.Connection) -> Ticket:
            lowest, highest, shared = connection.execute(
                _FIND_PLACES, (turn.request, *turn.key)
            ).fetchone()
            present = connection.execute(_FIND_PLACE, (turn.task_id, turn.number)).fetchone()
            if present is not None:
                return Ticket(turn, present[0], present[0] == lowest)
            place = shared or (highest or 0) + 1
            ancestors = " ".join(turn.ancestors)
            row = (turn.task_id, turn.number, *turn.key, place, turn.request, ancestors)
            connection.execute(_ADD_TURN, (*row, self._journal))
            return Ticket(turn, place, lowest is None or place == lowest)

        return await self.file.write(work)

    async def list_tickets(self, key: ConversationKey) -> Sequence[Ticket]:
        """Return the tickets of a conversation; see `ConversationStore`.

        If the file of a journal is gone, its tickets are removed.
        """
        rows = await self._list(_LIST_CONVERSATION, key)
        gone = {row[-1] for row in rows if not self._has_journal(row[-1])}
        if gone:
            await self.file.write(
                lambda connection: connection.executemany(
                    "DELETE FROM open_turns WHERE journal = ?", [(journal,) for journal in gone]
                )
            )
        rows = [row for row in rows if row[-1] not in gone]
        return [_build_ticket(row, is_first=row[6] == rows[0][6]) for row in rows]

    async def list_tickets_below(self, task_id: str, request: str) -> Sequence[Ticket]:
        """Return the tickets below a task; see `ConversationStore`."""
        tickets = map(_build_ticket, await self._list(_LIST_REQUEST, (request,)))
        return [ticket for ticket in tickets if task_id in ticket.turn.ancestors]

    async def list_own_tickets(self) -> Sequence[Ticket]:
        """Return the tickets of this journal; see `ConversationStore`."""
        if not self.file.exists:
            # A host without conversations makes no file.
            return []
        return [_build_ticket(row) for row in await self._list(_LIST_JOURNAL, (self._journal,))]

    async def remove_ticket(self, task_id: str, number: int) -> None:
        """Remove the ticket of a turn; see `ConversationStore`."""
        statement = "DELETE FROM open_turns WHERE task_id = ? AND number <= ?"
        await self.file.write(lambda connection: connection.execute(statement, (task_id, number)))

    async def _list(self, query: str, values: tuple[str, ...]) -> list[_TurnRow]:
        return await self.file.read(lambda connection: connection.execute(query, values).fetchall())

    def _has_journal(self, name: str) -> bool:
        return self.file.path is None or self.file.path.with_name(name).exists()


def _build_ticket(row: _TurnRow, *, is_first: bool = False) -> Ticket:
    agent, context_id, account, task_id, number, ancestors, place, _ = row
    key = ConversationKey(agent, context_id, account)
    return Ticket(Turn(key, task_id, number, tuple(ancestors.split())), place, is_first)


async def _import_conversations(
    checkpoints: SqliteCheckpoints, conversations: SqliteConversations
) -> None:
    """Move conversations from a checkpoint file to the file of conversations.

    Earlier builds stored the conversations of a host in its checkpoint file. Of two states of a
    conversation, the state after more steps stays.
    """
    if not checkpoints.file.exists:
        return
    rows = await checkpoints.file.read(
        lambda connection: connection.execute(_FIND_EARLIER).fetchall()
    )
    moved: list[tuple[str, str]] = []
    for thread_id, account, kind, body, metadata in rows:
        # The account of an agent that is a graph was also part of its thread.
        name, _, context_id = thread_id.partition("/")
        key = ConversationKey(name.partition("@")[0], context_id, account)
        try:
            step = int(json.loads(metadata)["step"])
            state = StoredState(step, *checkpoints.encryption.open(thread_id, kind, body))
        except (JournalDamagedError, ValueError, TypeError, KeyError) as error:
            extra = {"problem": type(error).__name__}
            logger.warning("conversation.not_read", extra=extra)
            continue
        present = await conversations.find(key)
        known_step = 0 if present is None else present.step
        if state.step <= known_step or await conversations.replace(
            key, state, known_step=known_step
        ):
            moved.append((thread_id, account))
    if moved:
        await checkpoints.file.write(
            lambda connection: connection.executemany(_DELETE_EARLIER, moved)
        )


def _place(key: ConversationKey) -> str:
    """Return what the ciphertext of a conversation is bound to."""
    return "/".join(key)


def _prepare_checkpoints(connection: sqlite3.Connection) -> None:
    run_script(connection, CHECKPOINT_TABLES)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
    if "task_path" not in columns:
        # Versions of LangGraph's saver before 3.1 wrote no paths.
        connection.execute("ALTER TABLE writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''")


def _clean_checkpoints(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM checkpoints WHERE checkpoint_id < ? AND checkpoint_ns = ''"
        " AND thread_id NOT LIKE 'graph/%'",
        (_min_checkpoint_id(_TURN_RETENTION_DAYS),),
    )
    for table in ("checkpoints", "writes"):
        connection.execute(
            # The copied head of a conversation has the lowest id, and is deleted with its turn.
            " ".join(("DELETE FROM", table, "WHERE checkpoint_id >= '1' AND checkpoint_id < ?")),
            (_min_checkpoint_id(_CONVERSATION_RETENTION_DAYS),),
        )


def _min_checkpoint_id(days: int) -> str:
    """Return the smallest checkpoint id of this age. Checkpoint ids begin with their time."""
    steps = (time.time_ns() - days * _DAY_NS) // 100 + _UUID_EPOCH
    digits = f"{steps >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _prepare_conversations(connection: sqlite3.Connection) -> None:
    run_script(connection, CONVERSATION_TABLES)


def _clean_conversations(connection: sqlite3.Connection) -> None:
    oldest_ns = time.time_ns() - _CONVERSATION_RETENTION_DAYS * _DAY_NS
    connection.execute("DELETE FROM conversations WHERE changed_ns < ?", (oldest_ns,))
