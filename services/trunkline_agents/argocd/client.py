"""Argo CD's REST API: requests within a deadline and a size, and what its refusals mean.

The API is published as OpenAPI by every server at `/swagger.json`; errors are those of the gRPC
gateway: {"code", "error", "message"}.
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
"""For a whole answer."""
LIMIT_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_SAID_CHARS: Final = 300
_PEER: Final = "Argo CD"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApplicationName:
    """An application, and the namespace of its object if that isn't Argo CD's own."""

    name: str
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> "ApplicationName":
        """Read `NAME` or `NAMESPACE/NAME`.

        Raises:
            InvalidArgumentError: nothing can be named so.
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
    """Asks one Argo CD server. TLS is verified, by the machine's authorities or those given."""

    def __init__(self, url: str, *, token: str = "", ca_file: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._ca_file = ca_file
        self._client: httpx2.AsyncClient | None = None

    async def version(self) -> Json:
        """Return what the server says of itself; without a token, its version alone."""
        return await self._ask("GET", "/api/version")

    async def applications(self, *, project: str = "") -> list[Json]:
        """Return all applications that the token may see."""
        params = {"projects": project} if project else {}
        found = (await self._ask("GET", "/api/v1/applications", params=params)).get("items")
        return [one for one in found or [] if isinstance(one, dict)]

    async def application(self, name: ApplicationName) -> Json:
        """Return one application."""
        return await self._ask("GET", _path(name), params=_place(name), about=name)

    async def managed_resources(self, name: ApplicationName) -> list[Json]:
        """Return what an application consists of, as it is and as it is wanted."""
        path = f"{_path(name)}/managed-resources"
        found = (await self._ask("GET", path, params=_place(name), about=name)).get("items")
        return [one for one in found or [] if isinstance(one, dict)]

    async def sync(
        self, name: ApplicationName, *, revision: str, prune: bool, dry_run: bool
    ) -> Json:
        """Begin to bring an application to what its source says; return the application."""
        body: Json = {"prune": prune, "dryRun": dry_run, **_place(name)}
        if revision:
            body["revision"] = revision
        return await self._ask("POST", f"{_path(name)}/sync", body=body, about=name)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        about: ApplicationName | None = None,
    ) -> Json:
        """Return the answer's object.

        Raises:
            InvalidArgumentError: there is no such application, or it can't be done now.
            PeerRefusedError: the token is missing, wrong, or may not do that.
            PeerUnavailableError: there is no answer, or none that can be read.
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
            raise _unavailable(_why_not(error)) from error
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if response.status_code != 200:
            raise _refusal(response.status_code, answer, about=about, has_token=bool(self._token))
        if not isinstance(answer, dict):
            raise _unavailable("what answers is something else; check [argocd] url")
        return answer

    def _open(self) -> httpx2.AsyncClient:
        context = ssl.create_default_context(cafile=self._ca_file)
        return httpx2.AsyncClient(verify=context, timeout=TIMEOUT_S, follow_redirects=False)


def _path(name: ApplicationName) -> str:
    return f"/api/v1/applications/{quote(name.name, safe='')}"


def _place(name: ApplicationName) -> dict[str, str]:
    return {"appNamespace": name.namespace} if name.namespace else {}


async def _read(response: httpx2.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > LIMIT_BYTES:
            raise _unavailable(f"its answer has more than {LIMIT_BYTES // 1024**2} MiB")
    return bytes(content)


def _why_not(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted; name its authority by [argocd] ca_file"
        cause = cause.__cause__ or cause.__context__
    return f"check [argocd] url ({type(error).__name__})"


def _unavailable(problem: str) -> PeerUnavailableError:
    return PeerUnavailableError(_PEER, problem)


def _refusal(
    status: int, answer: object, *, about: ApplicationName | None, has_token: bool
) -> InvalidArgumentError | PeerError:
    said = answer.get("message") or answer.get("error") if isinstance(answer, dict) else ""
    why = " ".join(str(said or "").split())[:_SAID_CHARS]
    if status == 401:
        what = "is wrong or has expired" if has_token else "is missing"
        return PeerRefusedError(_PEER, f"the token {what}: set what [argocd] token_env names", "")
    if about is not None and status in {403, 404}:
        # It says 403, too, of what there isn't, so that nobody can find out what there is.
        problem = f"Argo CD has no application {about}, or the token may not do that with it."
        return InvalidArgumentError("application", problem)
    if status == 403:
        return PeerRefusedError(_PEER, "the token may not do that", "")
    if 400 <= status < 500 and about is not None:
        return InvalidArgumentError("application", f"Argo CD refused that for {about}: {why}.")
    return _unavailable(f"it answers with HTTP {status}; check [argocd] url, or try again later")
