"""Selects records of the audit log, and reads pages of them, the newest first."""

import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from trunkline.errors import InvalidArgumentError
from trunkline.observe.audit.audit_file import ReadRecord, RecordPosition
from trunkline.observe.audit.audit_store import AuditReader

# The part of the log that one page may read, because a filter without matches would read all of
# it.
_SCAN_BYTES: Final = 8 * 1024 * 1024
# A watch that is further behind lists the records again.
_NEW_BYTES: Final = 256 * 1024
# A record is written up to a minute after its time: see `AuditLog.record_refusal`.
_DISORDER: Final = timedelta(minutes=2)
_TOKEN: Final = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Selects records. Empty values match all."""

    since: str = ""
    """RFC 3339 in UTC, as in records."""
    account: str = ""
    action: str = ""
    """A pattern: `*` stands for any text."""
    task: str = ""
    outcome: str = ""

    def matches(self, entry: Mapping[str, Any]) -> bool:
        """Return True if a record is selected."""
        actor, objects = read_table(entry, "actor"), read_table(entry, "object")
        return (
            str(entry.get("time", "")) >= self.since
            and self.account in ("", actor.get("account"))
            and (not self.action or fnmatchcase(str(entry.get("action")), self.action))
            and self.task in ("", objects.get("task"))
            and self.outcome in ("", entry.get("outcome"))
        )


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of records."""

    records: Sequence[Mapping[str, Any]]
    """The newest first."""
    positions: Sequence[RecordPosition]
    """The position of each record, which no other record has."""
    next_page_token: str
    """If empty, there are no more records. A page with a token may still have fewer records than
    requested."""


async def read_audit_page(
    reader: AuditReader, query: AuditQuery, *, page_size: int, page_token: str = ""
) -> AuditPage:
    """Return a page of the records that match.

    Raises:
        InvalidArgumentError: the token is invalid.
        JournalUnavailableError: the log can't be read.
    """
    before = None
    if page_token:
        match = _TOKEN.fullmatch(page_token)
        if match is None:
            raise InvalidArgumentError("pageToken", "is unknown; start from the first page")
        before = RecordPosition(int(match[1]), int(match[2]))
    oldest = _subtract(query.since, _DISORDER)
    records: list[Mapping[str, Any]] = []
    positions: list[RecordPosition] = []
    read_bytes = 0
    async with aclosing(reader.read_backwards(before)) as blocks:
        async for record, position in _flatten(blocks):
            read_bytes += len(record.line)
            entry = record.entry
            if entry is not None:
                if str(entry.get("time", "")) < oldest:
                    break
                if query.matches(entry):
                    records.append(entry)
                    positions.append(position)
            if len(records) == page_size or read_bytes > _SCAN_BYTES:
                return AuditPage(records, positions, f"{position.file}.{position.offset}")
    return AuditPage(records, positions, "")


async def find_end(reader: AuditReader) -> RecordPosition | None:
    """Return the position of the newest record, or None without records.

    Raises:
        JournalUnavailableError: the log can't be read.
    """
    async with aclosing(reader.read_backwards()) as blocks:
        async for _, position in _flatten(blocks):
            return position
    return None


async def read_newer_records(reader: AuditReader, after: RecordPosition | None) -> AuditPage | None:
    """Return the records after a position, or None if there are too many.

    None is also returned if the file of the position is deleted.

    Raises:
        JournalUnavailableError: the log can't be read.
    """
    records: list[Mapping[str, Any]] = []
    positions: list[RecordPosition] = []
    read_bytes = 0
    async with aclosing(reader.read_backwards()) as blocks:
        async for record, position in _flatten(blocks):
            if position == after:
                return AuditPage(records, positions, "")
            read_bytes += len(record.line)
            if read_bytes > _NEW_BYTES:
                return None
            if record.entry is not None:
                records.append(record.entry)
                positions.append(position)
    return AuditPage(records, positions, "") if after is None else None


async def _flatten(
    blocks: AsyncIterable[Sequence[tuple[ReadRecord, RecordPosition]]],
) -> AsyncGenerator[tuple[ReadRecord, RecordPosition]]:
    async for block in blocks:
        for each in block:
            yield each


def read_table(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table in a record, or an empty table."""
    table = entry.get(name)
    return table if isinstance(table, dict) else {}


def format_since(time: datetime) -> str:
    """Return the `since` of a query."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _subtract(since: str, difference: timedelta) -> str:
    if not since:
        return ""
    try:
        return format_since(datetime.fromisoformat(since) - difference)
    except OverflowError:
        return ""
