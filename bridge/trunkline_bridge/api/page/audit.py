"""The page's view of the audit log: pages of records by filters, and new records as they come."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.errors import (
    JournalUnavailableError,
    PeerUnavailableError,
    UnsupportedOperationError,
)
from trunkline.observe.audit import (
    Action,
    AuditLog,
    AuditPage,
    AuditQuery,
    find_end,
    format_since,
    read_audit_page,
    read_newer_records,
)
from trunkline_bridge.api.page.access import PageAccess
from trunkline_bridge.api.page.binding import (
    API_PATH,
    PageEvent,
    PageStreams,
    Paths,
    read_page_size,
    read_text,
)
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.sse import EventStreamResponse

_INTERVAL_S: Final = 1.0


class PageAudit:
    """The records in this process's audit log, for operators.

    Processes with one data directory, or with one database, share a log. Other records are not
    here.
    """

    def __init__(self, audit: AuditLog | None, access: PageAccess, streams: PageStreams) -> None:
        self._audit = audit
        self._access = access
        self._streams = streams

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        path = f"{API_PATH}/audit"
        return {path: {"GET": self._list_records}, f"{path}:watch": {"GET": self._watch}}

    async def _list_records(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Json:
        audit = self._require_log(caller)
        query, size = _read_query(params), read_page_size(params)
        token = read_text(params, "pageToken")
        with _unreadable():
            page = await read_audit_page(audit.reader, query, page_size=size, page_token=token)
        return {
            "process": audit.process,
            "records": list(_render_records(page)),
            "nextPageToken": page.next_page_token,
        }

    async def _watch(
        self, caller: Caller, params: Json, _path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        audit, query = self._require_log(caller), _read_query(params)
        return self._streams.respond(caller, _changes(audit, query))

    def _require_log(self, caller: Caller) -> AuditLog:
        """Return the log.

        WireError: the caller is not an operator. UnsupportedOperationError: off.
        """
        self._access.require_operator(caller)
        if self._audit is None:
            raise UnsupportedOperationError("the audit log", "it is off; set audit = true")
        return self._audit


async def _changes(audit: AuditLog, query: AuditQuery) -> AsyncGenerator[PageEvent, None]:
    """Yield new records that match, the oldest first, at most once a second.

    Several processes write the file, without a notice. `ready` says that the watch has begun,
    `reset` that records are missing: the reader lists again after both.
    """
    with _unreadable():
        end = await find_end(audit.reader)
    yield PageEvent("ready", {})
    while True:
        await asyncio.sleep(_INTERVAL_S)
        with _unreadable():
            page = await read_newer_records(audit.reader, end)
            if page is None:
                end = await find_end(audit.reader)
        if page is None:
            yield PageEvent("reset", {})
        elif page.positions:
            end = page.positions[0]
            for record in reversed(list(_render_records(page, query))):
                yield PageEvent("record", record)


@contextmanager
def _unreadable() -> Iterator[None]:
    """Raise PeerUnavailableError if the log can't be read. Its place is not for callers."""
    try:
        yield
    except JournalUnavailableError as error:
        raise PeerUnavailableError("the audit log", "can't be read") from error


def _render_records(page: AuditPage, query: AuditQuery | None = None) -> Iterator[Json]:
    for record, position in zip(page.records, page.positions, strict=True):
        if query is None or query.matches(record):
            yield {**record, "id": f"{position.file}.{position.offset}"}


def _read_query(params: Json) -> AuditQuery:
    """Return the filters of a request. WireError: one is invalid."""
    action, since = read_text(params, "action"), read_text(params, "since")
    if action and not any(fnmatchcase(known, action) for known in Action):
        raise invalid_params(("action", f"no such action; there are: {', '.join(Action)}"))
    return AuditQuery(
        since=_parse_time(since) if since else "",
        account=read_text(params, "account"),
        action=action,
        task=read_text(params, "task"),
        outcome=read_text(params, "outcome"),
    )


def _parse_time(text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
        return format_since(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise invalid_params(("since", "must be a time such as 2026-11-30T12:00:00Z")) from None
