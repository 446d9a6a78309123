"""The page's inspector: lets operators look at any A2A agent, by the bridge's own client."""

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from trunkline.a2a_client.interfaces import ProtocolBinding, parse_host
from trunkline.a2a_wire.errors import OVERLOADED, WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_3, V1_0
from trunkline.mesh.client import run_in_background
from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard, ErrorWording
from trunkline.observe.audit import Action, AuditLog
from trunkline_bridge.api.page.access import PageAccess
from trunkline_bridge.api.page.binding import (
    API_PATH,
    PageEvent,
    PageStreams,
    Paths,
    read_object,
    read_text,
)
from trunkline_bridge.api.page.inspection import Inspection, InspectRequest, Report
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import check_permission
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.handler import Response

_ACTIONS: Final[Mapping[str, str]] = {
    "card": "GetExtendedAgentCard",
    "send": "SendMessage",
    "stream": "SendStreamingMessage",
}
"""The method that a caller needs for each action."""
_MAX_RUNNING: Final = 4
_MAX_HEADERS: Final = 20
_MAX_TEXT_CHARS: Final = 100_000
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the client sets."""
_WORDING: Final = ErrorWording(
    option="[page] inspect_allow",
    example="https://example.com",
    otherwise="give them as `headers`",
)


class PageInspector:
    """Inspections of agents elsewhere, for operators.

    They reach public hosts over https, and the hosts in the allow list of the settings.
    """

    def __init__(
        self,
        allowed_hosts: tuple[str, ...],
        access: PageAccess,
        streams: PageStreams,
        audit: AuditLog | None = None,
    ) -> None:
        """Without an audit log, nothing is recorded.

        Raises:
            ConfigurationError: an allowed host is malformed.
        """
        self._guard = AddressGuard(allowed_hosts, wording=_WORDING)
        self._access = access
        self._streams = streams
        self._audit = audit
        self._running = 0

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {f"{API_PATH}/inspect": {"POST": self._inspect}}

    async def _inspect(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Response:
        """Stream the steps and the frames of an inspection, and `done` at the end."""
        self._access.require_operator(caller)
        request = parse_inspect_request(params)
        host, method = parse_host(request.url), _ACTIONS[request.action]
        check_permission(self._audit, caller, host, method)
        return self._streams.respond(caller, self._report(caller, request))

    async def _report(
        self, caller: Caller, request: InspectRequest
    ) -> AsyncGenerator[PageEvent, None]:
        """Inspect an agent, and yield what happens."""
        if self._running >= _MAX_RUNNING:
            text = f"{_MAX_RUNNING} inspections are running; try again when one has ended"
            raise WireError(OVERLOADED, text, retry_after_s="5")
        report = Report()
        inspection = Inspection(request, self._guard, report)
        host = parse_host(request.url)

        async def run() -> None:
            with recorded(self._audit, caller, Action.AGENT_INSPECT, host=host):
                await inspection.run()

        self._running += 1
        try:
            async with run_in_background(run()):
                while (event := await report.events.get()) is not None:
                    yield event
        finally:
            self._running -= 1


def parse_inspect_request(params: Json) -> InspectRequest:
    """Return the inspection that parameters ask for. WireError: they are invalid."""
    action, binding = read_text(params, "action", "card"), read_text(params, "binding")
    version, text = read_text(params, "version"), read_text(params, "text")
    if action not in _ACTIONS:
        raise invalid_params(("action", f"must be one of {', '.join(_ACTIONS)}"))
    if binding and binding not in [*ProtocolBinding]:
        raise invalid_params(("binding", f"must be one of {', '.join(ProtocolBinding)}"))
    if version not in ("", V1_0, V0_3):
        raise invalid_params(("version", f"must be {V1_0} or {V0_3}"))
    if action != "card" and not text:
        raise invalid_params(("text", "is required to send a message"))
    if len(text) > _MAX_TEXT_CHARS:
        raise invalid_params(("text", f"must have at most {_MAX_TEXT_CHARS} characters"))
    url = read_text(params, "url").strip()
    if not url:
        raise invalid_params(("url", "is required: the URL of an agent, or of its card"))
    return InspectRequest(url, action, text, binding, version, _parse_headers(params))


def _parse_headers(params: Json) -> Mapping[str, str]:
    headers = read_object(params, "headers") or {}
    if len(headers) > _MAX_HEADERS:
        raise invalid_params(("headers", f"must be at most {_MAX_HEADERS}"))
    result: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise invalid_params((f"headers.{name[:100]}", "is no header that can be set"))
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise invalid_params((f"headers.{name}", "must be a text of printable ASCII"))
        result[name.lower()] = value
    return result
