"""Reads and deletes the chunks of a content in PostgreSQL, whose bytes may be in a bucket."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts.content import CHUNK_BYTES

if TYPE_CHECKING:
    import asyncpg

    from trunkline.journal.artifacts.postgres.objects import ObjectBucket

# The bytes of an object that one request reads.
_READ_BYTES: Final = 8 * CHUNK_BYTES
_DELETED_CHUNKS: Final = 64
_FIND_CHUNK: Final = (
    "SELECT position, size_bytes, body, object FROM trunkline_blob_chunks "
    "WHERE content = $1 AND position <= $2 ORDER BY position DESC LIMIT 1"
)


class DamagedContentError(JournalUnavailableError):
    """Bytes of a content are missing."""


class Chunks:
    """The chunks of all contents."""

    def __init__(self, database: PostgresDatabase, bucket: "ObjectBucket | None") -> None:
        """Without a bucket, chunks whose bytes are in a bucket can't be read or deleted."""
        self._database = database
        self._bucket = bucket

    async def read(self, content: str, *, offset: int, end: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a content from an offset to an end, at most CHUNK_BYTES at a time.

        Raises:
            DamagedContentError: bytes are missing.
            JournalUnavailableError: the database or the bucket can't be reached.
        """
        while offset < end:
            find = partial(self._database.fetchrow, _FIND_CHUNK, content, offset)
            chunk = await retry_while_unavailable(find)
            if chunk is None or chunk["position"] + chunk["size_bytes"] <= offset:
                raise self._damaged()
            chunk_end = min(end, chunk["position"] + chunk["size_bytes"])
            while offset < chunk_end:
                start = offset - chunk["position"]
                data = await self._read_bytes(chunk, start, chunk_end - chunk["position"])
                for at in range(0, len(data), CHUNK_BYTES):
                    yield data[at : at + CHUNK_BYTES]
                offset += len(data)

    async def delete(self, content: str) -> bool:
        """Delete a removed content, a few chunks at a time. Return False if that needs a bucket.

        Raises:
            JournalUnavailableError: the database or the bucket can't be reached.
        """
        while True:
            rows = await self._database.fetch(
                "SELECT position, object FROM trunkline_blob_chunks WHERE content = $1 LIMIT $2",
                content,
                _DELETED_CHUNKS,
            )
            if objects := [row["object"] for row in rows if row["object"]]:
                if self._bucket is None:
                    return False
                await self._bucket.delete(objects)
            await self._database.fetch(
                "DELETE FROM trunkline_blob_chunks "
                "WHERE content = $1 AND position = ANY($2::bigint[])",
                content,
                [row["position"] for row in rows],
            )
            if len(rows) < _DELETED_CHUNKS:
                break
        await self._database.fetch(
            "DELETE FROM trunkline_removed_contents WHERE content = $1", content
        )
        return True

    async def _read_bytes(self, chunk: "asyncpg.Record", start: int, end: int) -> bytes:
        """Return some bytes of a chunk in a range, but at least one."""
        if chunk["object"] is None:
            data: bytes = chunk["body"][start:end]
        elif self._bucket is None:
            problem = "the bytes of a file are in a bucket; set `files` to its URL"
            raise JournalUnavailableError(self._database.name, problem)
        else:
            try:
                data = await self._bucket.read(
                    chunk["object"], start, min(end, start + _READ_BYTES)
                )
            except FileNotFoundError:
                raise self._damaged() from None
        if not data:
            raise self._damaged()
        return data

    def _damaged(self) -> DamagedContentError:
        return DamagedContentError(self._database.name, "a file in it is damaged; restore a copy")
