"""The page's session: the ways to sign in, and the rights of the caller."""

from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trunkline.a2a_wire.json_values import Json
from trunkline.core.settings import HostPort, Settings
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import Directory
from trunkline_bridge.api.messages.operations import ALL
from trunkline_bridge.api.page.access import PageAccess, list_methods, may_see, may_use
from trunkline_bridge.api.page.binding import API_PATH, HEADERS, Paths
from trunkline_bridge.callers.caller import Caller, SecurityRequirements

_MESSAGES = "trunkline.v1.MessagingService"


class PageSession:
    """Answers `sign-in`, which needs no credentials, and `session`."""

    def __init__(
        self,
        directory: Directory,
        settings: Settings,
        security: SecurityRequirements,
        access: PageAccess,
        *,
        has_workflows: bool,
    ) -> None:
        """`has_workflows` is true if the bridge has the published workflows."""
        self._directory = directory
        self._settings = settings
        self._security = security
        self._access = access
        self._has_workflows = has_workflows
        self._version = version("trunkline")
        page = settings.page
        self._oidc: Json | None = None
        if page.oidc_issuer:
            self._oidc = {"issuer": page.oidc_issuer, "clientId": page.oidc_client_id}

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {f"{API_PATH}/session": {"GET": self._get}}

    async def sign_in(self, _request: Request) -> Response:
        """Respond with the ways to sign in."""
        settings, security = self._settings, self._security
        body = {
            "anonymous": security.is_anonymous_only or settings.anonymous,
            # The request has none of the page's credentials, but its connection may prove a caller.
            "certificate": settings.tls.client_roots is not None,
            "apiKey": settings.api_keys_file is not None,
            "token": bool(settings.jwt_keys),
            "oidc": self._oidc,
        }
        return JSONResponse(body, headers={"cache-control": "no-store", **HEADERS})

    async def _get(self, caller: Caller, _params: Json, _path: Mapping[str, str]) -> Json:
        is_operator = self._access.is_operator(caller)
        return {
            "account": caller.account,
            "user": caller.name,
            "isAuthenticated": caller.is_authenticated,
            "isOperator": is_operator,
            "methods": list_methods(caller.permissions),
            "defaultAgent": self._choose_agent(caller),
            "version": self._version,
            "features": {
                "messages": any(_MESSAGES in host.services for host in self._directory.hosts),
                "allMessages": may_use(caller, ALL, "ListEnvelopes"),
                "workflows": self._has_workflows,
                "inspector": is_operator,
            },
            "oidc": self._oidc,
        }

    def _choose_agent(self, caller: Caller) -> str:
        """Return the agent that a chat begins with: the default one if the credential is for it.

        Otherwise it is the first agent that the credential permits, or an empty text.
        """
        agents = (self._settings.default_agent, *self._directory.list_agents())
        return next((agent for agent in agents if may_see(caller, agent)), "")


def find_issuer_origin(issuer: str, client_id: str) -> str:
    """Return the origin of the issuer, which the page's script may call; empty without an issuer.

    Raises:
        ConfigurationError: the issuer is not a URL with TLS, or the client's id is missing.
    """
    if not issuer:
        return ""
    url = urlsplit(issuer)
    is_local = url.scheme == "http" and HostPort(url.hostname or "", 0).is_loopback
    if not url.hostname or not (url.scheme == "https" or is_local):
        raise ConfigurationError("[page] oidc_issuer", "must be an https URL")
    if not client_id:
        problem = "is required with oidc_issuer; register the page there as a public client"
        raise ConfigurationError("[page] oidc_client_id", problem)
    return f"{url.scheme}://{url.netloc}"
