"""The features that the client of a request declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

RequestContext: TypeAlias = ServerRequestContext[Any, Any]

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """The features of a client that matter here."""

    is_modern: bool
    """It speaks MCP 2026-07-28 or later: it repeats a request with the answers to its questions."""
    has_tasks: bool
    """It knows the Tasks extension."""
    has_forms: bool
    """It can ask its user for values."""
    has_urls: bool
    """It can ask its user to visit a URL."""

    @classmethod
    def of(cls, context: RequestContext) -> Self:
        """Return the features of the client of a request."""
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        capabilities = context.session.client_capabilities or types.ClientCapabilities()
        elicitation = capabilities.elicitation
        can_ask = elicitation is not None and (is_modern or context.session.can_send_request)
        has_urls = elicitation is not None and elicitation.url is not None
        return cls(
            is_modern=is_modern,
            has_tasks=is_modern and TASKS_EXTENSION in (capabilities.extensions or {}),
            # No mode means forms.
            has_forms=can_ask
            and elicitation is not None
            and (elicitation.form is not None or not has_urls),
            has_urls=can_ask and has_urls and is_modern,
        )

    def can_ask(self, requests: Mapping[str, types.ElicitRequest]) -> bool:
        """Return whether the client can ask its user all of some questions."""
        return all(
            self.has_urls
            if isinstance(request.params, types.ElicitRequestURLParams)
            else self.has_forms
            for request in requests.values()
        )

    def require_tasks(self) -> None:
        """Check that the client knows the Tasks extension; MCPError: it does not."""
        if self.has_tasks:
            return
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"Missing required client capability: the extension {TASKS_EXTENSION}",
            {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
        )
