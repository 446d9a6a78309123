"""The folder of a process's own socket, which goes with the process however that ends."""

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
# Locked as long as the process lives.
_OWNER: Final = "owner"


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """Yield `unix:PATH` of a socket that only this user can reach, in a folder for the block.

    Folders of processes of this user that were killed are removed first.
    """
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        owner = _lock(folder)
        try:
            yield f"unix:{folder / _SOCKET}"
        finally:
            os.close(owner)


def _lock(folder: Path) -> int:
    # It has its name only when it is locked: without it, a folder is let alone.
    fresh = folder / f"{_OWNER}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fresh.rename(folder / _OWNER)
    return lock


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Another process may be at it, or it is somebody else's.
        with contextlib.suppress(OSError):
            info = folder.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Nothing but what is made here: a folder that holds more stays.
        (folder / _SOCKET).unlink(missing_ok=True)
        (folder / _OWNER).unlink()
        folder.rmdir()
    finally:
        os.close(lock)
