"""The audit log of all machines of a mesh, in PostgreSQL."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.schema import Schema
from trunkline.observe.audit.audit_file import ReadRecord, RecordPosition
from trunkline.observe.audit.record import AuditRecord

if TYPE_CHECKING:
    import asyncpg

AUDIT: Final = Schema(
    "audit",
    [
        [
            # Every append locks this row. So positions are dense and in the order of commits, and a
            # reader that continues after a position misses nothing.
            "CREATE TABLE trunkline_audit_log (one integer PRIMARY KEY CHECK (one = 1), "
            "position bigint NOT NULL, size_bytes bigint NOT NULL) WITH (fillfactor = 10)",
            "INSERT INTO trunkline_audit_log VALUES (1, 0, 0)",
            # writer, number: the record of a process, so that a repeated append stores it once
            "CREATE TABLE trunkline_audit (position bigint PRIMARY KEY, writer text NOT NULL, "
            "number bigint NOT NULL, written timestamptz NOT NULL DEFAULT now(), "
            "line bytea NOT NULL, UNIQUE (writer, number))",
        ]
    ],
)
_APPEND: Final = (
    "WITH log AS (UPDATE trunkline_audit_log SET position = position + cardinality($3::bytea[]), "
    "size_bytes = size_bytes + $4 WHERE NOT EXISTS (SELECT 1 FROM trunkline_audit "
    "WHERE writer = $1 AND number > $2) RETURNING position, size_bytes), "
    "added AS (INSERT INTO trunkline_audit (position, writer, number, line) "
    "SELECT log.position - cardinality($3) + n, $1, $2 + n, line "
    "FROM log, unnest($3) WITH ORDINALITY AS lines (line, n) ON CONFLICT (writer, number) "
    "DO NOTHING) SELECT size_bytes FROM log"
)
_DELETE_OLD: Final = (
    "WITH old AS (SELECT position FROM trunkline_audit ORDER BY position LIMIT $3), "
    "log AS (SELECT size_bytes FROM trunkline_audit_log FOR UPDATE), "
    "gone AS (DELETE FROM trunkline_audit USING old, log "
    "WHERE trunkline_audit.position = old.position "
    "AND (log.size_bytes > $1 OR written < now() - make_interval(secs => $2)) "
    "RETURNING octet_length(line) AS bytes) "
    "UPDATE trunkline_audit_log SET size_bytes = trunkline_audit_log.size_bytes "
    "- coalesce((SELECT sum(bytes) FROM gone), 0)"
)
_READ: Final = (
    "SELECT position, line FROM trunkline_audit WHERE position > $1 ORDER BY position LIMIT $2"
)
_READ_BACKWARDS: Final = (
    "SELECT position, line FROM trunkline_audit WHERE position < $1 ORDER BY position DESC LIMIT $2"
)
_BLOCK: Final = 500
_DELETED: Final = 1000
_FOLLOW_INTERVAL_S: Final = 1.0
_APPENDS_BETWEEN_DELETIONS: Final = 1000
_LAST: Final = 2**63 - 1


class PostgresAudit:
    """An `AuditWriter` and an `AuditReader` of the log in a database.

    Records are never changed. The oldest are deleted when they are too old, or the log too large.
    All methods raise JournalUnavailableError if the database can't be reached.
    """

    def __init__(self, database: PostgresDatabase, *, size_bytes: int, age_s: float) -> None:
        """`size_bytes` and `age_s` limit the log of all processes."""
        self._database = database
        self._size_bytes = size_bytes
        self._age_s = age_s
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._appends = 0

    @property
    def place(self) -> str:
        """The table and the database."""
        return f"table trunkline_audit of {self._database.name}"

    def exists(self) -> bool:
        """Return True: the log is made with its table."""
        return True

    async def append(self, records: Sequence[AuditRecord], process: str) -> None:
        """Append records; see `AuditWriter`."""
        lines = await asyncio.to_thread(_encode, records, process)
        rows = await self._fetch(
            _APPEND, self._writer, self._number, lines, sum(len(line) for line in lines)
        )
        self._number += len(lines)
        # An earlier try may have stored them.
        is_too_large = bool(rows) and rows[0]["size_bytes"] > self._size_bytes
        if is_too_large or self._appends % _APPENDS_BETWEEN_DELETIONS == 0:
            await self._fetch(_DELETE_OLD, self._size_bytes, self._age_s, _DELETED)
        self._appends += 1

    def close(self) -> None:
        """Do nothing: the database belongs to the process."""

    async def read(self, *, follows: bool = False) -> AsyncGenerator[Sequence[ReadRecord]]:
        """Yield all records, the oldest first; see `AuditReader`."""
        last = -1
        while rows := await self._fetch(_READ, last, _BLOCK):
            last = rows[-1]["position"]
            yield [_read(row) for row in rows]
        while follows:
            await asyncio.sleep(_FOLLOW_INTERVAL_S)
            while rows := await self._fetch(_READ, last, _BLOCK):
                last = rows[-1]["position"]
                yield [_read(row) for row in rows]

    async def read_backwards(
        self, before: RecordPosition | None = None
    ) -> AsyncGenerator[Sequence[tuple[ReadRecord, RecordPosition]]]:
        """Yield the records before a position; see `AuditReader`."""
        first = _LAST if before is None else min(before.offset, _LAST)
        while rows := await self._fetch(_READ_BACKWARDS, first, _BLOCK):
            first = rows[-1]["position"]
            yield [(_read(row), RecordPosition(0, row["position"])) for row in rows]

    async def _fetch(self, query: str, *values: object) -> "list[asyncpg.Record]":
        await self._database.prepare(AUDIT)
        return await self._database.fetch(query, *values)


def _encode(records: Sequence[AuditRecord], process: str) -> list[bytes]:
    return [record.to_line(process) for record in records]


def _read(row: "asyncpg.Record") -> ReadRecord:
    line: bytes = row["line"]
    entry = json.loads(line)
    return ReadRecord(entry if isinstance(entry, dict) else None, line)
