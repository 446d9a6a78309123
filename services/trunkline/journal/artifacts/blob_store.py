"""The interface of a store of files. A file is written once, and is read from any offset."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from trunkline.core.json_values import update_struct
from trunkline.errors import ArtifactNotFoundError, InvalidArgumentError, PeerUnavailableError
from trunkline.journal.artifacts.content import FileContent, iter_chunks
from trunkline.journal.artifacts.references import Reference
from trunkline.v1 import part_pb2

LIMIT_BYTES: Final = 4 * 1024 * 1024 * 1024
"""The largest size of one file. A file that would fill the disk is refused earlier."""

ABANDONED_S: Final = 24 * 3600.0
"""The time after its last write at which an unfinished upload is deleted."""


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


class BlobWriter(Protocol):
    """Writes one file in order; see `BlobStore.open_writer`.

    All methods raise PeerUnavailableError once another writer has been opened for the file or its
    task was deleted, FencedError after a takeover of the journal, and JournalUnavailableError if
    the store can't be written.
    """

    @property
    def offset(self) -> int:
        """The number of bytes written, which is the offset of the next bytes."""
        ...

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes written so far, hexadecimal.

        It may be empty if an earlier writer stored some of the bytes.
        """
        ...

    async def write(self, data: bytes, *, at: int | None = None) -> None:
        """Append bytes. With an offset `at` before the end, the file is first truncated there.

        Raises:
            InvalidArgumentError: bytes are missing before `at`, or the file becomes too large.
        """
        ...

    async def flush(self) -> None:
        """Store the bytes written so far, so that another writer continues after them."""
        ...

    async def finish(self, sha256: str = "") -> None:
        """Complete the file, so that it can be read.

        Raises:
            InvalidArgumentError: the content has another checksum. It is deleted.
        """
        ...

    async def discard(self) -> None:
        """Delete the bytes written so far."""
        ...


class BlobStore(ABC):
    """The files of one journal's tasks.

    Readers see a file when it is complete. It never changes, and it is deleted with its task. An
    incomplete upload can be resumed within a day of its last write, also by the next owner of the
    journal. All methods raise JournalUnavailableError if a file is damaged, or if the store can't
    be read or written. Methods that write raise FencedError after a takeover of the journal.
    """

    def __init__(self) -> None:
        # An entry exists while a call of `put` holds the lock or waits for it.
        self._put_locks: WeakValueDictionary[Reference, asyncio.Lock] = WeakValueDictionary()

    @abstractmethod
    async def get(self, reference: Reference) -> Blob:
        """Return the metadata of a file.

        Raises:
            ArtifactNotFoundError: the file is missing or incomplete.
        """

    @abstractmethod
    def read(
        self, reference: Reference, *, offset: int = 0, length: int = 0
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes from an offset on, in chunks. The length 0 is the rest of the file.

        Raises:
            ArtifactNotFoundError: the file is missing or incomplete.
        """

    @abstractmethod
    def open_writer(
        self, reference: Reference, *, media_type: str = "", filename: str = ""
    ) -> AbstractAsyncContextManager[BlobWriter]:
        """Open an incomplete file for writing, after the bytes that it already has.

        Without `finish`, a later writer resumes the upload. The newest writer has the file: the
        methods of earlier writers raise PeerUnavailableError.

        Raises:
            InvalidArgumentError: no store accepts the media type.
            PeerUnavailableError: another writer has just completed the file.
        """

    @abstractmethod
    async def list_task_ids(self) -> list[str]:
        """Return the ids of the tasks that have files."""

    @abstractmethod
    async def remove(self, task_ids: Iterable[str]) -> None:
        """Delete all files of tasks that do not exist any more.

        Raises:
            InvalidArgumentError: a task id is malformed.
        """

    @abstractmethod
    async def remove_abandoned(self) -> None:
        """Delete uploads without a write in the last day."""

    @abstractmethod
    def find_damage(self) -> AsyncGenerator[str]:
        """Read all files and yield one line for each damaged one."""

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


def taken_over_error() -> PeerUnavailableError:
    """Return the error of a writer whose file has a newer writer, or was deleted."""
    return PeerUnavailableError("this host", "another call has taken over this upload")


def check_offset(at: int, written: int) -> None:
    """Check that a write continues within the `written` bytes.

    Raises:
        InvalidArgumentError: bytes are missing before `at`.
    """
    if at > written:
        problem = f"is {at}, but {written} bytes are stored; continue there"
        raise InvalidArgumentError("offset", problem)


def check_size(size_bytes: int, limit_bytes: int) -> None:
    """Check the size of a file.

    Raises:
        InvalidArgumentError: the file is larger than the limit.
    """
    if size_bytes > limit_bytes:
        problem = f"is larger than {limit_bytes} bytes; send it in several"
        raise InvalidArgumentError("artifact", problem)


def check_sha256(expected: str, actual: str) -> None:
    """Check a content's checksum. An empty `expected` fits any content.

    Raises:
        InvalidArgumentError: the content has another checksum.
    """
    if expected and expected.lower() != actual:
        problem = f"is {expected[:64]}, but the content's is {actual}; send it again"
        raise InvalidArgumentError("sha256", problem)
