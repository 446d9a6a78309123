"""Callers of WebSockets: their credentials, and the pages that may connect.

Browsers can't set headers, so the credential may be a subprotocol. It is never in the URL, which
servers and proxies log.
"""

import base64
import binascii
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.types import Scope

from trunkline.a2a_wire.errors import FORBIDDEN, UNAUTHENTICATED, WireError
from trunkline.a2a_wire.protocol import V1_0
from trunkline_bridge.callers.caller import Caller, CallerFactory
from trunkline_bridge.http.messages import RequestHeaders

CREDENTIAL_PREFIX: Final = "trunkline.credential."
"""Before a credential, as base64url without padding, in a subprotocol."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


async def authenticate_socket(callers: CallerFactory, scope: Scope) -> Caller:
    """Return the caller of a connection.

    Raises:
        WireError: the credential is refused, or a page of another site connects without one.
    """
    credential = _find_credential(scope.get("subprotocols", ()))
    headers = list(scope["headers"])
    if credential:
        headers = [header for header in headers if header[0] != b"authorization"]
        headers.append((b"authorization", f"Bearer {credential}".encode("latin-1")))
    scheme = "https" if scope["scheme"] == "wss" else "http"
    parameters = RequestHeaders({**scope, "scheme": scheme, "headers": headers})
    if not credential:
        _check_origin(parameters)
    identity = await callers.authenticate(parameters)
    return callers.build_caller(identity, parameters, agent="", version=V1_0)


def _find_credential(subprotocols: Any) -> str:  # noqa: ANN401  a list of texts
    """Return the credential among subprotocols, or an empty text if there is none.

    Raises:
        WireError: the credential is not base64url.
    """
    for name in subprotocols:
        if name.startswith(CREDENTIAL_PREFIX):
            encoded = name.removeprefix(CREDENTIAL_PREFIX)
            padding = "=" * (-len(encoded) % 4)
            try:
                text = base64.b64decode(encoded + padding, b"-_", validate=True).decode("ascii")
            except (binascii.Error, UnicodeDecodeError):
                problem = f"the credential after {CREDENTIAL_PREFIX!r} is no base64url"
                raise WireError(UNAUTHENTICATED, problem) from None
            if not text.isprintable():
                raise WireError(UNAUTHENTICATED, "the credential has control characters")
            return text
    return ""


def _check_origin(parameters: RequestHeaders) -> None:
    """Check that the connection is not from a page of another site.

    Browsers connect WebSockets to any site, with its client certificate. A page that has a
    credential in a subprotocol knows it, so it may be of any site.

    Raises:
        WireError: the page is of another site.
    """
    origin = parameters.get(b"origin")
    if origin is None:
        return
    parts = urlsplit(origin)
    host = parameters.get(b"host") or ""
    ports = _DEFAULT_PORTS.get(parts.scheme, 0)
    if parts.netloc and parts.netloc.lower() in (host.lower(), f"{host.lower()}:{ports}"):
        return
    text = (
        f"pages of other sites need a credential, as the subprotocol {CREDENTIAL_PREFIX}BASE64URL"
    )
    raise WireError(FORBIDDEN, text)
