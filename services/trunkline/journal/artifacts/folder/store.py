"""Stores the files of a journal's tasks in a folder beside the journal."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from trunkline.core.encryption import Keyring
from trunkline.core.storable_texts import check_texts
from trunkline.errors import ArtifactNotFoundError, InvalidArgumentError, JournalUnavailableError
from trunkline.journal.artifacts.blob_store import (
    ABANDONED_S,
    LIMIT_BYTES,
    Blob,
    BlobStore,
)
from trunkline.journal.artifacts.content import CHUNK_BYTES, run_in_thread
from trunkline.journal.artifacts.folder.blob_file import (
    FOLDER_SUFFIX,
    BlobFiles,
    ContentFile,
    display_name,
    hash_content,
)
from trunkline.journal.artifacts.folder.writer import FolderBlobWriter, translate_errors
from trunkline.journal.artifacts.references import Reference, sanitize_filename


class FolderBlobStore(BlobStore):
    """A `BlobStore` in a folder, with a folder for each task."""

    def __init__(
        self, folder: Path, *, limit_bytes: int = LIMIT_BYTES, keyring: Keyring | None = None
    ) -> None:
        """`limit_bytes` is the largest size of one file. The keyring encrypts the files."""
        super().__init__()
        self.folder = folder
        self._files = BlobFiles(keyring)
        self._limit_bytes = limit_bytes
        self._writers: dict[Reference, FolderBlobWriter] = {}

    async def get(self, reference: Reference) -> Blob:
        """Return the metadata of a file; see `BlobStore`."""
        with translate_errors(self.folder):
            return await asyncio.to_thread(self._load, reference)

    async def read(
        self, reference: Reference, *, offset: int = 0, length: int = 0
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes from an offset on; see `BlobStore`."""
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
    ) -> AsyncIterator[FolderBlobWriter]:
        """Open an incomplete file for writing; see `BlobStore`."""
        check_texts(media_type=media_type)
        earlier = self._writers.get(reference)
        if earlier is not None:
            await earlier.close()
        writer = FolderBlobWriter(self._path(reference), self._files, limit_bytes=self._limit_bytes)
        self._writers[reference] = writer
        try:
            await writer.open()
            writer.metadata = {"media_type": media_type, "filename": sanitize_filename(filename)}
            yield writer
        finally:
            await writer.close()
            if self._writers.get(reference) is writer:
                del self._writers[reference]

    async def list_task_ids(self) -> list[str]:
        """Return the ids of the tasks that have files."""
        with translate_errors(self.folder):
            return await asyncio.to_thread(self._list_task_ids)

    async def remove(self, task_ids: Iterable[str]) -> None:
        """Delete all files of tasks; see `BlobStore`."""
        for task_id in task_ids:
            # A malformed id could name a folder elsewhere.
            checked = Reference.create(task_id, "unused")
            folder = self.folder / checked.task_id
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def remove_abandoned(self) -> None:
        """Delete uploads without a write in the last day."""
        await asyncio.to_thread(self._remove_before, datetime.now(UTC).timestamp() - ABANDONED_S)

    async def find_damage(self) -> AsyncGenerator[str]:
        """Read all files and yield one line for each damaged one."""
        for task_id in await self.list_task_ids():
            for path in await asyncio.to_thread(_list_files, self.folder / task_id):
                if not await run_in_thread(self._is_sound, task_id, path):
                    yield f"task {task_id}: file {path.name} is damaged"

    def _list_task_ids(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())

    def _remove_before(self, time_s: float) -> None:
        for path in self.folder.glob("*/*.part"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time_s:
                    path.unlink()

    def _is_sound(self, task_id: str, path: Path) -> bool:
        try:
            blob = self._load(Reference.create(task_id, path.name))
            with contextlib.closing(self._files.open_complete(path)) as file:
                return hash_content(file).hexdigest() == blob.sha256
        except (OSError, ArtifactNotFoundError, InvalidArgumentError, JournalUnavailableError):
            return False

    def _load(self, reference: Reference) -> Blob:
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


def _list_files(folder: Path) -> list[Path]:
    """Return the files of a task's folder without their metadata and without uploads."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.suffix)
