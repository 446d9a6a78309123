"""An authorization server for tests: device codes, client credentials, refresh, discovery."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
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
    forms: list[dict[str, str]] = field(default_factory=list)
    issued: int = 0

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

    async def discover(self, _: Request) -> JSONResponse:
        """Answer with the provider's metadata."""
        return JSONResponse(
            {
                "issuer": self.url,
                "token_endpoint": f"{self.url}/token",
                "device_authorization_endpoint": f"{self.url}/device",
                "grant_types_supported": ["client_credentials", _DEVICE_GRANT],
            }
        )

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

    async def token(self, request: Request) -> JSONResponse:
        """Answer to a grant."""
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.forms.append(form)
        match form.get("grant_type"):
            case "client_credentials":
                if (form.get("client_id"), form.get("client_secret")) != self.client:
                    return JSONResponse({"error": "invalid_client"}, status_code=400)
            case "refresh_token":
                if not form.get("refresh_token", "").startswith("refresh-"):
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
            case _:
                if self.pending > 0:
                    self.pending -= 1
                    return JSONResponse({"error": "authorization_pending"}, status_code=400)
        self.issued += 1
        return JSONResponse(
            {
                "access_token": f"access-{self.issued}",
                "refresh_token": f"refresh-{self.issued}",
                "token_type": "Bearer",
                "expires_in": self.expires_in_s,
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
            Route("/.well-known/openid-configuration", server.discover),
        ]
    )
    with serving(app, "oauth server") as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
