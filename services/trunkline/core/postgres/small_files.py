"""Small files of a mesh in PostgreSQL, shared by the processes of all machines."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.schema import Schema

if TYPE_CHECKING:
    import asyncpg

SMALL_FILES: Final = Schema(
    "small_files",
    [
        [
            # The order of bytes, so that the files of a folder are one range of the index.
            'CREATE TABLE trunkline_small_files (path text COLLATE "C" PRIMARY KEY, '
            "content bytea NOT NULL, changed timestamptz NOT NULL DEFAULT now())"
        ]
    ],
)
# '0' is the character after '/'.
_IN_FOLDER: Final = "path > $1 || '/' AND path < $1 || '0'"
_LONGEST_CLEANUP: Final = 1000


class PostgresFiles:
    """A `SmallFiles` in a database. The clock of the database measures ages.

    All methods raise JournalUnavailableError if the database can't be reached. A change may have
    been stored then. The row count of one statement decides who of several processes was first.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def locate(self, path: str) -> str:
        """Return the place of a file for people; see `SmallFiles`."""
        return f"{path} in the table trunkline_small_files of {self._database.name}"

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        rows = await self._fetch("SELECT content FROM trunkline_small_files WHERE path = $1", path)
        return rows[0]["content"] if rows else None

    async def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        await self._fetch(
            "INSERT INTO trunkline_small_files (path, content) VALUES ($1, $2) ON CONFLICT (path) "
            "DO UPDATE SET content = excluded.content, changed = excluded.changed",
            path,
            content,
        )

    async def replace(self, path: str, content: bytes, *, expected: bytes | None) -> bool:
        """Replace a file if its content is still the expected one; see `SmallFiles`."""
        if expected is None:
            rows = await self._fetch(
                "INSERT INTO trunkline_small_files (path, content) VALUES ($1, $2) "
                "ON CONFLICT (path) DO NOTHING RETURNING path",
                path,
                content,
            )
        else:
            rows = await self._fetch(
                "UPDATE trunkline_small_files SET content = $2, changed = now() "
                "WHERE path = $1 AND content = $3 RETURNING path",
                path,
                content,
                expected,
            )
        return bool(rows)

    async def delete(self, path: str) -> bool:
        """Delete a file. Return False if there is none."""
        return bool(
            await self._fetch(
                "DELETE FROM trunkline_small_files WHERE path = $1 RETURNING path", path
            )
        )

    async def list_paths(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder, sorted."""
        rows = await self._fetch(
            " ".join(("SELECT path FROM trunkline_small_files WHERE", _IN_FOLDER, "ORDER BY path")),
            folder,
        )
        return [row["path"] for row in rows]

    async def delete_old(self, folder: str, *, age: timedelta) -> None:
        """Delete files below a folder that have not changed for a time, up to 1,000 of them."""
        await self._fetch(
            " ".join(
                (
                    "DELETE FROM trunkline_small_files WHERE path IN (SELECT path FROM "
                    "trunkline_small_files WHERE",
                    _IN_FOLDER,
                    # Processes that clean up at the same time would deadlock without this.
                    "AND changed <= now() - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED)",
                )
            ),
            folder,
            age,
            _LONGEST_CLEANUP,
        )

    async def _fetch(self, query: str, *values: object) -> "list[asyncpg.Record]":
        await self._database.prepare(SMALL_FILES)
        return await self._database.fetch(query, *values)
