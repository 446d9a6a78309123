"""Private files of the user: refuses links, and files that other users may change or read.

Readable files are refused only if they are secret. Other users are all but root and the user of
this process. A group without other members counts as private, because some systems make files
writable by the private group of their user, and Kubernetes by a group that has only a number
(`fsGroup`).
"""

import errno
import fcntl
import grp
import os
import pwd
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.errors import ConfigurationError

PRIVATE_FOLDER: Final = "private"
"""A folder of a data directory which only its owner may enter."""

_ROOT: Final = 0
_LOCK_RETRY_S: Final = 0.01
# The files that SQLite makes beside a database.
_DATABASE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
# As many as Linux follows.
_MAX_LINKS: Final = 40
_LINK: Final = "it is a symbolic link; use the file itself"


def read_private_file(path: Path, *, is_secret: bool = True) -> bytes:
    """Return the content of a file that only its owner may change and, if it is a secret, read.

    Links are refused, except links of mounted secrets: root owns the link, its folder and the
    file, and the file is below that folder. A file on a read-only mount that root owns may be
    readable by all, as Kubernetes mounts secrets.

    Raises:
        ConfigurationError: other users may change or read the file. The text names the remedy.
        OSError: it can't be read.
    """
    file = _resolve_mounted(path) if path.is_symlink() else path
    # A FIFO must not block.
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as opened:
        status = os.fstat(fd)
        problem = _find_problem(file, status) or _find_folder_problem(file.parent)
        if not problem and is_secret:
            problem = _find_reader_problem(file, status, is_read_only=_is_read_only(fd))
        if problem:
            raise ConfigurationError(str(path), problem)
        return opened.read()


FileVersion: TypeAlias = tuple[int, int, int]


def read_file_version(path: Path) -> FileVersion | None:
    """Return what changes with the content of a file, or None if there is no such file."""
    try:
        # Path.stat would cost twice as much.
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def user_state_folder() -> Path:
    """Return the folder of the user's state, which may not exist yet.

    It is `$XDG_STATE_HOME/trunkline`, by default `~/.local/state/trunkline`; on macOS it is in
    `~/Library/Application Support`.

    Raises:
        ConfigurationError: the user has no home.
    """
    # A relative path would be one in the current folder. The XDG specification says to ignore it.
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named / "trunkline"
    problem = "the user has no home; set HOME or XDG_STATE_HOME to an absolute path"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ConfigurationError("the user's state", problem) from error
    if not home.is_absolute():
        raise ConfigurationError("the user's state", problem)
    state = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    return home / state / "trunkline"


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, with mode 0600. Missing folders are made with mode 0700.

    The new content survives a power failure: without a keyring, encrypted journals are lost.

    Raises:
        ConfigurationError: it can't be written, or another user may replace it.
    """
    try:
        create_private_folder(path.parent)
        # mkstemp creates the file with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
            _sync_folder(path.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error


def open_private_append(path: Path) -> int:
    """Open a file for reading and appending; return its descriptor. A new one has mode 0600.

    Raises:
        ConfigurationError: it is a link, or another user may change it or replace it; the text
            says what to do.
        OSError: it can't be opened.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigurationError(str(path), _LINK) from error
        raise
    status = os.fstat(fd)
    problem = (
        _find_problem(path, status)
        or _find_folder_problem(path.parent)
        or _find_reader_problem(path, status, is_read_only=False)
    )
    if problem:
        os.close(fd)
        raise ConfigurationError(str(path), problem)
    return fd


def lock_file(fd: int, *, timeout_s: float) -> None:
    """Lock a file for this process alone. It blocks; on an event loop, call it in a thread.

    Raises:
        BlockingIOError: another process holds the lock for longer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_RETRY_S)
        else:
            return


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def create_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, with mode 0700.

    Raises:
        ConfigurationError: it is a link, or another user may change it.
        OSError: it can't be made.
    """
    # `mkdir(parents=True)` would make the parents with the default mode.
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    check_private_folder(folder)


def create_private_data_folder(folder: Path) -> None:
    """Make a folder of a data directory, and the directory, with mode 0700.

    Raises:
        ConfigurationError: it can't be made, it is a link, or another user may change it.
    """
    try:
        create_private_folder(folder)
    except OSError as error:
        problem = f"can't be used: {error.strerror}; choose another with --data"
        raise ConfigurationError(f"data directory {folder.parent}", problem) from error


def check_private_folder(folder: Path) -> None:
    """Check that only this user may change a folder. A missing one has no problem.

    Raises:
        ConfigurationError: it is a link, or another user may change it.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigurationError(str(folder), "it is a link, or not a folder; remove it")
    problem = _find_owner_problem(folder, status)
    if not problem and _is_open_to_others(status, group=stat.S_IWGRP, all_users=stat.S_IWOTH):
        problem = f"other users may change it; run `chmod go-w {folder}`"
    if problem:
        raise ConfigurationError(str(folder), problem)


def check_data_folder(folder: Path) -> None:
    """Check that no other user may replace a data directory or its content. It may be missing.

    A mounted volume may belong to another user, and all users may write to it: an `emptyDir` of
    Kubernetes has mode 0777 and belongs to root. Its process can't change that.

    Raises:
        ConfigurationError: another user may replace its content, or a link on its path; the text
            says what to do.
    """
    problem = _find_link_problem(folder.absolute(), links=_MAX_LINKS)
    if not problem and not folder.resolve().is_mount():
        problem = _find_content_problem(folder)
    if problem:
        raise ConfigurationError(f"data directory {folder}", problem)


def find_database_problem(path: Path) -> str:
    """Return the reason why a SQLite file must not be opened, with what to do, or "".

    The files that SQLite keeps beside it are checked, too. Missing files have no problem.
    """
    for suffix in _DATABASE_SUFFIXES:
        file = Path(f"{path}{suffix}")
        try:
            status = file.lstat()
        except OSError:
            # Missing, or unreadable, which opening it reports.
            continue
        if problem := _find_problem(file, status):
            return problem if not suffix else f"{file.name}: {problem}"
    return _find_folder_problem(path.parent)


def _resolve_mounted(path: Path) -> Path:
    """Return the file behind a link of a mounted secret. ConfigurationError: another link."""
    folder, file = path.parent.resolve(), path.resolve(strict=True)
    parts = (path, folder, file.parent, file)
    if not file.is_relative_to(folder) or any(part.lstat().st_uid != _ROOT for part in parts):
        raise ConfigurationError(str(path), _LINK)
    return file


def _find_problem(path: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return _LINK
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file; use another one"
    if problem := _find_owner_problem(path, status):
        return problem
    if _is_open_to_others(status, group=stat.S_IWGRP, all_users=stat.S_IWOTH):
        return f"other users may write to it; run `chmod go-w {path}`"
    return ""


def _find_folder_problem(folder: Path) -> str:
    problem = _find_content_problem(folder)
    return f"its folder {folder}: {problem}" if problem else ""


def _find_content_problem(folder: Path) -> str:
    """Return the reason why another user may replace the content of a folder, or ""."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if problem := _find_owner_problem(folder, status):
        return problem
    # In a sticky folder, only the owner of a file may replace it.
    if status.st_mode & stat.S_ISVTX:
        return ""
    if _is_open_to_others(status, group=stat.S_IWGRP, all_users=stat.S_IWOTH):
        return f"other users may replace what is in it; run `chmod go-w {folder}`"
    return ""


def _find_link_problem(path: Path, *, links: int) -> str:
    """Return the reason why another user may replace a link on an absolute path, or "".

    After `links` links it stops: opening a path of more fails.
    """
    for part in reversed((path, *path.parents)):
        if not part.is_symlink():
            continue
        is_foreign = bool(_find_owner_problem(part, part.lstat()))
        if is_foreign or _find_content_problem(part.parent):
            return (
                f"another user may replace the link {part} on its path; "
                f"use the folder that is meant, for example {path.resolve()}"
            )
        # The target may contain links, too.
        target = part.parent / part.readlink() / path.relative_to(part)
        return _find_link_problem(target, links=links - 1) if links else ""
    return ""


def _find_owner_problem(path: Path, status: os.stat_result) -> str:
    if status.st_uid in (os.geteuid(), _ROOT):
        return ""
    return (
        f"it belongs to {_user_name(status.st_uid)}, not to {_user_name(os.geteuid())}; "
        f"run `chown {os.geteuid()} {path}` or run this program as its owner"
    )


def _find_reader_problem(path: Path, status: os.stat_result, *, is_read_only: bool) -> str:
    is_mounted = status.st_uid == _ROOT and is_read_only
    # A group is how root gives a secret to a user.
    is_from_root = status.st_uid == _ROOT != os.geteuid()
    group = 0 if is_from_root else stat.S_IRGRP
    if is_mounted or not _is_open_to_others(status, group=group, all_users=stat.S_IROTH):
        return ""
    return f"other users may read it; run `chmod go-rwx {path}`"


def _is_open_to_others(status: os.stat_result, *, group: int, all_users: int) -> bool:
    if status.st_mode & all_users:
        return True
    return bool(status.st_mode & group) and not _is_private_group(status.st_gid)


def _is_private_group(gid: int) -> bool:
    """Return whether a group has no members but root and the user of this process.

    Directories of users such as LDAP don't list the users whose primary group it is. A group with
    a name therefore counts as shared unless it has the name of its user.
    """
    users = {os.geteuid(), _ROOT}
    if any(user.pw_gid == gid and user.pw_uid not in users for user in pwd.getpwall()):
        return False
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return True
    return all(_find_uid(name) in users for name in (group.gr_name, *group.gr_mem))


def _find_uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def _is_read_only(fd: int) -> bool:
    return bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)


def _user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
