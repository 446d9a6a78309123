"""The lock of a file's only user, on a file beside it. The system frees it when the process ends.

It is a POSIX record lock: the system names the process that holds it, and children don't inherit
it. Such a lock ends when its process closes any descriptor of the file. Only this module opens
lock files, and it never opens one that this process has locked.
"""

import contextlib
import errno
import fcntl
import logging
import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Final, Self

from trunkline.database.process import OwnerProcess
from trunkline.errors import JournalUnavailableError

logger = logging.getLogger(__name__)

# The locked byte: "TRNK". A lock of another program that covers it has another start or length.
_START: Final = 0x54524E4B
_LENGTH: Final = 1
# `struct flock`: type, whence, start, length, pid; macOS has another order.
_FLOCK: Final = "qqihh" if sys.platform == "darwin" else "hhqqi4x"
_RETRY_S: Final = 0.01
_NO_PIDFD: Final = (errno.ENOSYS, errno.EPERM)

# The lock files that this process has locked, by process, device and inode.
_held: set[tuple[int, int, int]] = set()
_guard = threading.Lock()


class FileLock:
    """The lock of a SQLite file that only this process may write to, until `close`."""

    def __init__(self, file: Path, fd: int) -> None:
        """Use a locked file. `acquire` locks one."""
        self._file = file
        self._fd = fd
        self._key = _key(os.fstat(fd))

    @classmethod
    def acquire(cls, path: Path, *, wait_s: float = 0.0) -> Self:
        """Lock a file. It blocks up to `wait_s` seconds while another process has it locked.

        Raises:
            JournalUnavailableError: a process has it open, or the lock file can't be written.
        """
        deadline = time.monotonic() + wait_s
        while (lock := cls._try_acquire(path)) is None:
            if time.monotonic() >= deadline:
                raise JournalUnavailableError(str(path), _in_use_problem(find_holder(path)))
            time.sleep(_RETRY_S)
        return lock

    @classmethod
    def _try_acquire(cls, path: Path) -> Self | None:
        file = _lock_file(path)
        with _guard:
            try:
                while not _is_held_here(file):
                    fd = os.open(file, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o600)
                    if _try_lock(fd) and _is_in_place(file, fd):
                        lock = cls(file, fd)
                        _held.add(lock._key)
                        return lock
                    is_locked = _is_in_place(file, fd)
                    os.close(fd)
                    if is_locked:
                        break
            except OSError as error:
                is_link = error.errno == errno.ELOOP
                advice = "remove that link" if is_link else "check it and its folder"
                problem = f"it can't be locked: {file.name}: {error.strerror or error}; {advice}"
                raise JournalUnavailableError(str(path), problem) from error
        return None

    def close(self) -> None:
        """Remove the lock file and free the lock. Repeated calls and forked children do nothing."""
        with _guard:
            if self._key not in _held or self._key[0] != os.getpid():
                return
            _held.discard(self._key)
            # Removed while it is locked: a process that has opened this file then sees that it is
            # not in place.
            if _is_in_place(self._file, self._fd):
                with contextlib.suppress(OSError):
                    self._file.unlink()
            os.close(self._fd)


def find_holder(path: Path) -> OwnerProcess | None:
    """Return the process that has locked a file, or None.

    Its pid is 0 if the system does not show it: it runs in another container or on another machine.
    """
    file = _lock_file(path)
    with _guard:
        if _is_held_here(file):
            return OwnerProcess.this_process()
        try:
            fd = os.open(file, os.O_RDONLY | _OPEN_FLAGS)
            try:
                pid = _read_holder(fd)
            finally:
                os.close(fd)
        except OSError:
            # Missing, or without locks on this file system, which `acquire` reports.
            return None
    return None if pid is None else OwnerProcess.from_pid(pid)


def has_lock(path: Path) -> bool:
    """Return whether this process has locked a file."""
    with _guard:
        return _is_held_here(_lock_file(path))


def kill_holder(path: Path, holder: OwnerProcess) -> None:
    """Kill a process if it still holds the lock of a file. It does not wait for the end.

    A process descriptor is opened before the lock is read again, so a process that has got the
    same pid meanwhile is never killed. Systems without such descriptors (macOS) send the signal to
    the pid right after the check.

    The reason is logged here, because a killed process cannot log it.

    Raises:
        JournalUnavailableError: the system has no descriptor of the process, for example because
            this process has too many open files.
    """
    if holder.pid <= 0:
        return
    try:
        fd = _open_pidfd(holder.pid)
    except ProcessLookupError:
        return
    except OSError as error:
        problem = (
            f"process {holder.pid} has it and can't be killed: {error.strerror or error}; "
            "kill it, then try again"
        )
        raise JournalUnavailableError(str(path), problem) from error
    try:
        if find_holder(path) != holder:
            return
        reason = "its lease is over: it was stopped, or too busy to renew it"
        logger.warning("host.killed", extra={"pid": holder.pid, "reason": reason})
        with contextlib.suppress(ProcessLookupError, PermissionError):
            _send_kill(holder.pid, fd)
    finally:
        if fd is not None:
            os.close(fd)


_OPEN_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _lock_file(path: Path) -> Path:
    return Path(f"{path}.lock")


def _key(status: os.stat_result) -> tuple[int, int, int]:
    # The pid: a forked child has a copy of the set, but not the locks.
    return os.getpid(), status.st_dev, status.st_ino


def _is_held_here(file: Path) -> bool:
    try:
        return _key(file.lstat()) in _held
    except OSError:
        return False


def _is_in_place(file: Path, fd: int) -> bool:
    try:
        return os.path.samestat(file.lstat(), os.fstat(fd))
    except OSError:
        return False


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _LENGTH, _START)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        os.close(fd)
        raise
    return True


def _read_holder(fd: int) -> int | None:
    """Return the pid that has locked the file; None: no process has."""
    if sys.platform == "darwin":
        query = struct.pack(_FLOCK, _START, _LENGTH, 0, fcntl.F_WRLCK, os.SEEK_SET)
        start, length, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, query))
    else:
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _START, _LENGTH, 0)
        kind, _, start, length, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, query))
    if kind == fcntl.F_UNLCK:
        return None
    # Not our lock: it names no process that may be killed. On NFS, pids of other machines are
    # negative.
    return max(pid, 0) if (start, length) == (_START, _LENGTH) else 0


def _in_use_problem(holder: OwnerProcess | None) -> str:
    process = f"process {holder.pid}" if holder is not None and holder.pid else "another process"
    return f"{process} has it open; stop it, or use another data directory"


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor of a process; None: the system has no such descriptors."""
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            if error.errno not in _NO_PIDFD:
                raise
    return None


def _send_kill(pid: int, fd: int | None) -> None:
    if sys.platform == "linux" and fd is not None:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)
