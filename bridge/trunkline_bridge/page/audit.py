"""The page's view of the audit log: pages of records by filters, the newest first."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from trunkline.audit import Action, AuditLog, AuditQuery, format_since, read_audit_page
from trunkline.errors import PeerUnavailableError, UnsupportedOperationError
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.page.access import PageAccess
from trunkline_bridge.page.binding import API_PATH, Paths, read_page_size, read_text
from trunkline_bridge.versions.json_values import Json


class PageAudit:
    """The records in this process's audit log, for operators.

    Processes with one data directory share a log. The records of others are not here.
    """

    def __init__(self, audit: AuditLog | None, access: PageAccess) -> None:
        self._audit = audit
        self._access = access

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {f"{API_PATH}/audit": {"GET": self._list_records}}

    async def _list_records(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Json:
        self._access.require_operator(caller)
        audit = self._audit
        if audit is None:
            raise UnsupportedOperationError("the audit log", "it is off; set audit = true")
        query, size = _read_query(params), read_page_size(params)
        token = read_text(params, "pageToken")
        try:
            page = await asyncio.to_thread(
                read_audit_page, audit.path, query, page_size=size, page_token=token
            )
        except OSError as error:
            problem = f"can't be read: {error.strerror or error}"
            raise PeerUnavailableError("the audit log", problem) from error
        return {
            "process": audit.process,
            "records": [dict(record) for record in page.records],
            "nextPageToken": page.next_page_token,
        }


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
