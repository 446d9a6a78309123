"""Writes one file in a folder in order. Readers see it when it is complete."""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trunkline.errors import InvalidArgumentError, JournalUnavailableError
from trunkline.journal.artifacts.blob_store import (
    check_offset,
    check_sha256,
    check_size,
    taken_over_error,
)
from trunkline.journal.artifacts.content import run_in_thread
from trunkline.journal.artifacts.folder.blob_file import (
    BlobFiles,
    ContentFile,
    display_name,
    hash_content,
)

# The free disk space reserved for the journal: no file may use it.
_RESERVED_BYTES: Final = 16 * 1024 * 1024


class FolderBlobWriter:
    """Writes one file; see `BlobWriter`."""

    def __init__(self, path: Path, files: BlobFiles, *, limit_bytes: int) -> None:
        self.metadata: dict[str, str] = {}
        """The media type and the filename, stored with the file."""
        self.offset: int = 0
        """The number of bytes written, which is the offset of the next ones."""
        self._path = path
        self._files = files
        self._limit_bytes = limit_bytes
        self._lock = asyncio.Lock()
        self._file: ContentFile | None = None
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes written so far, hexadecimal."""
        return self._hash.hexdigest()

    async def open(self) -> None:
        """Open the file, and hash the bytes that an earlier writer stored.

        Raises:
            JournalUnavailableError: the file can't be opened or read.
        """
        async with self._lock:
            with translate_errors(self._path):
                await run_in_thread(self._open)

    async def write(self, data: bytes, *, at: int | None = None) -> None:
        """Append bytes; see `BlobWriter`."""
        async with self._lock:
            file = self._require_file()
            if at is not None and at != self.offset:
                await self._truncate(file, at)
            check_size(self.offset + len(data), self._limit_bytes)
            with translate_errors(self._path):
                await run_in_thread(self._write, file, data)
            self.offset += len(data)

    async def flush(self) -> None:
        """Check that this writer has the file. Each write is in the file when it returns."""
        async with self._lock:
            self._require_file()

    async def finish(self, sha256: str = "") -> None:
        """Complete the file; see `BlobWriter`."""
        async with self._lock:
            file = self._require_file()
            try:
                check_sha256(sha256, self.sha256)
            except InvalidArgumentError:
                await run_in_thread(self._discard)
                raise
            with translate_errors(self._path):
                await run_in_thread(self._finish, file)

    async def discard(self) -> None:
        """Delete the bytes written so far, unless the file has a newer writer."""
        async with self._lock:
            if self._file is not None:
                await run_in_thread(self._discard)

    async def close(self) -> None:
        """Stop writing. The bytes written so far stay, so that the upload can be resumed."""
        async with self._lock:
            file, self._file = self._file, None
            if file is not None:
                with contextlib.suppress(OSError):
                    await run_in_thread(file.close)

    def _require_file(self) -> ContentFile:
        if self._file is None:
            raise taken_over_error()
        return self._file

    async def _truncate(self, file: ContentFile, at: int) -> None:
        check_offset(at, self.offset)
        with translate_errors(self._path):
            await run_in_thread(file.truncate, at)
            self._hash = await run_in_thread(hash_content, file)
            await run_in_thread(file.seek, at)
        self.offset = at

    def _open(self) -> None:
        if self._path.exists():
            raise taken_over_error()
        folder = self._path.parent
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        file = self._files.open_partial(self._path)
        self._hash = hash_content(file)
        self.offset = file.seek(0, os.SEEK_END)
        self._file = file

    def _write(self, file: ContentFile, data: bytes) -> None:
        try:
            if shutil.disk_usage(self._path.parent).free < len(data) + _RESERVED_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = data
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            if error.errno == errno.ENOSPC:
                # Free the space for other writers.
                self._discard()
            raise
        self._hash.update(data)

    def _finish(self, file: ContentFile) -> None:
        os.fsync(file.fileno())
        metadata = {"size_bytes": self.offset, "sha256": self.sha256, **self.metadata}
        self._files.write_metadata(self._path, metadata)
        self._files.partial_path(self._path).rename(self._path)
        file.close()
        self._file = None

    def _discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._files.partial_path(self._path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate an OSError to a JournalUnavailableError that says what to do."""
    try:
        yield
    except OSError as error:
        problem = _PROBLEMS.get(error.errno or 0, f"{error.strerror or error}; check the disk")
        raise JournalUnavailableError(display_name(path), problem) from error


_DENIED: Final = "it can't be written; change its permissions or use another data directory"
_PROBLEMS: Final = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk is full; free some space",
    errno.EIO: "the disk can't be read or written; check it, and the space on it",
    errno.EROFS: _DENIED,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}
