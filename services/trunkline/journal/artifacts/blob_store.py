"""Stores the files beside one journal. A file is written once, and is read from any offset."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from trunkline.core.encryption import Keyring
from trunkline.core.json_values import update_struct
from trunkline.errors import ArtifactNotFoundError, InvalidArgumentError, JournalUnavailableError
from trunkline.journal.artifacts.blob_file import (
    FOLDER_SUFFIX,
    BlobFiles,
    ContentFile,
    display_name,
    hash_content,
)
from trunkline.journal.artifacts.blob_writer import BlobWriter, translate_errors
from trunkline.journal.artifacts.content import CHUNK_BYTES, FileContent, iter_chunks, run_in_thread
from trunkline.journal.artifacts.references import Reference, sanitize_filename
from trunkline.v1 import part_pb2

LIMIT_BYTES: Final = 4 * 1024 * 1024 * 1024
"""The largest size of one file. A file that would fill the disk is refused earlier."""

# The time after its last write at which an unfinished upload is deleted.
_ABANDONED_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Blob:
    """The metadata of a complete file."""

    reference: Reference
    size_bytes: int
    sha256: str
    """The SHA-256 of the content, hexadecimal."""
    media_type: str = ""
    filename: str = ""

    def to_part(self) -> part_pb2.Part:
        """Return the part that refers to the file."""
        part = part_pb2.Part(
            url=self.reference.url, media_type=self.media_type, filename=self.filename
        )
        update_struct(part.metadata, {"size_bytes": self.size_bytes, "sha256": self.sha256})
        return part


class BlobStore:
    """The files of one journal's tasks, a folder for each task.

    Readers see a file when it is complete. It never changes, and it is deleted with its task. An
    incomplete upload can be resumed within a day of its last write. All methods raise
    JournalUnavailableError if a file is damaged, or if the disk is full or can't be read or
    written.
    """

    def __init__(
        self, folder: Path, *, limit_bytes: int = LIMIT_BYTES, keyring: Keyring | None = None
    ) -> None:
        """`limit_bytes` is the largest size of one file. The keyring encrypts the files."""
        self.folder = folder
        self._files = BlobFiles(keyring)
        self._limit_bytes = limit_bytes
        self._writers: dict[Reference, BlobWriter] = {}
        # An entry exists while a call of `put` holds the lock or waits for it.
        self._put_locks: WeakValueDictionary[Reference, asyncio.Lock] = WeakValueDictionary()

    async def get(self, reference: Reference) -> Blob:
        """Return the metadata of a file.

        Raises:
            ArtifactNotFoundError: the file is missing or incomplete.
        """
        with translate_errors(self.folder):
            return await asyncio.to_thread(self.get_sync, reference)

    async def read(
        self, reference: Reference, *, offset: int = 0, length: int = 0
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes from an offset on, in chunks. The length 0 is the rest of the file.

        Raises:
            ArtifactNotFoundError: the file is missing or incomplete.
        """
        with translate_errors(self.folder):
            blob = await self.get(reference)
            remaining = blob.size_bytes - offset
            remaining = min(remaining, length) if length else remaining
            # Opened on the loop: if a thread opened it, cancellation would lose the open file.
            with contextlib.closing(self._open(reference, offset)) as file:
                while remaining > 0:
                    chunk = await run_in_thread(file.read, min(CHUNK_BYTES, remaining))
                    if not chunk:
                        raise JournalUnavailableError(
                            display_name(self.folder), "a file in it was cut off"
                        )
                    remaining -= len(chunk)
                    yield chunk

    @asynccontextmanager
    async def open_writer(
        self, reference: Reference, *, media_type: str = "", filename: str = ""
    ) -> AsyncIterator[BlobWriter]:
        """Open an incomplete file for writing, after the bytes that it already has.

        Without `finish`, a later writer resumes the upload. If another writer has the file open, it
        is closed, and its methods raise PeerUnavailableError.
        """
        earlier = self._writers.get(reference)
        if earlier is not None:
            await earlier.close()
        writer = BlobWriter(self._path(reference), self._files, limit_bytes=self._limit_bytes)
        self._writers[reference] = writer
        try:
            await writer.open()
            writer.metadata = {"media_type": media_type, "filename": sanitize_filename(filename)}
            yield writer
        finally:
            await writer.close()
            if self._writers.get(reference) is writer:
                del self._writers[reference]

    async def put(
        self,
        reference: Reference,
        content: FileContent,
        *,
        media_type: str = "",
        filename: str = "",
    ) -> Blob:
        """Write a complete file. A file that exists already is not changed.

        Of concurrent calls for one file, the first writes and the others wait.

        Raises:
            InvalidArgumentError: the content is too large.
            PeerUnavailableError: a writer was opened for the file meanwhile.
        """
        async with self._put_locks.setdefault(reference, asyncio.Lock()):
            with contextlib.suppress(ArtifactNotFoundError):
                return await self.get(reference)
            async with self.open_writer(
                reference, media_type=media_type, filename=filename
            ) as writer:
                try:
                    # An interrupted attempt may have stored bytes.
                    await writer.write(b"", at=0)
                    async for chunk in iter_chunks(content):
                        await writer.write(chunk)
                except BaseException:
                    await writer.discard()
                    raise
                await writer.finish()
            return await self.get(reference)

    def list_task_ids(self) -> list[str]:
        """Return the ids of the tasks that have files. It blocks."""
        with translate_errors(self.folder):
            if not self.folder.is_dir():
                return []
            return sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())

    def remove(self, task_ids: Iterable[str]) -> None:
        """Delete all files of tasks. It blocks.

        Raises:
            InvalidArgumentError: a task id is malformed.
        """
        for task_id in task_ids:
            # A malformed id could name a folder elsewhere.
            checked = Reference.create(task_id, "unused")
            shutil.rmtree(self.folder / checked.task_id, ignore_errors=True)

    def remove_abandoned(self, now_s: float) -> None:
        """Delete uploads without a write in the day before `now_s`. It blocks.

        `now_s` is the wall time in seconds since 1970.
        """
        for path in self.folder.glob("*/*.part"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < now_s - _ABANDONED_S:
                    path.unlink()

    def find_damage(self) -> Iterator[str]:
        """Read all files and yield one line for each damaged one. It blocks."""
        for task_id in self.list_task_ids():
            for path in sorted((self.folder / task_id).iterdir()):
                if path.suffix:
                    continue
                try:
                    blob = self.get_sync(Reference.create(task_id, path.name))
                    with contextlib.closing(self._files.open_complete(path)) as file:
                        is_sound = hash_content(file).hexdigest() == blob.sha256
                except (
                    OSError,
                    ArtifactNotFoundError,
                    InvalidArgumentError,
                    JournalUnavailableError,
                ):
                    is_sound = False
                if not is_sound:
                    yield f"task {task_id}: file {path.name} is damaged"

    def get_sync(self, reference: Reference) -> Blob:
        """Return the metadata of a file. It blocks.

        Raises:
            ArtifactNotFoundError: the file is missing or incomplete.
            JournalUnavailableError: the file or its metadata is damaged.
            OSError: the file can't be read.
        """
        path = self._path(reference)
        problem = "it is damaged; restore a copy"
        try:
            metadata, size_bytes = self._files.read_metadata(path)
            blob = Blob(reference, **metadata)
        except FileNotFoundError:
            raise ArtifactNotFoundError(reference.task_id, reference.blob_id) from None
        except (TypeError, ValueError) as error:
            raise JournalUnavailableError(display_name(path), problem) from error
        if blob.size_bytes != size_bytes:
            raise JournalUnavailableError(display_name(path), problem)
        return blob

    def _open(self, reference: Reference, offset: int) -> ContentFile:
        try:
            file = self._files.open_complete(self._path(reference))
        except FileNotFoundError:
            raise ArtifactNotFoundError(reference.task_id, reference.blob_id) from None
        file.seek(offset)
        return file

    def _path(self, reference: Reference) -> Path:
        return self.folder / reference.task_id / reference.blob_id


def blob_folder(journal_path: Path) -> Path:
    """Return the folder for the files of a journal's tasks.

    It does not end in `.db`, so searches for journals skip it.
    """
    return Path(f"{journal_path}{FOLDER_SUFFIX}")
