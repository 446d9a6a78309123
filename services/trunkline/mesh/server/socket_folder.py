"""The folder of a process's Unix socket, removed when the process ends, even if it is killed."""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "trunkline-socket-"
_SOCKET: Final = "mesh.sock"
# Locked for the life of the process.
_OWNER: Final = "owner"
# The longest socket path that every system allows: macOS allows the least.
_PATH_LIMIT_BYTES: Final = 103


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """Yield `unix:PATH` for a socket that only this user can reach. Removed after the block.

    Its folder is in the temporary directory, or in `/tmp` if the path would be too long for a
    socket. Folders of this user's processes that were killed are removed first.
    """
    parent = _choose_parent()
    _remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        folder = Path(name)
        lock = _lock(folder)
        try:
            yield f"unix:{folder / _SOCKET}"
        finally:
            os.close(lock)


def _choose_parent() -> Path:
    default = Path(tempfile.gettempdir())
    # `mkdtemp` adds eight letters to the prefix.
    longest = default / f"{_PREFIX}{'x' * 8}" / _SOCKET
    if len(os.fsencode(longest)) <= _PATH_LIMIT_BYTES:
        return default
    # Folders in it have unguessable names and are private to this user.
    short = Path("/tmp")  # noqa: S108
    return short if os.access(short, os.W_OK | os.X_OK) else default


def _lock(folder: Path) -> int:
    # The lock file gets its name when it is locked. A folder without it is never removed.
    new_file = folder / f"{_OWNER}.new"
    lock = os.open(new_file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new_file.rename(folder / _OWNER)
    return lock


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # Another process may remove it too, or it belongs to another user.
        with contextlib.suppress(OSError):
            info = folder.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Only our own files are removed. A folder with others stays.
        (folder / _SOCKET).unlink(missing_ok=True)
        (folder / _OWNER).unlink()
        folder.rmdir()
    finally:
        os.close(lock)
