"""The files of checkpoints and conversations: damaged, old, of earlier builds, and shared."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from harness.journal.protected import new_key, open_keyring
from trunkline.agents.reasoning.checkpoint_types import CheckpointSerializer
from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import CONVERSATION_FILE, checkpoint_path, open_sqlite_memory
from trunkline.conversations.store import (
    ConversationKey,
    StoredCheckpoint,
    StoredState,
    ThreadKey,
)
from trunkline.core.encryption import Keyring
from trunkline.errors import JournalUnavailableError

THREAD = ThreadKey("task/1")
CHECKPOINT = StoredCheckpoint("ff", None, "null", b"", b"{}", [])
KEY = ConversationKey("math", "c/1", "anonymous")
STATE = StoredState(1, "k", b"")
DAY_NS = 24 * 3600 * 10**9


class EarlierCipher:
    """The cipher of earlier builds, which bound values to the thread of the saver."""

    def __init__(self, keyring: Keyring, thread_id: str) -> None:
        self.cipher = keyring.cipher("checkpoints", name="checkpoints")
        self.thread_id = thread_id

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "trunkline", self.cipher.encrypt(plaintext, self.thread_id)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        raise NotImplementedError(ciphername)


def write_as_earlier_build(
    journal: Path, thread_id: str, account: str, step: int, text: str, keyring: Keyring | None
) -> None:
    """Store a conversation in the checkpoint file of a journal, as builds before this one did."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [HumanMessage(text)]}
    serializer: Any = CheckpointSerializer()
    if keyring is not None:
        serializer = EncryptedSerializer(EarlierCipher(keyring, thread_id), serializer)
    journal.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(checkpoint_path(journal), isolation_level=None)) as connection:
        SqliteSaver(connection).setup()
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, NULL, ?, ?, ?)",
            (
                thread_id,
                account,
                checkpoint["id"],
                *serializer.dumps_typed(checkpoint),
                json.dumps({"source": "update", "step": step}).encode(),
            ),
        )
    checkpoint_path(journal).chmod(0o600)


def text_of(state: StoredState) -> str:
    (message,) = CheckpointSerializer().loads_typed(state[1:])["channel_values"]["messages"]
    return str(message.text)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_conversations_of_earlier_builds_are_found(
    tmp_path: Path, *, is_encrypted: bool
) -> None:
    keyring = open_keyring(tmp_path, new_key()) if is_encrypted else None
    folder = tmp_path / "journals"
    for name, thread_id, account, step, text in (
        ("math", "math/c/1", "anonymous", 3, "newest"),
        ("math.2", "math/c/1", "anonymous", 2, "older"),
        ("math.2", "math/other", "anonymous", 1, "other"),
        ("graph", "graph@a%2Fb/c/1", "a/b", 1, "of a graph"),
    ):
        write_as_earlier_build(folder / f"{name}.db", thread_id, account, step, text, keyring)
    with closing(sqlite3.connect(checkpoint_path(folder / "math.db"))) as connection:
        config: Any = {"configurable": {"thread_id": "math-task/1", "checkpoint_ns": ""}}
        SqliteSaver(connection).put(config, empty_checkpoint(), {"step": 1}, {})

    for name in ("math", "math.2", "graph"):
        memory = await open_sqlite_memory(folder / f"{name}.db", keyring)
        await memory.close()
    # A second start finds nothing that is older.
    memory = await open_sqlite_memory(folder / "math.db", keyring)
    graph_key = ConversationKey("graph", "c/1", "a/b")
    for key, step, text in (
        (KEY, 3, "newest"),
        (KEY._replace(context_id="other"), 1, "other"),
        (graph_key, 1, "of a graph"),
    ):
        state = await memory.conversations.find(key)
        assert state is not None
        assert (state.step, text_of(state)) == (step, text)
    assert await memory.checkpoints.find(ThreadKey("math-task/1")) is not None
    await memory.close()


async def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    journal = tmp_path / "math.db"
    for path in (checkpoint_path(journal), tmp_path / CONVERSATION_FILE):
        path.write_bytes(b"this is no database, " * 500)
    memories = [await open_sqlite_memory(tmp_path / name) for name in ("math.db", "other.db")]
    await memories[0].checkpoints.put(THREAD, CHECKPOINT)
    state = StoredState(1, "k", b"")
    assert await memories[0].conversations.replace(KEY, state, known_step=0)
    assert await memories[1].conversations.find(KEY) == state
    assert await memories[0].checkpoints.find(THREAD) == CHECKPOINT
    for memory in memories:
        await memory.close()


async def test_a_file_that_can_not_be_created_is_an_error_that_passes(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    folder.touch()
    memory = await open_sqlite_memory(folder / "math.db")
    with pytest.raises(JournalUnavailableError):
        await memory.checkpoints.put(THREAD, CHECKPOINT)
    with pytest.raises(JournalUnavailableError):
        await memory.conversations.find(KEY)
    folder.unlink()
    await memory.checkpoints.put(THREAD, CHECKPOINT)
    assert await memory.checkpoints.find(THREAD) == CHECKPOINT
    assert await memory.conversations.find(KEY) is None
    await memory.close()
    assert checkpoint_path(folder / "math.db").exists()


@asynccontextmanager
async def open_beside(folder: Path) -> AsyncIterator[tuple[AgentMemory, sqlite3.Connection]]:
    """Open a memory, and lock its conversations for another process; the state `step 1` exists."""
    memory = await open_sqlite_memory(folder / "math.db")
    other = await open_sqlite_memory(folder / "other.db")
    assert await other.conversations.replace(KEY, STATE, known_step=0)
    await other.close()
    with closing(sqlite3.connect(folder / CONVERSATION_FILE, isolation_level=None)) as holder:
        # Not even readers are let in.
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        yield memory, holder
    await memory.close()


async def test_a_read_waits_for_a_lock_of_another_process(tmp_path: Path) -> None:
    async with open_beside(tmp_path) as (memory, holder), asyncio.TaskGroup() as group:
        found = group.create_task(memory.conversations.find(KEY))
        await asyncio.sleep(0)
        assert not found.done()
        holder.close()
        assert await found == STATE


async def test_a_file_that_stays_locked_is_an_error_that_passes(tmp_path: Path) -> None:
    async with open_beside(tmp_path) as (memory, holder):
        with pytest.raises(JournalUnavailableError):
            await memory.conversations.find(KEY)
        holder.close()
        assert await memory.conversations.find(KEY) == STATE
        assert await memory.conversations.replace(KEY, STATE._replace(step=2), known_step=1)


async def test_old_content_is_deleted(tmp_path: Path) -> None:
    journal = tmp_path / "math.db"
    threads = (THREAD, ThreadKey("graph/task"))
    memory = await open_sqlite_memory(journal)
    for thread in threads:
        # The ids begin with a time in January 2024.
        await memory.checkpoints.put(thread, CHECKPOINT._replace(checkpoint_id="1eea8c26-0"))
    await memory.conversations.replace(KEY, StoredState(1, "k", b""), known_step=0)
    await memory.close()
    with closing(sqlite3.connect(tmp_path / CONVERSATION_FILE)) as connection:
        old_ns = time.time_ns() - 91 * DAY_NS
        connection.execute("UPDATE conversations SET changed_ns = ?", (old_ns,))
        connection.commit()

    memory = await open_sqlite_memory(journal)
    await memory.clean()
    for thread in threads:
        assert await memory.checkpoints.find(thread) is None
    assert await memory.conversations.find(KEY) is None
    await memory.close()


async def test_a_week_is_too_long_for_a_turn_and_not_for_a_waiting_graph(tmp_path: Path) -> None:
    journal = tmp_path / "math.db"
    steps = (time.time_ns() - 8 * DAY_NS) // 100 + 0x01B21DD213814000
    old = CHECKPOINT._replace(checkpoint_id=f"{steps >> 28:08x}-{steps >> 12 & 0xFFFF:04x}-6")
    waiting = ThreadKey("graph/task")
    memory = await open_sqlite_memory(journal)
    for thread in (THREAD, waiting):
        await memory.checkpoints.put(thread, old)
    await memory.close()
    memory = await open_sqlite_memory(journal)
    await memory.clean()
    assert await memory.checkpoints.find(THREAD) is None
    assert await memory.checkpoints.find(waiting) == old
    await memory.close()


async def test_a_lock_of_another_process_delays_a_write_and_not_the_event_loop(
    tmp_path: Path,
) -> None:
    memory = await open_sqlite_memory(tmp_path / "math.db")
    assert await memory.conversations.replace(KEY, StoredState(1, "k", b""), known_step=0)
    path = tmp_path / CONVERSATION_FILE
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            writing = group.create_task(
                memory.conversations.replace(KEY, StoredState(2, "k", b""), known_step=1)
            )
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert not writing.done()
            other.execute("COMMIT")
            assert await writing
    await memory.close()


async def test_deleting_a_long_thread_yields_to_other_tasks(tmp_path: Path) -> None:
    memory = await open_sqlite_memory(tmp_path / "math.db")
    ids = [f"ff{number:02}" for number in range(70)]
    for checkpoint_id in ids:
        await memory.checkpoints.put(THREAD, CHECKPOINT._replace(checkpoint_id=checkpoint_id))
    observed_counts = set()
    async with asyncio.TaskGroup() as group:
        deletion = group.create_task(memory.checkpoints.delete(THREAD.thread_id))
        while not deletion.done():
            await asyncio.sleep(0)
            found = [await memory.checkpoints.find(THREAD, each) for each in ids]
            observed_counts.add(len(ids) - found.count(None))
    assert {50, 30, 10, 0} <= observed_counts
    await memory.close()
