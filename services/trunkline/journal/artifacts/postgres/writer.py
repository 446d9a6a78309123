"""Writes one file to PostgreSQL in order. Readers see it when it is complete."""

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.core.backoff import retry_while_unavailable
from trunkline.core.postgres import Connection, PostgresDatabase, begin
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
)
from trunkline.journal.artifacts.blob_store import (
    check_offset,
    check_sha256,
    check_size,
    taken_over_error,
)
from trunkline.journal.artifacts.content import CHUNK_BYTES
from trunkline.journal.artifacts.postgres.chunks import Chunks
from trunkline.journal.artifacts.references import Reference
from trunkline.journal.postgres.fence import fenced, hold_fence

if TYPE_CHECKING:
    from trunkline.journal.artifacts.postgres.objects import ObjectBucket

_Result = TypeVar("_Result")

# $1 and $2 are the journal and its epoch, $3 and $4 the file, and $5 its writer.
_IF_WRITER: Final = "SELECT content FROM fence LEFT JOIN written ON true"
_CLAIM: Final = (
    "INSERT INTO trunkline_blobs "
    "(journal_id, task_id, blob_id, writer, content, media_type, filename) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (task_id, blob_id) "
    "DO UPDATE SET writer = excluded.writer, media_type = excluded.media_type, "
    "filename = excluded.filename WHERE trunkline_blobs.sha256 = '' RETURNING content, size_bytes"
)
# A repeated statement finds the size that its first try has written.
_EXTEND: Final = fenced(
    "written AS (UPDATE trunkline_blobs SET size_bytes = $7::bigint, written = now() FROM fence "
    "WHERE task_id = $3 AND blob_id = $4 AND writer = $5 AND sha256 = '' "
    "AND size_bytes IN ($6::bigint, $7) RETURNING content)",
    "stored AS (INSERT INTO trunkline_blob_chunks (content, position, size_bytes, body) "
    "SELECT content, $6, $7 - $6, $8 FROM written WHERE $8::bytea IS NOT NULL "
    "ON CONFLICT (content, position) DO NOTHING)",
    select=_IF_WRITER,
)
# The row of an object is written before the object, so that no object is forgotten. Until the size
# includes the chunk, it is no part of the content. The lock lets a newer writer find the row.
_ANNOUNCE: Final = fenced(
    "written AS (SELECT content FROM trunkline_blobs, fence "
    "WHERE task_id = $3 AND blob_id = $4 AND writer = $5 AND sha256 = '' "
    "AND size_bytes IN ($6::bigint, $7::bigint) FOR UPDATE OF trunkline_blobs)",
    "stored AS (INSERT INTO trunkline_blob_chunks (content, position, size_bytes, object) "
    "SELECT content, $6, $7 - $6, $8 FROM written ON CONFLICT (content, position) "
    "DO UPDATE SET size_bytes = excluded.size_bytes)",
    select=_IF_WRITER,
)
_REMOVE_AFTER: Final = (
    "WITH moved AS (UPDATE trunkline_blob_chunks SET content = $3 "
    "WHERE content = $1 AND position >= $2 RETURNING content) "
    "INSERT INTO trunkline_removed_contents (content) SELECT DISTINCT content FROM moved"
)
_FINISH: Final = fenced(
    "written AS (UPDATE trunkline_blobs SET sha256 = $6, written = now() FROM fence "
    "WHERE task_id = $3 AND blob_id = $4 AND writer = $5 AND sha256 IN ('', $6) "
    "AND size_bytes = $7 AND $7 = (SELECT coalesce(sum(chunk.size_bytes), 0) "
    "FROM trunkline_blob_chunks AS chunk WHERE chunk.content = trunkline_blobs.content) "
    "RETURNING content)",
    select=_IF_WRITER,
)
_DISCARD: Final = fenced(
    "written AS (DELETE FROM trunkline_blobs USING fence WHERE task_id = $3 AND blob_id = $4 "
    "AND writer = $5 AND sha256 = '' RETURNING content)",
    select="INSERT INTO trunkline_removed_contents (content) SELECT content FROM written",
)


class PostgresBlobWriter:
    """Writes one file; see `BlobWriter`.

    Bytes are collected to chunks of 256 KiB, or of 8 MiB for a bucket. Each statement compares the
    epoch of the journal and the id of the writer. Statements may run several times; see
    `retry_while_unavailable`.
    """

    def __init__(  # noqa: PLR0913  the parts of the store
        self,
        database: PostgresDatabase,
        journal_id: str,
        epoch: int,
        reference: Reference,
        *,
        chunks: Chunks,
        bucket: "ObjectBucket | None",
        limit_bytes: int,
    ) -> None:
        self._database = database
        self._journal_id = journal_id
        self._epoch = epoch
        self._reference = reference
        self._chunks = chunks
        self._bucket = bucket
        self._chunk_bytes = CHUNK_BYTES if bucket is None else bucket.object_bytes
        self._limit_bytes = limit_bytes
        self._id = uuid.uuid4().hex
        self._content = ""
        self._stored = 0
        self._truncations = 0
        self._buffer = bytearray()
        # None if an earlier writer stored some of the bytes: they are hashed when the file ends.
        self._hash: hashlib._Hash | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    @property
    def offset(self) -> int:
        """The number of bytes written."""
        return self._stored + len(self._buffer)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes written, or empty if an earlier writer stored some of them."""
        return "" if self._hash is None else self._hash.hexdigest()

    async def open(self, *, media_type: str, filename: str) -> None:
        """Become the writer of the file.

        Raises:
            FencedError: another process has taken over the journal.
            PeerUnavailableError: the file is complete.
            JournalUnavailableError: the database can't be reached.
        """
        content = uuid.uuid4().hex

        async def claim(connection: Connection) -> None:
            row = await connection.fetchrow(
                _CLAIM,
                self._journal_id,
                *self._reference,
                self._id,
                content,
                media_type,
                filename,
            )
            if row is None:
                raise taken_over_error()
            self._content, self._stored = row["content"], row["size_bytes"]
            # An earlier writer may have announced an object.
            removed = (self._content, self._stored, uuid.uuid4().hex)
            await connection.execute(_REMOVE_AFTER, *removed)

        await self._run_fenced(claim)
        self._hash = hashlib.sha256() if self._stored == 0 else None

    async def write(self, data: bytes, *, at: int | None = None) -> None:
        """Append bytes; see `BlobWriter`."""
        async with self._lock:
            self._require_open()
            if at is not None and at != self.offset:
                await self._truncate(at)
            check_size(self.offset + len(data), self._limit_bytes)
            self._buffer += data
            if self._hash is not None:
                self._hash.update(data)
            while len(self._buffer) >= self._chunk_bytes:
                await self._store(self._chunk_bytes)

    async def flush(self) -> None:
        """Store the bytes written so far."""
        async with self._lock:
            self._require_open()
            await self._store_all()

    async def finish(self, sha256: str = "") -> None:
        """Complete the file; see `BlobWriter`."""
        async with self._lock:
            self._require_open()
            await self._store_all()
            actual = self.sha256 or await self._hash_stored()
            try:
                check_sha256(sha256, actual)
            except InvalidArgumentError:
                await self._discard()
                raise
            await self._write(_FINISH, actual, self._stored)
            self._is_closed = True

    async def discard(self) -> None:
        """Delete the bytes written so far."""
        async with self._lock:
            if not self._is_closed:
                await self._discard()

    async def close(self) -> None:
        """Stop writing. The bytes written so far are stored if possible, so that it can resume."""
        async with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            with contextlib.suppress(FencedError, PeerUnavailableError, JournalUnavailableError):
                await self._store_all()

    def _require_open(self) -> None:
        if self._is_closed:
            raise taken_over_error()

    async def _store_all(self) -> None:
        while self._buffer:
            await self._store(min(self._chunk_bytes, len(self._buffer)))

    async def _store(self, size_bytes: int) -> None:
        """Store the first bytes of the buffer as a chunk."""
        end = self._stored + size_bytes
        with memoryview(self._buffer) as view:
            data = bytes(view[:size_bytes])
        if self._bucket is None:
            await self._write(_EXTEND, self._stored, end, data)
        else:
            # Truncated objects are deleted later, so their names are not used again.
            name = f"{self._content}/{self._stored}-{self._id}-{self._truncations}"
            await self._write(_ANNOUNCE, self._stored, end, name)
            await self._bucket.put(name, data)
            await self._write(_EXTEND, self._stored, end, None)
        del self._buffer[:size_bytes]
        self._stored = end

    async def _truncate(self, at: int) -> None:
        check_offset(at, self.offset)
        await self._store_all()
        removed = uuid.uuid4().hex

        async def cut(connection: Connection) -> None:
            content = await connection.fetchval(
                "UPDATE trunkline_blobs SET size_bytes = $4, written = now() "
                "WHERE task_id = $1 AND blob_id = $2 AND writer = $3 AND sha256 = '' "
                "RETURNING content",
                *self._reference,
                self._id,
                at,
            )
            if content is None:
                raise taken_over_error()
            await connection.execute(
                "UPDATE trunkline_blob_chunks SET size_bytes = $2 - position "
                "WHERE content = $1 AND position < $2 AND position + size_bytes > $2",
                content,
                at,
            )
            await connection.execute(_REMOVE_AFTER, content, at, removed)

        await self._run_fenced(cut)
        self._truncations += 1
        self._stored = at
        self._hash = hashlib.sha256() if at == 0 else None

    async def _hash_stored(self) -> str:
        digest = hashlib.sha256()
        stored = self._chunks.read(self._content, offset=0, end=self._stored)
        async with aclosing(stored) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
        return digest.hexdigest()

    async def _discard(self) -> None:
        self._is_closed = True
        self._buffer.clear()
        key = (self._journal_id, self._epoch, *self._reference, self._id)
        await self._database.fetchrow(_DISCARD, *key)

    async def _write(self, statement: str, *values: object) -> None:
        """Run a statement that returns a row under the fence, with the content if we are writer.

        Raises:
            FencedError: another process has taken over the journal.
            PeerUnavailableError: the file has another writer, or was deleted.
        """
        key = (self._journal_id, self._epoch, *self._reference, self._id)
        row = await retry_while_unavailable(
            lambda: self._database.fetchrow(statement, *key, *values)
        )
        if row is None:
            raise FencedError(self._journal_id)
        if row["content"] is None:
            raise taken_over_error()

    async def _run_fenced(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Run statements in one transaction of the journal's owner."""

        async def run(connection: Connection) -> _Result:
            async with begin(connection):
                await hold_fence(connection, self._journal_id, self._epoch)
                return await work(connection)

        return await retry_while_unavailable(lambda: self._database.run(run))
