"""An OpenID provider for tests: discovery, authorization code with PKCE, tokens, and keys."""

import base64
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from harness.remote.token_issuer import AUDIENCE, SigningKey, key_set
from harness.remote.web_server import serving

CLIENT = "page"


@dataclass(slots=True)
class OidcIssuer:
    """The provider's script and its record. Its only user confirms each sign-in at once."""

    key: SigningKey = field(default_factory=lambda: SigningKey("k1"))
    url: str = ""
    user: str = "ann"
    token_lives_s: int = 3600
    refusal: str = ""
    """An error, such as `access_denied`, that it answers with instead of a code."""
    redirects: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def discover(self, _: Request) -> Response:
        """Answer with the provider's metadata."""
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "code_challenge_methods_supported": ["S256"],
            }
        )

    def authorize(self, request: Request) -> Response:
        """Send the user back with a code."""
        query = dict(request.query_params)
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        answer = {"state": query["state"]}
        if self.refusal:
            answer["error"] = self.refusal
        else:
            answer["code"] = secrets.token_urlsafe()
            self._codes[answer["code"]] = query
        self.redirects.append(f"{query['redirect_uri']}?{urlencode(answer)}")
        return RedirectResponse(self.redirects[-1], status_code=303)

    async def token(self, request: Request) -> Response:
        """Exchange a code, once, for those who know what its challenge was made of."""
        form = {name: str(value) for name, value in (await request.form()).items()}
        query = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = query is not None and (
            (challenge, form["redirect_uri"], form["client_id"], form["grant_type"])
            == (query["code_challenge"], query["redirect_uri"], CLIENT, "authorization_code")
        )
        if not is_right:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        return JSONResponse(
            {
                "access_token": self.make_token(),
                "token_type": "Bearer",
                "expires_in": self.token_lives_s,
            }
        )

    def make_token(self) -> str:
        """Return an access token of the user."""
        now = int(datetime.now(UTC).timestamp())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": self.user,
            "iat": now,
            "exp": now + self.token_lives_s,
        }
        return self.key.token(claims)

    def keys(self, _: Request) -> Response:
        """Answer with the public keys."""
        return Response(key_set(self.key), media_type="application/json")


@contextmanager
def serve_oidc_issuer() -> Iterator[OidcIssuer]:
    """Serve a provider for the length of a block."""
    issuer = OidcIssuer()
    routes = [
        Route("/.well-known/openid-configuration", issuer.discover),
        Route("/authorize", issuer.authorize),
        Route("/token", issuer.token, methods=["POST"]),
        Route("/keys", issuer.keys),
    ]
    # A single-page application calls it from another origin.
    cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"])
    with serving(Starlette(routes=routes, middleware=[cors]), "oidc-issuer") as port:
        issuer.url = f"http://127.0.0.1:{port}"
        yield issuer
