"""The SQLite files that hold checkpoints: one beside each journal, open while turns use it.

A file stays open for a while after its last turn, since opening one takes longer than all that a
turn does with it. Those of other hosts, which may be dead or alive, are only read. Imports
LangGraph, so load it lazily.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trunkline.reasoning.checkpoint_saver import CheckpointSaver
from trunkline.tasks.context import TaskContext

logger = logging.getLogger(__name__)

FILE_SUFFIX: Final = ".checkpoints"
"""How the names of these files end."""

# Of turns that nobody took up again; and of conversations that nobody has gone on with.
_TURNS_KEPT_DAYS: Final = 7
_CONVERSATIONS_KEPT_DAYS: Final = 90
_DAY_NS: Final = 24 * 3600 * 1_000_000_000
# From 1582, where UUIDs begin to count, to 1970; in steps of 100 ns.
_UUID_EPOCH: Final = 0x01B21DD213814000
_LINGER_S: Final = 20.0
# Reading in the file of another host must not hold up our own turns.
_BUSY_S: Final = 0.05
_IN_MEMORY: Final = ":memory:"


@dataclass(slots=True)
class CheckpointFile:
    """A file of checkpoints that is open, and those beside it as far as they were read."""

    path: Path
    saver: CheckpointSaver
    inode: int
    users: int = 0
    close_timer: asyncio.TimerHandle | None = None
    loop: asyncio.AbstractEventLoop | None = None
    connections: dict[Path, tuple[int, sqlite3.Connection]] = field(default_factory=dict)

    def open_other_files(self) -> Iterator[sqlite3.Connection]:
        """Open the files of other journals in the same folder, to be read only."""
        found = {path for path in self.path.parent.glob(f"*{FILE_SUFFIX}") if path != self.path}
        for path in self.connections.keys() - found:
            self.connections.pop(path)[1].close()
        for path in found:
            try:
                yield self._read_only(path)
            except (OSError, sqlite3.Error) as error:
                extra = {"file": str(path), "problem": str(error)}
                logger.warning("checkpoints.not_read", extra=extra)

    def _read_only(self, path: Path) -> sqlite3.Connection:
        inode = path.stat().st_ino
        known = self.connections.pop(path, None)
        if known is not None and known[0] != inode:
            known[1].close()
            known = None
        if known is None:
            uri = f"{path.absolute().as_uri()}?mode=ro"
            known = (inode, sqlite3.connect(uri, uri=True, timeout=_BUSY_S))
        self.connections[path] = known
        return known[1]

    def close(self) -> None:
        """Close all that is open."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.saver.conn.close()
        for _, connection in self.connections.values():
            connection.close()
        self.connections.clear()


_open_files: dict[Path, CheckpointFile] = {}


@contextmanager
def open_checkpoint_file(path: Path) -> Iterator[CheckpointFile]:
    """Open a file of checkpoints for a turn; turns that run at once share it.

    A file that can't be read is made anew: what it held is started over.
    """
    _close_left_over()
    file = _open_files.get(path)
    if file is not None and not file.users and _inode(path) != file.inode:
        # Removed meanwhile, with its journal.
        _forget(file)
        file = None
    if file is None:
        saver = _open(path)
        file = _open_files[path] = CheckpointFile(path, saver, _inode(path))
    if file.close_timer is not None:
        file.close_timer.cancel()
        file.close_timer = None
    file.users += 1
    try:
        yield file
    finally:
        file.users -= 1
        if not file.users:
            _linger(file)


def _linger(file: CheckpointFile) -> None:
    """Close the file soon, unless somebody comes; at once where nobody could come."""
    try:
        file.loop = asyncio.get_running_loop()
    except RuntimeError:
        _forget(file)
        return
    file.close_timer = file.loop.call_later(_LINGER_S, _forget, file)


def _close_left_over() -> None:
    """Close what a loop that is over had opened: its timers never come."""
    for file in tuple(_open_files.values()):
        if not file.users and file.loop is not None and file.loop.is_closed():
            _forget(file)


def _forget(file: CheckpointFile) -> None:
    if not file.users and _open_files.get(file.path) is file:
        del _open_files[file.path]
        file.close()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _open(path: Path) -> CheckpointSaver:
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
        return _connected(Path(_IN_MEMORY))


def _connected(path: Path) -> CheckpointSaver:
    if str(path) != _IN_MEMORY:
        # It holds what people said: nobody else may read it. SQLite's other files follow suit, and
        # SQLite says what is wrong when there can be none.
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        saver = CheckpointSaver(connection)
        saver.setup()
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "DELETE FROM checkpoints WHERE checkpoint_id < ? AND checkpoint_ns = ''"
                # Tasks of graphs of their authors wait for answers for as long as conversations.
                " AND thread_id NOT LIKE 'graph/%'",
                (_id_of_age(_TURNS_KEPT_DAYS),),
            )
            for table in ("checkpoints", "writes"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE checkpoint_id < ?",  # noqa: S608 - a name of ours
                    (_id_of_age(_CONVERSATIONS_KEPT_DAYS),),
                )
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return saver


def _id_of_age(days: int) -> str:
    """The id of a checkpoint that is so old: the ids begin with their time."""
    steps = (time.time_ns() - days * _DAY_NS) // 100 + _UUID_EPOCH
    digits = f"{steps >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}"


@dataclass(frozen=True, slots=True)
class TurnCheckpoints:
    """The checkpoints of one turn of a task."""

    file: CheckpointFile
    thread_id: str
    state: dict[str, Any] | None
    """What the last one holds, if an earlier attempt of the turn made any."""

    @property
    def saver(self) -> CheckpointSaver:
        """Where they are saved."""
        return self.file.saver


@contextmanager
def open_turn_checkpoints(task: TaskContext) -> Iterator[TurnCheckpoints | None]:
    """Open the checkpoints of a turn; when it has ended they are deleted.

    None where the host keeps none.
    """
    path = task.checkpoint_path
    if path is None:
        yield None
        return
    # Task ids begin with their journal's, those of conversations with an agent's name.
    thread_id = f"{task.id}/{task.turn}"
    with open_checkpoint_file(path) as file:
        saver = file.saver
        try:
            yield TurnCheckpoints(
                file, thread_id, saver.load_state(thread_id) if task.attempt > 1 else None
            )
        finally:
            saver.delete_checkpoints(thread_id)
