"""The audit log of all machines of a mesh, in PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.shared_log import SharedLog, log_schema
from trunkline.observe.audit.audit_file import ReadRecord, RecordPosition
from trunkline.observe.audit.record import AuditRecord

AUDIT: Final = log_schema("audit")
"""The tables of the audit log. An entry is a line."""
_BLOCK: Final = 500
_FOLLOW_INTERVAL_S: Final = 1.0


class PostgresAudit:
    """An `AuditWriter` and an `AuditReader` of the log in a database.

    Records are never changed. The oldest are deleted when they are too old, or the log too large.
    All methods raise JournalUnavailableError if the database can't be reached.
    """

    def __init__(self, database: PostgresDatabase, *, size_bytes: int, age_s: float) -> None:
        """`size_bytes` and `age_s` limit the log of all processes."""
        self._log = SharedLog(database, AUDIT, size_bytes=size_bytes, age_s=age_s)

    @property
    def place(self) -> str:
        """The table and the database."""
        return self._log.place

    def exists(self) -> bool:
        """Return True: the log is made with its table."""
        return True

    async def append(self, records: Sequence[AuditRecord], process: str) -> None:
        """Append records; see `AuditWriter`."""
        await self._log.append(await asyncio.to_thread(_encode, records, process))

    async def delete_old_records(self) -> None:
        """Delete records that are too old, at once and then every minute, until cancelled."""
        await self._log.delete_old_entries()

    def close(self) -> None:
        """Do nothing: the database belongs to the process."""

    async def read(self, *, follows: bool = False) -> AsyncGenerator[Sequence[ReadRecord]]:
        """Yield all records, the oldest first; see `AuditReader`."""
        last = 0
        while True:
            while entries := await self._log.read(last, limit=_BLOCK):
                last = entries[-1].position
                yield [_parse(entry.body) for entry in entries]
            if not follows:
                return
            await asyncio.sleep(_FOLLOW_INTERVAL_S)

    async def read_backwards(
        self, before: RecordPosition | None = None
    ) -> AsyncGenerator[Sequence[tuple[ReadRecord, RecordPosition]]]:
        """Yield the records before a position; see `AuditReader`."""
        first = None if before is None else before.offset
        while entries := await self._log.read_backwards(first, limit=_BLOCK):
            first = entries[-1].position
            yield [(_parse(entry.body), RecordPosition(0, entry.position)) for entry in entries]


def _encode(records: Sequence[AuditRecord], process: str) -> list[bytes]:
    return [record.to_line(process) for record in records]


def _parse(line: bytes) -> ReadRecord:
    entry = json.loads(line)
    return ReadRecord(entry if isinstance(entry, dict) else None, line)
