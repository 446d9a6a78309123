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
# What every system takes as a socket's path: macOS has the least, Linux some more.
_PATH_LIMIT_BYTES: Final = 103


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """Yield `unix:PATH` of a socket that only this user can reach, in a folder for the block.

    It is where temporary files are, or in `/tmp` if a path there is too long for a socket. Folders
    of processes of this user that were killed are removed first.
    """
    place = _place()
    _remove_abandoned(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place) as name:
        folder = Path(name)
        owner = _lock(folder)
        try:
            yield f"unix:{folder / _SOCKET}"
        finally:
            os.close(owner)


def _place() -> Path:
    usual = Path(tempfile.gettempdir())
    # `mkdtemp` puts eight letters behind the prefix.
    longest = usual / f"{_PREFIX}{'x' * 8}" / _SOCKET
    if len(os.fsencode(longest)) <= _PATH_LIMIT_BYTES:
        return usual
    # Folders in it are made for this user alone, under names that nobody can guess.
    short = Path("/tmp")  # noqa: S108
    return short if os.access(short, os.W_OK | os.X_OK) else usual


def _lock(folder: Path) -> int:
    # It has its name only when it is locked: without it, a folder is let alone.
    fresh = folder / f"{_OWNER}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fresh.rename(folder / _OWNER)
    return lock


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
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
