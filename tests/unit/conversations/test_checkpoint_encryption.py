"""Checkpoints and conversations are encrypted, each bound to its place."""

import sqlite3
from contextlib import closing
from pathlib import Path

from harness.journal.protected import new_key, open_keyring
from trunkline.conversations.sqlite import CONVERSATION_FILE, open_sqlite_memory
from trunkline.conversations.store import (
    ConversationKey,
    StoredCheckpoint,
    StoredState,
    StoredWrite,
    ThreadKey,
)
from trunkline.errors import JournalUnavailableError

# Ids begin with their time; old checkpoints are deleted.
ID = "ff"
SECRET = b"the patient's name"
ONE, TWO = ThreadKey("one"), ThreadKey("two")
WRITE = StoredWrite("task", "", 0, "channel", "bytes", SECRET)
FIRST, SECOND = ConversationKey("a", "c", "one"), ConversationKey("a", "c", "two")


def checkpoint(body: bytes) -> StoredCheckpoint:
    return StoredCheckpoint(ID, None, "bytes", body, b"{}")


def run(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def read_all(folder: Path) -> bytes:
    """Return the content of the four files, two of which are logs."""
    files = [path for path in folder.iterdir() if path.is_file()]
    assert len(files) >= 4
    return b"".join(path.read_bytes() for path in files)


async def test_content_is_encrypted_and_bound_to_its_place(tmp_path: Path) -> None:
    journal = tmp_path / "mesh.db"
    keyring = open_keyring(tmp_path, new_key())
    memory = await open_sqlite_memory(journal, keyring)
    await memory.checkpoints.put(ONE, checkpoint(SECRET))
    await memory.checkpoints.add_writes(ONE, ID, [WRITE], replaces=False)
    await memory.checkpoints.put(TWO, checkpoint(b"other"))
    state = StoredState(1, "bytes", SECRET)
    for key in (FIRST, SECOND):
        assert await memory.conversations.replace(key, state, known_step=0)

    assert await memory.checkpoints.find(ONE) == checkpoint(SECRET)._replace(writes=[WRITE])
    assert await memory.checkpoints.find(TWO) == checkpoint(b"other")._replace(writes=[])
    assert await memory.conversations.find(FIRST) == state
    assert SECRET not in read_all(tmp_path)
    await memory.close()

    body = "(SELECT checkpoint FROM checkpoints WHERE thread_id = 'one')"
    run(tmp_path / "mesh.db.checkpoints", f"UPDATE checkpoints SET checkpoint = {body}")  # noqa: S608
    body = "(SELECT body FROM conversations WHERE account = 'one')"
    run(tmp_path / CONVERSATION_FILE, f"UPDATE conversations SET body = {body}")  # noqa: S608
    memory = await open_sqlite_memory(journal, keyring)
    assert await memory.checkpoints.find(ONE) is not None
    try:
        moved = await memory.checkpoints.find(TWO)
    except JournalUnavailableError:
        moved = None
    assert moved is None
    assert await memory.conversations.find(FIRST) == state
    assert await memory.conversations.find(SECOND) == StoredState(1, "", b"")
    await memory.close()


async def test_plain_content_stays_readable_after_a_key_is_set(tmp_path: Path) -> None:
    journal = tmp_path / "mesh.db"
    state = StoredState(1, "bytes", SECRET)
    memory = await open_sqlite_memory(journal)
    await memory.checkpoints.put(ONE, checkpoint(SECRET))
    await memory.conversations.replace(FIRST, state, known_step=0)
    await memory.close()
    memory = await open_sqlite_memory(journal, open_keyring(tmp_path, new_key()))
    found = await memory.checkpoints.find(ONE)
    assert found is not None
    assert found.body == SECRET
    assert await memory.conversations.find(FIRST) == state
    await memory.close()
