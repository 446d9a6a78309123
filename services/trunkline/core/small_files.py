"""Small private files that the processes of a mesh share, such as secrets and sign-ins.

They are in the private folder of a data directory, or in the database of the mesh; see
`trunkline.core.postgres.small_files`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from trunkline.core.backoff import Backoff
from trunkline.core.private_files import (
    PRIVATE_FOLDER,
    create_private_data_folder,
    lock_file,
    open_private_append,
    read_private_file,
    write_private_file,
)
from trunkline.errors import ConfigurationError

_LOCK: Final = ".small-files.lock"
_LOCK_TIMEOUT_S: Final = 10.0
# The pause after a change that met one of another process.
_FIRST_PAUSE_S: Final = 0.02


class SmallFiles(Protocol):
    """Private files by their paths, such as `webhook.secret` or `tool-sign-ins/x.json`.

    A change is durable when its method returns. Every method may raise JournalUnavailableError for
    a database, after which a change may be stored, and ConfigurationError for a folder that can't
    be used, or a file that others may read or change.
    """

    def locate(self, path: str) -> str:
        """Return the place of a file for people, without secrets."""

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""

    async def replace(self, path: str, content: bytes, *, expected: bytes | None) -> bool:
        """Replace a file whose content is `expected`, or create a file that is missing (None).

        Return False if the content is another one. Of several processes that replace the same
        content, one succeeds.
        """

    async def delete(self, path: str) -> bool:
        """Delete a file. Return False if there is none."""

    async def list_paths(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder, sorted."""


async def update_file(
    files: SmallFiles, path: str, change: Callable[[bytes | None], bytes | None]
) -> None:
    """Replace a file by a change of its latest content.

    `change` gets the content, or None if there is no file, and returns the new content, or None if
    nothing has to change. It runs again if another process has replaced the file meanwhile, or if
    the answer to the first change was lost.
    """
    backoff = Backoff(first_s=_FIRST_PAUSE_S)
    while True:
        content = await files.read(path)
        changed = change(content)
        if changed is None or await files.replace(path, changed, expected=content):
            return
        await backoff.pause()


class FolderFiles:
    """A `SmallFiles` in the private folder of a data directory."""

    def __init__(self, data_dir: Path, folder: str = PRIVATE_FOLDER) -> None:
        """`folder` is the name of the folder. It is created with the first file."""
        self._folder = data_dir / folder

    def locate(self, path: str) -> str:
        """Return the path of a file in the file system."""
        return str(self._folder / path)

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file; see `SmallFiles`."""
        return await asyncio.to_thread(self._read, path)

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file; see `SmallFiles`."""
        await asyncio.to_thread(self._write, path, content)

    async def replace(self, path: str, content: bytes, *, expected: bytes | None) -> bool:
        """Replace a file whose content is the expected one; see `SmallFiles`."""
        return await asyncio.to_thread(self._replace, path, content, expected)

    async def delete(self, path: str) -> bool:
        """Delete a file; see `SmallFiles`."""
        return await asyncio.to_thread(self._delete, path)

    async def list_paths(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder; see `SmallFiles`."""
        return await asyncio.to_thread(self._list_paths, folder)

    def _read(self, path: str) -> bytes | None:
        file = self._folder / path
        try:
            return read_private_file(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = f"can't be read: {error.strerror or error}"
            raise ConfigurationError(str(file), problem) from error

    def _write(self, path: str, content: bytes) -> None:
        with self._lock():
            write_private_file(self._folder / path, content)

    def _replace(self, path: str, content: bytes, expected: bytes | None) -> bool:
        with self._lock():
            if self._read(path) != expected:
                return False
            write_private_file(self._folder / path, content)
            return True

    def _delete(self, path: str) -> bool:
        with self._lock():
            try:
                (self._folder / path).unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                problem = f"can't be deleted: {error.strerror or error}"
                raise ConfigurationError(self.locate(path), problem) from error
            return True

    def _list_paths(self, folder: str) -> list[str]:
        # A file that is being written begins with a dot.
        return sorted(
            str(path.relative_to(self._folder))
            for path in (self._folder / folder).rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Exclude the other processes of the folder from changes, for the length of a block."""
        create_private_data_folder(self._folder)
        path = self._folder / _LOCK
        try:
            descriptor = open_private_append(path)
            try:
                lock_file(descriptor, timeout_s=_LOCK_TIMEOUT_S)
                yield
            finally:
                os.close(descriptor)
        except BlockingIOError as error:
            problem = f"another process holds it for {_LOCK_TIMEOUT_S:g} s; stop that process"
            raise ConfigurationError(str(path), problem) from error
        except OSError as error:
            raise ConfigurationError(str(path), f"can't be used: {error.strerror}") from error
