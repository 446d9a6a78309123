"""Stores the files of a journal's tasks in PostgreSQL; see `tables`."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.storable_texts import check_texts
from trunkline.errors import ArtifactNotFoundError, FencedError
from trunkline.journal.artifacts.blob_store import ABANDONED_S, LIMIT_BYTES, Blob, BlobStore
from trunkline.journal.artifacts.postgres.chunks import Chunks, DamagedContentError
from trunkline.journal.artifacts.postgres.tables import FILES
from trunkline.journal.artifacts.postgres.writer import PostgresBlobWriter
from trunkline.journal.artifacts.references import Reference, sanitize_filename
from trunkline.journal.postgres.fence import fenced

if TYPE_CHECKING:
    import asyncpg

    from trunkline.journal.artifacts.postgres.objects import ObjectBucket

# The time for a reader that began before the file was removed.
_READING_S: Final = 3600.0
_DELETED_CONTENTS: Final = 100

_REMOVE_DELETED: Final = (
    "INSERT INTO trunkline_removed_contents (content) SELECT content FROM deleted"
)
# A task that exists refers to its files, whatever the caller believes.
_REMOVE_TASKS: Final = fenced(
    "deleted AS (DELETE FROM trunkline_blobs USING fence WHERE journal_id = $1 "
    "AND task_id = ANY($3::text[]) "
    "AND NOT EXISTS (SELECT 1 FROM trunkline_tasks AS task "
    "WHERE task.task_id = trunkline_blobs.task_id) RETURNING content)",
    f"removed AS ({_REMOVE_DELETED})",
)
_REMOVE_ABANDONED: Final = fenced(
    "deleted AS (DELETE FROM trunkline_blobs USING fence WHERE journal_id = $1 AND sha256 = '' "
    "AND written < now() - $3 * interval '1 second' RETURNING content)",
    f"removed AS ({_REMOVE_DELETED})",
)
# The id of a journal is never used again.
_REMOVE_JOURNALS: Final = " ".join(
    (
        "WITH deleted AS (DELETE FROM trunkline_blobs WHERE NOT EXISTS "
        "(SELECT 1 FROM trunkline_journals AS journal "
        "WHERE journal.journal_id = trunkline_blobs.journal_id) RETURNING content)",
        _REMOVE_DELETED,
    )
)


class PostgresBlobStore(BlobStore):
    """A `BlobStore` in PostgreSQL. Files of other journals can be read, too, but not written.

    With a bucket, the bytes of new files are there, and everything else is in the database.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        journal_id: str,
        epoch: int,
        *,
        bucket: "ObjectBucket | None" = None,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """Writes are those of the journal's owner at this epoch."""
        super().__init__()
        self._database = database
        self._bucket = bucket
        self._chunks = Chunks(database, bucket)
        self._journal_id = journal_id
        self._epoch = epoch
        self._limit_bytes = limit_bytes

    async def get(self, reference: Reference) -> Blob:
        """Return the metadata of a file; see `BlobStore`."""
        return _to_blob(await self._find(reference))

    async def read(
        self, reference: Reference, *, offset: int = 0, length: int = 0
    ) -> AsyncGenerator[bytes]:
        """Yield a file's bytes from an offset on; see `BlobStore`."""
        row = await self._find(reference)
        end = row["size_bytes"]
        end = min(end, offset + length) if length else end
        async with aclosing(self._chunks.read(row["content"], offset=offset, end=end)) as chunks:
            async for chunk in chunks:
                yield chunk

    @asynccontextmanager
    async def open_writer(
        self, reference: Reference, *, media_type: str = "", filename: str = ""
    ) -> AsyncIterator[PostgresBlobWriter]:
        """Open an incomplete file for writing; see `BlobStore`."""
        check_texts(media_type=media_type)
        await self._prepare()
        writer = PostgresBlobWriter(
            self._database,
            self._journal_id,
            self._epoch,
            reference,
            chunks=self._chunks,
            bucket=self._bucket,
            limit_bytes=self._limit_bytes,
        )
        await writer.open(media_type=media_type, filename=sanitize_filename(filename))
        try:
            yield writer
        finally:
            await writer.close()

    async def list_task_ids(self) -> list[str]:
        """Return the ids of the tasks that have files."""
        await self._prepare()
        rows = await self._database.fetch(
            "SELECT DISTINCT task_id FROM trunkline_blobs WHERE journal_id = $1 ORDER BY task_id",
            self._journal_id,
        )
        return [row["task_id"] for row in rows]

    async def remove(self, task_ids: Iterable[str]) -> None:
        """Delete all files of tasks; see `BlobStore`."""
        checked = [Reference.create(task_id, "unused").task_id for task_id in task_ids]
        if checked:
            await self._run_fenced(_REMOVE_TASKS, checked)

    async def remove_abandoned(self) -> None:
        """Delete uploads without a write in the last day, and the chunks of removed files.

        Also removes the files of journals that are gone. All times are by the database's clock.
        """
        await self._run_fenced(_REMOVE_ABANDONED, ABANDONED_S)
        await self._database.fetch(_REMOVE_JOURNALS)
        while True:
            rows = await self._database.fetch(
                "SELECT content FROM trunkline_removed_contents "
                "WHERE removed < now() - $1 * interval '1 second' ORDER BY removed LIMIT $2",
                _READING_S,
                _DELETED_CONTENTS,
            )
            deleted = [await self._chunks.delete(row["content"]) for row in rows]
            if len(rows) < _DELETED_CONTENTS or not any(deleted):
                return

    async def find_damage(self) -> AsyncGenerator[str]:
        """Read all files and yield one line for each damaged one."""
        await self._prepare()
        rows = await self._database.fetch(
            "SELECT task_id, blob_id, sha256 FROM trunkline_blobs "
            "WHERE journal_id = $1 AND sha256 <> '' ORDER BY task_id, blob_id",
            self._journal_id,
        )
        for row in rows:
            reference = Reference(row["task_id"], row["blob_id"])
            try:
                is_sound = await self._hash(reference) == row["sha256"]
            except ArtifactNotFoundError:
                continue  # Retention deleted its task meanwhile.
            except DamagedContentError:
                is_sound = False
            if not is_sound:
                yield f"task {reference.task_id}: file {reference.blob_id} is damaged"

    async def _hash(self, reference: Reference) -> str:
        digest = hashlib.sha256()
        async with aclosing(self.read(reference)) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
        return digest.hexdigest()

    async def _prepare(self) -> None:
        await retry_while_unavailable(lambda: self._database.prepare(FILES))

    async def _find(self, reference: Reference) -> "asyncpg.Record":
        await self._prepare()
        query = (
            "SELECT task_id, blob_id, size_bytes, sha256, media_type, filename, content "
            "FROM trunkline_blobs WHERE task_id = $1 AND blob_id = $2 AND sha256 <> ''"
        )
        row = await retry_while_unavailable(lambda: self._database.fetchrow(query, *reference))
        if row is None:
            raise ArtifactNotFoundError(*reference)
        return row

    async def _run_fenced(self, statement: str, *values: object) -> None:
        await self._prepare()
        if await self._database.fetchrow(statement, self._journal_id, self._epoch, *values) is None:
            raise FencedError(self._journal_id)


def _to_blob(row: "asyncpg.Record") -> Blob:
    return Blob(
        Reference(row["task_id"], row["blob_id"]),
        row["size_bytes"],
        row["sha256"],
        row["media_type"],
        row["filename"],
    )
