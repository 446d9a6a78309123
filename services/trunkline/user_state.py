"""Private files of the user: a folder for the state that outlives processes and projects.

Only the user may write these files, because processes of the user act on their content.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from trunkline.errors import ConfigurationError

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def user_state_folder() -> Path:
    """Return the folder of the user's state, which may not exist yet.

    It is `$XDG_STATE_HOME/trunkline`, by default `~/.local/state/trunkline`; on macOS it is in
    `~/Library/Application Support`.

    Raises:
        ConfigurationError: the user has no home.
    """
    # Few commands need it.
    from platformdirs import user_state_path

    problem = "the user has no home; set HOME or XDG_STATE_HOME to an absolute path"
    try:
        path = user_state_path("trunkline", appauthor=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError("the user's state", problem) from error
    # Older versions return a relative path, which the current folder could provide.
    if not path.is_absolute():
        raise ConfigurationError("the user's state", problem)
    return path


def read_private_file(path: Path) -> bytes | None:
    """Return the content of a file that only the user may write; None if it is missing.

    Raises:
        ConfigurationError: it is a link, another user may write it or its folder, or it can't be
            read.
    """
    try:
        _check_private(path.parent, os.lstat(path.parent), is_kind=stat.S_ISDIR)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            _check_private(path, os.fstat(handle), is_kind=stat.S_ISREG)
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, with mode 0600. Missing folders are made with mode 0700.

    Raises:
        ConfigurationError: it can't be written, or another user may write its folder.
    """
    try:
        _make_private_folder(path.parent)
        # mkstemp creates the file with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error


def _make_private_folder(folder: Path) -> None:
    # `mkdir(parents=True)` would make the parents with the default mode.
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder, os.lstat(folder), is_kind=stat.S_ISDIR)


def _check_private(path: Path, status: os.stat_result, *, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(status.st_mode):
        raise ConfigurationError(str(path), "is a link or a special file; remove it")
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
        problem = "another user may write it; remove it or change its mode"
        raise ConfigurationError(str(path), problem)
