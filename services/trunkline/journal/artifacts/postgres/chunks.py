"""Reads the chunks of a content in PostgreSQL."""

from collections.abc import AsyncGenerator

from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import JournalUnavailableError


class DamagedContentError(JournalUnavailableError):
    """Bytes of a content are missing."""


async def read_content(
    database: PostgresDatabase, content: str, *, offset: int, end: int
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a content from an offset to an end, a chunk at a time.

    Raises:
        DamagedContentError: a chunk is missing.
        JournalUnavailableError: the database can't be reached.
    """
    while offset < end:
        row = await database.fetchrow(
            "SELECT position, size_bytes, body FROM blob_chunks "
            "WHERE content = $1 AND position <= $2 ORDER BY position DESC LIMIT 1",
            content,
            offset,
        )
        if row is None or row["position"] + row["size_bytes"] <= offset:
            raise DamagedContentError(database.name, "a file in it is damaged; restore a copy")
        start = offset - row["position"]
        data = row["body"][start : min(row["size_bytes"], start + end - offset)]
        yield data
        offset += len(data)
