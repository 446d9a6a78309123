"""OAuth 2.1 and OpenID Connect: device code (RFC 8628), client credentials, refresh."""

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from trunkline.a2a_client.http import HttpClient
from trunkline.a2a_wire.json_values import Json
from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode, usage
from trunkline.cli.a2a_cli.options import StandardOptions
from trunkline.cli.a2a_cli.security_schemes import DeclaredScheme
from trunkline.cli.a2a_cli.token_store import StoredToken
from trunkline.core.network import is_this_machine
from trunkline.errors import PeerRefusedError

_TIMEOUT_S: Final = 30.0
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_DEFAULT_INTERVAL_S: Final = 5.0
_SHORTEST_INTERVAL_S: Final = 0.2
_SLOW_DOWN_S: Final = 5.0


class LoginFlow(StrEnum):
    """The flows of a login."""

    DEVICE_CODE = "device-code"
    CLIENT_CREDENTIALS = "client-credentials"


class OAuthEndpoints(NamedTuple):
    """The endpoints of an authorization server for one scheme."""

    token_url: str
    device_url: str = ""
    """Without it, the server has no device codes."""
    has_client_credentials: bool = True
    scopes: str = ""
    """Separated by spaces."""


@dataclass(slots=True)
class OAuthClient:
    """Obtains tokens from an authorization server."""

    http: HttpClient
    """It sends no credentials of the agent."""
    console: Console
    options: StandardOptions

    async def find_endpoints(self, scheme: DeclaredScheme, scopes: str) -> OAuthEndpoints:
        """Return the endpoints of a scheme. CommandError: it has no safe endpoints."""
        if scheme.kind == "openid":
            found = await self._discover(str(scheme.content.get("openIdConnectUrl", "")), scopes)
        else:
            found = await self._declared(scheme.content, scopes)
        for url in (found.token_url, found.device_url):
            if url and not (url.startswith("https://") or is_this_machine(url)):
                raise CommandError(
                    LocalCode.AUTH_FAILED, f"{url} is not HTTPS, so it gets no login"
                )
        if not urlsplit(found.token_url).hostname:
            raise CommandError(
                LocalCode.AUTH_FAILED, f"scheme {scheme.name!r} of the card has no token endpoint"
            )
        return found

    async def log_in(
        self, scheme: DeclaredScheme, flow: LoginFlow | None, scopes: str
    ) -> StoredToken:
        """Return a new token. Without a `flow`, the scheme and the flags choose one.

        Raises:
            CommandError: the server refuses it, or the flow needs what is not given.
        """
        endpoints = await self.find_endpoints(scheme, scopes)
        client_id = self.options.client_id
        if not client_id:
            raise usage("no OAuth client is given", "set A2ACLI_CLIENT_ID or --client-id")
        has_secret = bool(self.options.client_secret)
        if not flow:
            flow = LoginFlow.DEVICE_CODE if endpoints.device_url else LoginFlow.CLIENT_CREDENTIALS
            if has_secret and endpoints.has_client_credentials:
                flow = LoginFlow.CLIENT_CREDENTIALS
        form = {"client_id": client_id, "scope": endpoints.scopes}
        if flow is LoginFlow.DEVICE_CODE:
            if not endpoints.device_url:
                raise CommandError(
                    LocalCode.AUTH_FAILED, "the agent offers no login by device code"
                )
            answer = await self._poll_device(endpoints, form)
        else:
            if not has_secret:
                raise usage("client credentials need a secret", "set A2ACLI_CLIENT_SECRET")
            answer = await self._grant(
                endpoints.token_url, {"grant_type": "client_credentials", **form}
            )
        return self._token(scheme.name, endpoints.token_url, client_id, answer)

    async def renew(self, token: StoredToken) -> StoredToken | None:
        """Return a fresh token for an expired token, or None if that can't be renewed."""
        form = {"client_id": token.client_id}
        if token.refresh_token:
            form |= {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        elif self.options.client_secret:
            form |= {"grant_type": "client_credentials"}
        else:
            return None
        try:
            answer = await self._grant(token.token_url, form)
        except CommandError:
            return None
        renewed = {"refresh_token": token.refresh_token, **answer}
        return self._token(token.scheme, token.token_url, token.client_id, renewed)

    async def _declared(self, content: Json, scopes: str) -> OAuthEndpoints:
        flows = content.get("flows")
        flows = flows if isinstance(flows, dict) else {}
        device, client = flows.get("deviceCode") or {}, flows.get("clientCredentials") or {}
        flow = device or client
        if not flow and content.get("oauth2MetadataUrl"):
            return await self._discover(str(content["oauth2MetadataUrl"]), scopes)
        declared = flow.get("scopes")
        all_scopes = " ".join(declared) if isinstance(declared, dict) else ""
        return OAuthEndpoints(
            str(flow.get("tokenUrl", "")),
            str(device.get("deviceAuthorizationUrl", "")),
            bool(client),
            scopes or all_scopes,
        )

    async def _discover(self, url: str, scopes: str) -> OAuthEndpoints:
        """Read the metadata of OpenID Connect Discovery or RFC 8414."""
        response = await self.http.request(
            "GET", url, headers={"accept": "application/json"}, timeout_s=_TIMEOUT_S
        )
        metadata = _json_object(response.body)
        return OAuthEndpoints(
            str(metadata.get("token_endpoint", "")),
            str(metadata.get("device_authorization_endpoint", "")),
            "client_credentials" in metadata.get("grant_types_supported", ["client_credentials"]),
            scopes or "openid",
        )

    async def _poll_device(self, endpoints: OAuthEndpoints, form: dict[str, str]) -> Json:
        device = await self._post(endpoints.device_url, form)
        if "device_code" not in device:
            raise _refusal(device)
        where = device.get("verification_uri_complete") or device.get("verification_uri", "")
        self.console.warn(f"Open {where} and enter the code {device.get('user_code', '')}")
        interval_s = float(device.get("interval", _DEFAULT_INTERVAL_S))
        deadline = time.monotonic() + float(device.get("expires_in", 600))
        poll = {
            "grant_type": _DEVICE_GRANT,
            "device_code": str(device["device_code"]),
            "client_id": form["client_id"],
        }
        while time.monotonic() < deadline:
            await asyncio.sleep(max(interval_s, _SHORTEST_INTERVAL_S))
            answer = await self._post(endpoints.token_url, poll)
            match answer.get("error"):
                case None:
                    return answer
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval_s += _SLOW_DOWN_S
                case _:
                    raise _refusal(answer)
        raise CommandError(LocalCode.AUTH_FAILED, "the code has expired", "log in again")

    async def _grant(self, url: str, form: dict[str, str]) -> Json:
        answer = await self._post(url, form)
        if "error" in answer or "access_token" not in answer:
            raise _refusal(answer)
        return answer

    async def _post(self, url: str, form: dict[str, str]) -> Json:
        if secret := self.options.client_secret:
            form = {**form, "client_secret": secret}
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        try:
            response = await self.http.request(
                "POST", url, body=body, headers=headers, timeout_s=_TIMEOUT_S
            )
        except PeerRefusedError as error:
            raise CommandError(LocalCode.AUTH_FAILED, f"{url} refuses the login") from error
        answer = _json_object(response.body)
        names = ("access_token", "refresh_token", "device_code", "id_token")
        self.console.add_secrets(str(answer[name]) for name in names if name in answer)
        return answer

    def _token(self, scheme: str, token_url: str, client_id: str, answer: Json) -> StoredToken:
        expires_in = answer.get("expires_in")
        expires_at = datetime.now(UTC).timestamp() + float(expires_in) if expires_in else 0.0
        return StoredToken(
            scheme,
            token_url,
            client_id,
            str(answer["access_token"]),
            str(answer.get("refresh_token") or ""),
            expires_at,
        )


def _json_object(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CommandError(LocalCode.AUTH_FAILED, "the authorization server did not answer in JSON")
    return value


def _refusal(answer: Json) -> CommandError:
    text = answer.get("error_description") or answer.get("error") or "it sent no token"
    code = answer.get("error")
    wire_code = code if isinstance(code, str) else None
    return CommandError(
        LocalCode.AUTH_FAILED,
        f"the authorization server refuses the login: {text}",
        None,
        wire_code,
    )
