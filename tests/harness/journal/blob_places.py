"""The places of files for the conformance suite: each opens the stores of one journal there."""

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from harness.journal.postgres_server import new_database
from harness.journal.protected import new_key, open_keyring
from harness.journal.s3_server import list_objects, new_bucket
from trunkline.core.postgres import PostgresDatabase
from trunkline.journal.artifacts import BlobStore, Reference
from trunkline.journal.artifacts.blob_store import LIMIT_BYTES
from trunkline.journal.artifacts.folder import FolderBlobStore
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.artifacts.postgres.objects import ObjectBucket
from trunkline.journal.postgres import PostgresCatalog


class BlobPlace(ABC):
    """Where the files of one journal are."""

    journal_id: str = "journal1"

    @property
    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `open_blobs` in another process."""

    @abstractmethod
    def open(self, *, limit_bytes: int = LIMIT_BYTES) -> BlobStore:
        """Return a store as another process of the journal's owner has it."""

    @abstractmethod
    async def damage(self, reference: Reference) -> None:
        """Alter the last byte of a stored file."""

    @abstractmethod
    async def age(self, reference: Reference, seconds: float) -> None:
        """Let the last write of an incomplete file be longer ago."""

    @abstractmethod
    async def count_stored(self) -> int:
        """Return the number of stored bodies: of chunks, or of files."""


class FolderPlace(BlobPlace):
    """Files in a folder."""

    def __init__(self, folder: Path, key: str = "") -> None:
        self._folder = folder / "files.artifacts"
        self._keys = folder
        self._key = key

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("folder", str(self._keys), self._key)

    def open(self, *, limit_bytes: int = LIMIT_BYTES) -> BlobStore:
        keyring = open_keyring(self._keys, self._key) if self._key else None
        return FolderBlobStore(self._folder, limit_bytes=limit_bytes, keyring=keyring)

    async def damage(self, reference: Reference) -> None:
        path = self._folder / reference.task_id / reference.blob_id
        stored = path.read_bytes()
        path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))

    async def age(self, reference: Reference, seconds: float) -> None:
        for path in (self._folder / reference.task_id).glob(f"{reference.blob_id}*.part"):
            written_s = path.stat().st_mtime - seconds
            os.utime(path, (written_s, written_s))

    async def count_stored(self) -> int:
        return sum(path.suffix != ".json" for path in self._folder.glob("*/*"))


class PostgresPlace(BlobPlace):
    """Files in a database."""

    bucket: ObjectBucket | None = None

    def __init__(self, database: PostgresDatabase, url: str, journal_id: str, epoch: int) -> None:
        self.database = database
        self.journal_id = journal_id
        self._url = url
        self._epoch = epoch

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("postgres", self._url, self.journal_id, str(self._epoch))

    def open(self, *, limit_bytes: int = LIMIT_BYTES) -> BlobStore:
        return PostgresBlobStore(
            self.database,
            self.journal_id,
            self._epoch,
            bucket=self.bucket,
            limit_bytes=limit_bytes,
        )

    async def damage(self, reference: Reference) -> None:
        await self.database.fetch(
            "UPDATE trunkline_blob_chunks SET body = set_byte(body, 0, get_byte(body, 0) # 1) "
            "WHERE content = (SELECT content FROM trunkline_blobs "
            "WHERE task_id = $1 AND blob_id = $2)",
            *reference,
        )

    async def age(self, reference: Reference, seconds: float) -> None:
        await self.database.fetch(
            "UPDATE trunkline_blobs SET written = written - make_interval(secs => $3) "
            "WHERE task_id = $1 AND blob_id = $2",
            *reference,
            seconds,
        )
        await self.database.fetch(
            "UPDATE trunkline_removed_contents SET removed = removed - make_interval(secs => $1)",
            seconds,
        )

    async def count_stored(self) -> int:
        row = await self.database.fetchrow("SELECT count(*) FROM trunkline_blob_chunks")
        assert row is not None
        count: int = row[0]
        return count


class S3Place(PostgresPlace):
    """Bytes of files in a bucket, everything else in a database."""

    def __init__(
        self, database: PostgresDatabase, url: str, journal_id: str, epoch: int, bucket: str
    ) -> None:
        super().__init__(database, url, journal_id, epoch)
        self.bucket = open_bucket(bucket)
        self.url = bucket

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*super().arguments, self.url)

    async def damage(self, reference: Reference) -> None:
        assert self.bucket is not None
        (row, *_) = await self.database.fetch(
            "SELECT object, chunk.size_bytes FROM trunkline_blob_chunks AS chunk "
            "JOIN trunkline_blobs USING (content) "
            "WHERE task_id = $1 AND blob_id = $2 ORDER BY position DESC",
            *reference,
        )
        stored = await self.bucket.read(row["object"], 0, row["size_bytes"])
        await self.bucket.put(row["object"], stored[:-1] + bytes([stored[-1] ^ 1]))

    async def count_stored(self) -> int:
        chunks = await super().count_stored()
        # No object is without a row, and no row is without an object.
        assert chunks == len(await asyncio.to_thread(list_objects, self.url))
        return chunks


OpenPlace: TypeAlias = Callable[[Path], AbstractAsyncContextManager[BlobPlace]]


@asynccontextmanager
async def folder(path: Path) -> AsyncIterator[BlobPlace]:
    yield FolderPlace(path)


@asynccontextmanager
async def encrypted_folder(path: Path) -> AsyncIterator[BlobPlace]:
    yield FolderPlace(path, new_key())


@asynccontextmanager
async def postgres(_path: Path) -> AsyncIterator[BlobPlace]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database())
        database = await stack.enter_async_context(PostgresDatabase(url))
        journal = await PostgresCatalog(database).open("journal")
        stack.push_async_callback(journal.close)
        yield PostgresPlace(database, url, journal.id, journal.epoch)


@asynccontextmanager
async def s3(_path: Path) -> AsyncIterator[BlobPlace]:
    async with AsyncExitStack() as stack:
        bucket = await stack.enter_async_context(new_bucket())
        url = await stack.enter_async_context(new_database())
        database = await stack.enter_async_context(PostgresDatabase(url))
        journal = await PostgresCatalog(database).open("journal")
        stack.push_async_callback(journal.close)
        yield S3Place(database, url, journal.id, journal.epoch, bucket)


PLACES: dict[str, OpenPlace] = {
    "folder": folder,
    "encrypted folder": encrypted_folder,
    "postgres": postgres,
    "s3": s3,
}


@asynccontextmanager
async def open_blobs(kind: str, *arguments: str) -> AsyncIterator[BlobStore]:
    """Open the store of a place in another process; see `BlobPlace.arguments`."""
    if kind == "folder":
        path, key = arguments
        yield FolderPlace(Path(path), key).open()
        return
    url, journal_id, epoch, *bucket = arguments
    async with PostgresDatabase(url) as database:
        yield PostgresBlobStore(
            database,
            journal_id,
            int(epoch),
            bucket=open_bucket(bucket[0]) if bucket else None,
        )


def open_bucket(url: str) -> ObjectBucket:
    """Return a bucket whose objects are small, so that files have several."""
    return ObjectBucket(url, object_bytes=256 * 1024)


async def upload_slowly(task_id: str, blob_id: str, *place: str) -> None:
    """Write to a file until the process is killed, and print the offset after each write."""
    async with (
        open_blobs(*place) as blobs,
        blobs.open_writer(Reference(task_id, blob_id)) as writer,
    ):
        while True:
            await writer.write(pattern(writer.offset, 100_000))
            await writer.flush()
            sys.stdout.write(f"{writer.offset}\n")
            sys.stdout.flush()


def pattern(offset: int, length: int) -> bytes:
    """Return bytes of a content in which every place differs from its neighbors."""
    return bytes((at * 7 + at // 251) % 256 for at in range(offset, offset + length))


if __name__ == "__main__":
    asyncio.run(upload_slowly(*sys.argv[1:]))
