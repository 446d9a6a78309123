"""A client of Argo CD's REST API, with limits on the time and the size of an answer.

Every Argo CD server publishes the API as OpenAPI at `/swagger.json`. Errors have the form of the
gRPC gateway: {"code", "error", "message"}.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from trunkline.errors import InvalidArgumentError, PeerError, PeerRefusedError, PeerUnavailableError

TIMEOUT_S: Final = 20.0
"""The time limit for a complete response."""
LIMIT_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_MESSAGE_CHARS: Final = 300
_PEER: Final = "Argo CD"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApplicationName:
    """The name of an application, and its namespace if that isn't Argo CD's own."""

    name: str
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> "ApplicationName":
        """Parse `NAME` or `NAMESPACE/NAME`.

        Raises:
            InvalidArgumentError: the text can't be a name.
        """
        namespace, _, name = text.strip().lower().rpartition("/")
        for part in filter(None, (name or " ", namespace)):
            if not _NAME.fullmatch(part):
                problem = f"{text[:80]!r} can't be the name of an application; list them first."
                raise InvalidArgumentError("application", problem)
        return cls(name, namespace)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ArgoCDClient:
    """A client of one Argo CD server.

    TLS certificates are verified by the machine's authorities, or by those in `ca_file`.
    """

    def __init__(self, url: str, *, token: str = "", ca_file: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._ca_file = ca_file
        self._client: httpx2.AsyncClient | None = None

    async def version(self) -> Json:
        """Return the server's version information; without a token, the version alone."""
        return await self._request("GET", "/api/version")

    async def applications(self, *, project: str = "") -> list[Json]:
        """Return all applications that the token may see."""
        params = {"projects": project} if project else {}
        items = (await self._request("GET", "/api/v1/applications", params=params)).get("items")
        return [item for item in items or [] if isinstance(item, dict)]

    async def application(self, name: ApplicationName) -> Json:
        """Return one application."""
        return await self._request("GET", _path(name), params=_namespace_param(name), about=name)

    async def managed_resources(self, name: ApplicationName) -> list[Json]:
        """Return the live and the desired state of an application's resources."""
        path = f"{_path(name)}/managed-resources"
        items = (await self._request("GET", path, params=_namespace_param(name), about=name)).get(
            "items"
        )
        return [item for item in items or [] if isinstance(item, dict)]

    async def sync(
        self, name: ApplicationName, *, revision: str, prune: bool, dry_run: bool
    ) -> Json:
        """Start a sync of an application with its source; return the application."""
        body: Json = {"prune": prune, "dryRun": dry_run, **_namespace_param(name)}
        if revision:
            body["revision"] = revision
        return await self._request("POST", f"{_path(name)}/sync", body=body, about=name)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        about: ApplicationName | None = None,
    ) -> Json:
        """Send a request and return the JSON object of the answer.

        Raises:
            InvalidArgumentError: there is no such application, or it can't be synced now.
            PeerRefusedError: the token is missing, wrong, or lacks the permission.
            PeerUnavailableError: there is no answer, or not a valid one.
        """
        if self._client is None:
            self._client = self._open()
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        request = self._client.build_request(
            method, f"{self._url}{path}", params=params, json=body, headers=headers
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._client.send(request, stream=True)
                try:
                    content = await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise _unavailable(f"there is no answer within {TIMEOUT_S:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unavailable(_connection_problem(error)) from error
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if response.status_code != 200:
            raise _build_error(
                response.status_code, answer, about=about, has_token=bool(self._token)
            )
        if not isinstance(answer, dict):
            raise _unavailable("what answers is something else; check [argocd] url")
        return answer

    def _open(self) -> httpx2.AsyncClient:
        context = ssl.create_default_context(cafile=self._ca_file)
        return httpx2.AsyncClient(verify=context, timeout=TIMEOUT_S, follow_redirects=False)


def _path(name: ApplicationName) -> str:
    return f"/api/v1/applications/{quote(name.name, safe='')}"


def _namespace_param(name: ApplicationName) -> dict[str, str]:
    return {"appNamespace": name.namespace} if name.namespace else {}


async def _read(response: httpx2.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > LIMIT_BYTES:
            raise _unavailable(f"its answer has more than {LIMIT_BYTES // 1024**2} MiB")
    return bytes(content)


def _connection_problem(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted; name its authority by [argocd] ca_file"
        cause = cause.__cause__ or cause.__context__
    return f"check [argocd] url ({type(error).__name__})"


def _unavailable(problem: str) -> PeerUnavailableError:
    return PeerUnavailableError(_PEER, problem)


def _build_error(
    status: int, answer: object, *, about: ApplicationName | None, has_token: bool
) -> InvalidArgumentError | PeerError:
    text = answer.get("message") or answer.get("error") if isinstance(answer, dict) else ""
    message = " ".join(str(text or "").split())[:_MESSAGE_CHARS]
    if status == 401:
        state = "is wrong or has expired" if has_token else "is missing"
        return PeerRefusedError(_PEER, f"the token {state}: set what [argocd] token_env names", "")
    if about is not None and status in {403, 404}:
        # Argo CD also answers 403 for names that don't exist, so that names can't be probed.
        problem = f"Argo CD has no application {about}, or the token may not do that with it."
        return InvalidArgumentError("application", problem)
    if status == 403:
        return PeerRefusedError(_PEER, "the token may not do that", "")
    if 400 <= status < 500 and about is not None:
        return InvalidArgumentError("application", f"Argo CD refused that for {about}: {message}.")
    return _unavailable(f"it answers with HTTP {status}; check [argocd] url, or try again later")
