"""Stores the files beside one journal: written once, in order, and readable from any offset."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from weakref import WeakValueDictionary

from trunkline.artifacts.blob_writer import (
    FOLDER_SUFFIX,
    BlobWriter,
    display_name,
    hash_file,
    metadata_path,
    translate_errors,
)
from trunkline.artifacts.content import CHUNK_BYTES, FileContent, iter_chunks, run_in_thread
from trunkline.artifacts.references import Reference, sanitize_filename
from trunkline.errors import ArtifactNotFoundError, InvalidArgumentError, JournalUnavailableError
from trunkline.v1 import part_pb2

LIMIT_BYTES: Final = 4 * 1024 * 1024 * 1024
"""The largest size of one file. A file that would fill the disk is refused earlier."""

# The age at which an unfinished upload is deleted.
_ABANDONED_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Blob:
    """A complete file, and the facts about it that need no reading of its content."""

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
        part.metadata.update({"size_bytes": self.size_bytes, "sha256": self.sha256})
        return part


class BlobStore:
    """Content of the tasks of one journal, a folder for each task.

    A file is visible only when it is complete. It never changes, and it is deleted with its task.
    An incomplete upload can be resumed for a day. All methods raise JournalUnavailableError if the
    disk is full, or can't be read or written.
    """

    def __init__(self, folder: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """`limit_bytes` is the largest size of one file."""
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._writers: dict[Reference, BlobWriter] = {}
        # A lock exists while a put holds it or waits for it.
        self._puts: WeakValueDictionary[Reference, asyncio.Lock] = WeakValueDictionary()

    async def get(self, reference: Reference) -> Blob:
        """Return the facts about a file. ArtifactNotFoundError: it is missing or incomplete."""
        with translate_errors(self.folder):
            return await asyncio.to_thread(self.get_sync, reference)

    async def read(
        self, reference: Reference, *, offset: int = 0, length: int = 0
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes from an offset on, in chunks. Length 0: up to the end.

        Raises:
            ArtifactNotFoundError: there is none.
        """
        with translate_errors(self.folder):
            blob = await self.get(reference)
            remaining = blob.size_bytes - offset
            remaining = min(remaining, length) if length else remaining
            # Opened on the loop: if the caller is canceled, a file opened in a thread stays open.
            with self._open(reference, offset) as file:
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
        """Open a new file for writing, after what was written to it before.

        A writer that ends before `finish` can be resumed. An earlier open writer is closed.
        """
        before = self._writers.get(reference)
        if before is not None:
            await before.close()
        writer = BlobWriter(self._path(reference), limit_bytes=self._limit_bytes)
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
        """
        async with self._puts.setdefault(reference, asyncio.Lock()):
            with contextlib.suppress(ArtifactNotFoundError):
                return await self.get(reference)
            async with self.open_writer(
                reference, media_type=media_type, filename=filename
            ) as writer:
                try:
                    # Discard the rest of an earlier attempt.
                    await writer.write(b"", at=0)
                    async for piece in iter_chunks(content):
                        await writer.write(piece)
                except BaseException:
                    await writer.discard()
                    raise
                await writer.finish()
            return await self.get(reference)

    def list_task_ids(self) -> list[str]:
        """Return the tasks that have files. It blocks."""
        with translate_errors(self.folder):
            if not self.folder.is_dir():
                return []
            return sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())

    def remove(self, task_ids: Iterable[str]) -> None:
        """Delete all files of tasks. It blocks."""
        for task_id in task_ids:
            shutil.rmtree(
                self.folder / Reference.create(task_id, "all").task_id, ignore_errors=True
            )

    def remove_abandoned(self, now_s: float) -> None:
        """Delete uploads begun a day before `now_s` of the wall clock. It blocks."""
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
                    is_sound = hash_file(path).hexdigest() == blob.sha256
                except (OSError, ValueError, ArtifactNotFoundError, InvalidArgumentError):
                    is_sound = False
                if not is_sound:
                    yield f"task {task_id}: file {path.name} is damaged"

    def get_sync(self, reference: Reference) -> Blob:
        """Return the facts about a file. It blocks. ArtifactNotFoundError: it does not exist."""
        path = self._path(reference)
        try:
            size_bytes = path.stat().st_size
            facts = json.loads(metadata_path(path).read_bytes())
        except FileNotFoundError:
            raise ArtifactNotFoundError(reference.task_id, reference.blob_id) from None
        if facts["size_bytes"] != size_bytes:
            raise JournalUnavailableError(display_name(path), "it is damaged; restore a copy")
        return Blob(reference, **facts)

    def _open(self, reference: Reference, offset: int) -> BinaryIO:
        try:
            file = self._path(reference).open("rb")
        except FileNotFoundError:
            raise ArtifactNotFoundError(reference.task_id, reference.blob_id) from None
        file.seek(offset)
        return file

    def _path(self, reference: Reference) -> Path:
        return self.folder / reference.task_id / reference.blob_id


def blob_folder(journal_path: Path) -> Path:
    """Return the folder for the files of a journal's tasks. Its suffix is not a journal's."""
    return Path(f"{journal_path}{FOLDER_SUFFIX}")
