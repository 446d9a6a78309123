"""The page's sign-in of a person to a tool server by OAuth.

The tool adapter has the OAuth client and the tokens, and the browser comes back to the page itself,
whose script checks that it began the sign-in (RFC 6749, section 10.12).
"""

from collections.abc import Mapping
from typing import Final

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.mesh.client import Directory
from trunkline.observe.audit import Action, AuditLog
from trunkline_bridge.api.page.access import PageAccess
from trunkline_bridge.api.page.binding import API_PATH, Paths, read_object, read_text
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.caller import Caller

_SERVER: Final = f"{API_PATH}/tool-servers/{{server:segment}}"
_MAX_ANSWER_CHARS: Final = 16 * 1024


class PageToolSignIns:
    """Begins and ends sign-ins to tool servers, for operators."""

    def __init__(self, directory: Directory, access: PageAccess, audit: AuditLog | None) -> None:
        """Without an audit log, nothing is recorded."""
        self._directory = directory
        self._access = access
        self._audit = audit

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {
            f"{_SERVER}:startSignIn": {"POST": self._start},
            f"{_SERVER}:completeSignIn": {"POST": self._complete},
        }

    async def _start(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Return the URL of the authorization server, where the person signs in."""
        self._access.require_operator(caller)
        url = await self._directory.tool_client().start_sign_in(
            path["server"], read_text(params, "redirectUri")
        )
        return {"url": url}

    async def _complete(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Take the parameters of the authorization server's redirect. The server then starts."""
        self._access.require_operator(caller)
        answer = read_object(params, "answer") or {}
        texts = {name: text for name, text in answer.items() if isinstance(text, str)}
        if len(texts) != len(answer) or sum(map(len, texts.values())) > _MAX_ANSWER_CHARS:
            raise invalid_params(("answer", "must be the parameters of the redirect, as texts"))
        with recorded(self._audit, caller, Action.TOOL_SIGN_IN, server=path["server"]):
            await self._directory.tool_client().complete_sign_in(path["server"], texts)
        return {}
