"""An authorization server for tests: all grants of clients, discovery and registration."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from harness.remote.web_server import serving

_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(slots=True)
class OAuthServer:
    """The server's script and its record."""

    url: str = ""
    client: tuple[str, str] = ("me", "secret-of-me")
    """The id and the secret that client credentials need."""
    pending: int = 1
    """Polls of a device code before the user has confirmed it."""
    expires_in_s: int = 3600
    lifetimes: list[int] = field(default_factory=list)
    """Times in seconds for which the next tokens are valid."""
    forms: list[dict[str, str]] = field(default_factory=list)
    issued: int = 0
    issuer: str = ""
    """The issuer that it claims to be; empty: its URL."""
    answer: dict[str, str] = field(default_factory=dict)
    """Parameters that replace those of redirects."""
    status: int = 0
    """A status that replaces all answers of the token endpoint."""
    registrations: list[dict[str, Any]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The authorization requests by the code that they got."""
    granted: dict[str, str] = field(default_factory=dict)
    """The scopes of each valid access token."""
    refreshable: dict[str, str] = field(default_factory=dict)
    """The scopes of each refresh token."""
    is_single_use: bool = False
    """A refresh token may be used once."""

    def scheme(self) -> dict[str, Any]:
        """The security scheme of a card that names this server."""
        flows = {
            "deviceCode": {
                "deviceAuthorizationUrl": f"{self.url}/device",
                "tokenUrl": f"{self.url}/token",
                "scopes": {"tasks": "Use tasks."},
            }
        }
        return {"oauth2SecurityScheme": {"flows": flows}}

    def client_scheme(self) -> dict[str, Any]:
        """The scheme with client credentials alone."""
        flow = {"tokenUrl": f"{self.url}/token", "scopes": {"tasks": "Use tasks."}}
        return {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}

    def openid_scheme(self) -> dict[str, Any]:
        """The scheme of OpenID Connect."""
        url = f"{self.url}/.well-known/openid-configuration"
        return {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}

    def metadata(self) -> dict[str, Any]:
        """The provider's metadata (RFC 8414)."""
        return {
            "issuer": self.issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            "token_endpoint": f"{self.url}/token",
            "device_authorization_endpoint": f"{self.url}/device",
            "grant_types_supported": ["client_credentials", _DEVICE_GRANT],
        }

    async def discover(self, _: Request) -> JSONResponse:
        """Answer with the provider's metadata."""
        return JSONResponse(self.metadata())

    async def start_device(self, request: Request) -> JSONResponse:
        """Answer with a device code."""
        self.forms.append({name: str(value) for name, value in (await request.form()).items()})
        return JSONResponse(
            {
                "device_code": "device-secret-1",
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.url}/activate",
                "expires_in": 60,
                "interval": 0,
            }
        )

    async def register(self, request: Request) -> JSONResponse:
        """Register a public client (RFC 7591)."""
        client = await request.json()
        client |= {"client_id": f"client-{len(self.registrations) + 1}"}
        client |= {"token_endpoint_auth_method": "none"}
        self.registrations.append(client)
        return JSONResponse(client, status_code=201)

    async def authorize(self, request: Request) -> Response:
        """Give a code to a client, as if a person had agreed (RFC 6749, RFC 7636, RFC 8707)."""
        asked = dict(request.query_params)
        known = {each["client_id"]: each["redirect_uris"] for each in self.registrations}
        own = known.get(asked["client_id"], [asked["redirect_uri"]])
        if asked["redirect_uri"] not in own or asked["code_challenge_method"] != "S256":
            return JSONResponse({"error": "invalid_request"}, status_code=400)
        code = f"code-secret-{len(self.codes) + 1}"
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.url, **self.answer}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", status_code=302)

    def _check_code(self, form: dict[str, str]) -> bool:
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return (
            asked is not None
            and asked["code_challenge"] == challenge
            and all(asked[name] == form[name] for name in ("client_id", "redirect_uri", "resource"))
        )

    def _find_error(self, form: dict[str, str]) -> str:
        match form.get("grant_type"):
            case "client_credentials":
                is_signed = form.get("client_assertion", "").count(".") == 2
                is_known = (form.get("client_id"), form.get("client_secret")) == self.client
                return "" if is_known or is_signed else "invalid_client"
            case "refresh_token":
                token = form.get("refresh_token", "")
                known = self.refreshable or {token: ""}
                is_known = token.startswith("refresh-") and token in known
                if self.is_single_use:
                    self.refreshable.pop(token, None)
                return "" if is_known else "invalid_grant"
            case "authorization_code":
                return "" if self._check_code(form) else "invalid_grant"
            case _:
                self.pending -= 1
                return "authorization_pending" if self.pending >= 0 else ""

    async def token(self, request: Request) -> JSONResponse:
        """Answer to a grant."""
        form = {name: str(value) for name, value in (await request.form()).items()}
        kind, _, basic = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            client = base64.b64decode(basic).decode().split(":")
            form |= dict(zip(("client_id", "client_secret"), map(unquote, client), strict=True))
        self.forms.append(form)
        if self.status:
            return JSONResponse({"error": "server_error"}, status_code=self.status)
        asked = self.codes.get(form.get("code", ""), form)
        scope = self.refreshable.get(form.get("refresh_token", ""), asked.get("scope", ""))
        if error := self._find_error(form):
            return JSONResponse({"error": error}, status_code=400)
        self.issued += 1
        self.granted[f"access-{self.issued}"] = scope
        self.refreshable[f"refresh-{self.issued}"] = scope
        return JSONResponse(
            {
                "access_token": f"access-{self.issued}",
                "refresh_token": f"refresh-{self.issued}",
                "token_type": "Bearer",
                "expires_in": self.lifetimes.pop(0) if self.lifetimes else self.expires_in_s,
            }
        )


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """Serve an authorization server for the length of a block."""
    server = OAuthServer()
    app = Starlette(
        routes=[
            Route("/device", server.start_device, methods=["POST"]),
            Route("/token", server.token, methods=["POST"]),
            Route("/authorize", server.authorize),
            Route("/register", server.register, methods=["POST"]),
            Route("/.well-known/openid-configuration", server.discover),
            Route("/.well-known/oauth-authorization-server", server.discover),
        ]
    )
    with serving(app, "oauth server") as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
