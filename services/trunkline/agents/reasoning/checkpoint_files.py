"""SQLite files for checkpoints: one beside each journal, open while turns use it.

A file stays open for a while after its last turn, because opening it takes longer than the work of
a turn on it. Files of other hosts are opened read-only. Imports LangGraph, so load it lazily.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trunkline.agents.reasoning.checkpoint_saver import CheckpointSaver
from trunkline.core.database import connect, connect_read_only, create_file
from trunkline.core.encryption import Keyring
from trunkline.errors import JournalUnavailableError
from trunkline.tasks.turn_runtime import TurnRuntime

logger = logging.getLogger(__name__)

FILE_SUFFIX: Final = ".checkpoints"
"""The suffix of checkpoint file names."""

# Age limits: for turns that were never resumed, and for conversations without new messages.
_TURN_RETENTION_DAYS: Final = 7
_CONVERSATION_RETENTION_DAYS: Final = 90
_DAY_NS: Final = 24 * 3600 * 1_000_000_000
# The time from 1582, where UUID timestamps begin, to 1970, in units of 100 ns.
_UUID_EPOCH: Final = 0x01B21DD213814000
_CLOSE_DELAY_S: Final = 20.0
# A lock held by another host must not delay our turns.
_BUSY_TIMEOUT_S: Final = 0.05
_IN_MEMORY: Final = ":memory:"


@dataclass(slots=True)
class CheckpointFile:
    """An open checkpoint file, and read-only connections to the other files in its folder."""

    path: Path
    saver: CheckpointSaver
    inode: int
    users: int = 0
    close_timer: asyncio.TimerHandle | None = None
    loop: asyncio.AbstractEventLoop | None = None
    connections: dict[Path, tuple[int, sqlite3.Connection]] = field(default_factory=dict)

    def open_other_files(self) -> Iterator[sqlite3.Connection]:
        """Yield read-only connections to the checkpoint files of other journals in the folder.

        Files that can't be read, are links, or may be changed by other users are skipped.
        """
        paths = {path for path in self.path.parent.glob(f"*{FILE_SUFFIX}") if path != self.path}
        for path in self.connections.keys() - paths:
            self.connections.pop(path)[1].close()
        for path in paths:
            try:
                yield self._read_only(path)
            except (OSError, sqlite3.Error, JournalUnavailableError) as error:
                extra = {"file": str(path), "problem": str(error)}
                logger.warning("checkpoints.not_read", extra=extra)

    def _read_only(self, path: Path) -> sqlite3.Connection:
        inode = path.stat().st_ino
        entry = self.connections.pop(path, None)
        if entry is not None and entry[0] != inode:
            entry[1].close()
            entry = None
        if entry is None:
            # Checkpoints are deserialized, so other users must not be able to write them.
            entry = (inode, connect_read_only(path, busy_s=_BUSY_TIMEOUT_S))
        self.connections[path] = entry
        return entry[1]

    def close(self) -> None:
        """Close all connections."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.saver.conn.close()
        for _, connection in self.connections.values():
            connection.close()
        self.connections.clear()


_open_files: dict[Path, CheckpointFile] = {}


@contextmanager
def open_checkpoint_file(path: Path, keyring: Keyring | None = None) -> Iterator[CheckpointFile]:
    """Open a checkpoint file for a turn. Concurrent turns share the connection.

    `keyring` belongs to the data directory. It encrypts checkpoints if it has data keys.

    A file that can't be read, is a link, or may be changed by other users is created anew, and the
    turns in it start over.
    """
    _close_orphaned_files()
    file = _open_files.get(path)
    if file is not None and not file.users and _get_inode(path) != file.inode:
        # The file was deleted together with its journal.
        _close_file(file)
        file = None
    if file is None:
        saver = _open(path)
        saver.encrypt(keyring)
        file = _open_files[path] = CheckpointFile(path, saver, _get_inode(path))
    if file.close_timer is not None:
        file.close_timer.cancel()
        file.close_timer = None
    file.users += 1
    try:
        yield file
    finally:
        file.users -= 1
        if not file.users:
            _schedule_close(file)


def _schedule_close(file: CheckpointFile) -> None:
    """Close the file after a delay, unless another turn opens it. Without a loop, close it now."""
    try:
        file.loop = asyncio.get_running_loop()
    except RuntimeError:
        _close_file(file)
        return
    file.close_timer = file.loop.call_later(_CLOSE_DELAY_S, _close_file, file)


def _close_orphaned_files() -> None:
    """Close files opened under a closed event loop, whose timers never fire."""
    for file in tuple(_open_files.values()):
        if not file.users and file.loop is not None and file.loop.is_closed():
            _close_file(file)


def _close_file(file: CheckpointFile) -> None:
    if not file.users and _open_files.get(file.path) is file:
        del _open_files[file.path]
        file.close()


def _get_inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _open(path: Path) -> CheckpointSaver:
    try:
        create_file(path)
        return _prepare(path)
    except (sqlite3.DatabaseError, JournalUnavailableError) as error:
        logger.warning("checkpoints.made_anew", extra={"file": str(path), "problem": str(error)})
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    try:
        create_file(path)
        return _prepare(path)
    except (sqlite3.DatabaseError, JournalUnavailableError):
        # No file can be created there, so this turn keeps its checkpoints in memory.
        return _prepare(Path(_IN_MEMORY))


def _prepare(path: Path) -> CheckpointSaver:
    # LangGraph's saver commits the transactions that the sqlite3 module begins.
    connection = connect(path, isolation_level="DEFERRED")
    try:
        connection.execute("PRAGMA synchronous=OFF")
        saver = CheckpointSaver(connection)
        saver.setup()
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "DELETE FROM checkpoints WHERE checkpoint_id < ? AND checkpoint_ns = ''"
                # Threads of users' graphs are exempt: their tasks may wait for input for as long
                # as conversations are retained.
                " AND thread_id NOT LIKE 'graph/%'",
                (_min_checkpoint_id(_TURN_RETENTION_DAYS),),
            )
            for table in ("checkpoints", "writes"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE checkpoint_id < ?",  # noqa: S608 - a name of ours
                    (_min_checkpoint_id(_CONVERSATION_RETENTION_DAYS),),
                )
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return saver


def _min_checkpoint_id(days: int) -> str:
    """Return the smallest checkpoint id of this age. Checkpoint ids begin with their time."""
    steps = (time.time_ns() - days * _DAY_NS) // 100 + _UUID_EPOCH
    digits = f"{steps >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}"


@dataclass(frozen=True, slots=True)
class TurnCheckpoints:
    """The checkpoints of one turn of a task."""

    file: CheckpointFile
    thread_id: str
    state: dict[str, Any] | None
    """The last saved state, if an earlier attempt at the turn saved one."""

    @property
    def saver(self) -> CheckpointSaver:
        """The saver of the file."""
        return self.file.saver


@contextmanager
def open_turn_checkpoints(task: TurnRuntime) -> Iterator[TurnCheckpoints | None]:
    """Open the checkpoints of a turn, and delete them when the end of the turn is durable.

    The code in the block ends the turn. If it raises, the host ends the task, and the checkpoints
    are deleted after that: a host that takes over a turn without them would begin it anew. Each
    turn has its own LangGraph thread, so a waiting task does not block others. The file is
    beside the journal, so the host that takes over the journal finds it. Yields None if the host
    keeps no checkpoints.
    """
    path, keyring = task.checkpoint_path, task.keyring
    if path is None:
        yield None
        return
    # Task ids begin with a journal id, conversation ids with an agent name, so they never collide.
    thread_id = f"{task.id}/{task.turn}"

    async def delete() -> None:
        with open_checkpoint_file(path, keyring) as reopened:
            reopened.saver.delete_checkpoints(thread_id)

    with open_checkpoint_file(path, keyring) as file:
        saver = file.saver
        try:
            yield TurnCheckpoints(
                file, thread_id, saver.load_state(thread_id) if task.attempt > 1 else None
            )
        except BaseException:
            task.on_end(delete)
            raise
        saver.delete_checkpoints(thread_id)
