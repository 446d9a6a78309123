"""Resolves an agent reference to its card: host, URL, file, or an entry of a catalog."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from google.protobuf.json_format import ParseError

from trunkline.a2a_client.agent_card import parse_members, read_card_json, v0_3_interfaces
from trunkline.a2a_client.card_check import find_card_problems
from trunkline.a2a_client.errors import RpcError
from trunkline.a2a_client.http import HttpClient, HttpResponse
from trunkline.a2a_client.interfaces import ClientVersion
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import CARD_PATH, KEYS_PATH, V1_0, VERSION_HEADER
from trunkline.cli.a2a_cli.card_cache import CardCache
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode, usage
from trunkline.cli.a2a_cli.security_schemes import DeclaredScheme, parse_schemes
from trunkline.core.json_values import parse_dict
from trunkline.core.network import is_this_machine
from trunkline.errors import PeerError, TrunklineError
from trunkline.observe import telemetry
from trunkline.v1 import agent_card_pb2

_TIMEOUT_S: Final = 30.0
_NOT_MODIFIED: Final = 304
_MAX_BYTES: Final = 1024 * 1024
_PACKAGE: Final = agent_card_pb2.DESCRIPTOR.package
_CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_EXTENDED: Final = "extendedAgentCard"
_V0_3_EXTENDED: Final = "supportsAuthenticatedExtendedCard"


@dataclass(frozen=True, slots=True)
class ResolvedCard:
    """An agent card, unchanged."""

    reference: str
    """As the user wrote it."""
    url: str
    """The URL of the card, or "" for a file."""
    body: bytes = field(repr=False)
    value: Json = field(repr=False)
    parsed: agent_card_pb2.AgentCard = field(repr=False)
    """The card without members of other A2A versions."""

    @property
    def schemes(self) -> list[DeclaredScheme]:
        """Its security schemes."""
        return parse_schemes(self.value)

    def declares(self, capability: str) -> bool:
        """Return whether a capability is declared."""
        if capability == _EXTENDED and self.value.get(_V0_3_EXTENDED) is True:
            return True
        capabilities = self.value.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    @property
    def interfaces(self) -> Sequence[agent_card_pb2.AgentInterface]:
        """Its interfaces; a card of v0.3 has them in members of another name."""
        if self.parsed.supported_interfaces or not isinstance(self.value.get("url"), str):
            return list(self.parsed.supported_interfaces)
        return list(v0_3_interfaces(self.value, self.url))

    @property
    def required_extensions(self) -> Sequence[str]:
        """The URIs of the extensions that a client must declare."""
        return [entry.uri for entry in self.parsed.capabilities.extensions if entry.required]


class CardResolver:
    """Reads cards and catalogs. No request of it carries a credential."""

    def __init__(
        self,
        http: HttpClient,
        folder: Path,
        cache: CardCache | None = None,
        *,
        is_validated: bool = False,
        version: ClientVersion = V1_0,
    ) -> None:
        """Relative paths are below `folder`. With `is_validated`, no card is taken as fresh.

        Agents of several versions answer with the card of `version`.
        """
        self._version = version
        self._http = http
        self._folder = folder
        self._cache = cache
        self._is_validated = is_validated

    async def resolve(self, reference: str) -> ResolvedCard:
        """Return the card of a reference.

        Raises:
            CommandError: there is none, it is malformed, or it can't be reached.
        """
        if not reference:
            raise usage("no agent is given", "name it by --agent-card or A2ACLI_AGENT_CARD")
        catalog, mark, entry = reference.rpartition("#")
        if mark:
            return await self._resolve_entry(reference, catalog, unquote(entry))
        if (path := self._as_path(reference)) is not None:
            return parse_card(reference, "", await self._read_file(path))
        url = as_url(reference)
        first, body = await self._fetch_first(reference, _candidates(url))
        return parse_card(reference, first, body)

    async def fetch_keys(self, card: ResolvedCard) -> bytes | None:
        """Return the key set at a card's origin, or None if the origin has no key set."""
        if not card.url:
            return None
        try:
            response = await self._get(urljoin(card.url, KEYS_PATH))
        except PeerError:
            return None
        return response.body if response.status == 200 else None

    async def _resolve_entry(self, reference: str, catalog: str, entry: str) -> ResolvedCard:
        """Return the card of an entry of a catalog, by its name or identifier."""
        if (path := self._as_path(catalog)) is not None:
            base, body = path.as_uri(), await self._read_file(path)
        else:
            url = as_url(catalog)
            bare = urlsplit(url).path in ("", "/")
            places = (urljoin(url, _CATALOG_PATH),) if bare else (url,)
            base, body = await self._fetch_first(reference, places)
        found = _find_entry(body, entry)
        if isinstance(found, dict):
            return parse_card(reference, base, json.dumps(found).encode())
        if found is None:
            raise CommandError(
                LocalCode.CARD_NOT_FOUND, f"the catalog {catalog} has no agent {entry!r}"
            )
        target = urljoin(base, found)
        if target.startswith("file:"):
            # Only a catalog on this machine may lead to a file of it.
            if not base.startswith("file:"):
                raise CommandError(LocalCode.CARD_NOT_FOUND, f"{reference} leads to a file")
            return parse_card(reference, "", await self._read_file(_file_path(target)))
        first, card = await self._fetch_first(reference, _candidates(target))
        return parse_card(reference, first, card)

    def _as_path(self, reference: str) -> Path | None:
        if reference.startswith("file:"):
            return _file_path(reference)
        if "://" in reference:
            return None
        path = self._folder / Path(reference).expanduser()
        is_written_as_path = reference.startswith(("/", "./", "../", "~")) or path.is_file()
        return path if is_written_as_path or reference.endswith(".json") else None

    async def _read_file(self, path: Path) -> bytes:
        try:
            return await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise CommandError(
                LocalCode.CARD_NOT_FOUND,
                f"{path} can't be read: {error.strerror}",
                "give the host of the agent, or the URL or file of its card",
            ) from error

    async def _fetch_first(self, reference: str, urls: Sequence[str]) -> tuple[str, bytes]:
        """Return the first document that exists, and its URL."""
        statuses = []
        for url in urls:
            try:
                status, body = await self._get_cached(url)
            except RpcError as error:
                raise CommandError(
                    LocalCode.CREDENTIALS_MISSING,
                    f"{url} needs credentials, and a card must be public",
                    "save the card to a file and give its path",
                ) from error
            is_last = url == urls[-1]
            if status == 200 and (is_last or body.lstrip()[:1] in (b"{", b"[")):
                return url, body
            statuses.append(f"HTTP {status} at {url}")
        raise CommandError(
            LocalCode.CARD_NOT_FOUND,
            f"there is no agent card for {reference}: {', '.join(statuses)}",
            "give the host of the agent, or the URL or file of its card",
        )

    async def _get_cached(self, url: str) -> tuple[int, bytes]:
        """Return the status and the body of a document, which may come from the cache."""
        cache = self._cache
        if cache is None:
            response = await self._get(url)
            return response.status, response.body
        key = url if self._version == V1_0 else f"{url}#{self._version}"
        cached = await asyncio.to_thread(cache.find, key)
        if cached and cached.is_fresh and not self._is_validated:
            return 200, cached.text.encode()
        response = await self._get(url, cached.validators if cached else {})
        status, body, headers = response.status, response.body, response.headers
        if status == _NOT_MODIFIED and cached:
            # The response repeats the headers that count, but may leave out the validators.
            old = {"etag": cached.validators.get("if-none-match", "")}
            status, body, headers = 200, cached.text.encode(), {**old, **headers}
        if status == 200:
            await asyncio.to_thread(cache.store, key, body, headers)
        return status, body

    async def _get(self, url: str, validators: Mapping[str, str] | None = None) -> HttpResponse:
        headers = {
            VERSION_HEADER: self._version,
            "accept": "application/json",
            **(validators or {}),
        }
        with telemetry.suppress_spans():
            response = await self._http.request("GET", url, headers=headers, timeout_s=_TIMEOUT_S)
        if len(response.body) > _MAX_BYTES:
            raise CommandError(LocalCode.CARD_INVALID, f"the document at {url} is over 1 MiB")
        return response


def as_url(reference: str) -> str:
    """Return the URL of a host or a URL. Without a scheme it is HTTPS, on this machine HTTP."""
    if "://" not in reference:
        scheme = "http" if is_this_machine(f"http://{reference}") else "https"
        reference = f"{scheme}://{reference}"
    parts = urlsplit(reference)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise usage(f"{reference!r} is neither a host, nor a URL, nor a file of a card")
    return reference


def _candidates(url: str) -> Sequence[str]:
    """Return the URLs of a card: the host's well-known path, or the URL itself.

    A URL with a path that has no card is tried as the base of one.
    """
    if urlsplit(url).path in ("", "/"):
        return (url.rstrip("/") + CARD_PATH,)
    if url.endswith(".json"):
        return (url,)
    return (url, url.rstrip("/") + CARD_PATH)


def _file_path(url: str) -> Path:
    parts = urlsplit(url)
    return Path(unquote(parts.netloc + parts.path))


def parse_card(reference: str, url: str, body: bytes) -> ResolvedCard:
    """Parse a card. CommandError: it is malformed."""
    try:
        value = read_card_json(body)
    except ValueError:
        where = url or reference
        problem = f"the document at {where} is no agent card"
        raise CommandError(LocalCode.CARD_INVALID, problem) from None
    try:
        parsed = parse_members(value)
    except ValueError as error:
        raise CommandError(
            LocalCode.CARD_INVALID, f"the agent card is malformed: {error}"
        ) from None
    return ResolvedCard(reference, url, body, value, parsed)


def find_schema_problems(card: ResolvedCard) -> list[str]:
    """Return what in a card breaks the schema of A2A v1.0, which has no further members."""
    problems = [f"{problem.field} {problem.problem}" for problem in find_card_problems(card.value)]
    try:
        parse_dict(card.value, agent_card_pb2.AgentCard())
    except (ParseError, TypeError, AttributeError, ValueError) as error:
        # protobuf names our package.
        problems.append(str(error).partition("\n")[0].replace(f"{_PACKAGE}.", "")[:200])
    return problems


async def describe_signature(card: ResolvedCard, resolver: CardResolver) -> str:
    """Return `verified (…)`, `unverifiable (…)` or `absent`, by the keys at the card's origin."""
    if not card.value.get("signatures"):
        return "absent"
    # cryptography is slow to load.
    from trunkline.a2a_wire.card_signatures import (
        InvalidSignatureError,
        parse_trusted_keys,
        verify_card,
    )

    content = await resolver.fetch_keys(card)
    if content is None:
        return "unverifiable (its origin has no key set)"
    try:
        verified = verify_card(card.body, parse_trusted_keys(content))
    except (InvalidSignatureError, TrunklineError, ValueError) as error:
        return f"unverifiable ({' '.join(str(error).split())[:200]})"
    return f"verified (key {verified.key_id} of the card's origin)"


def _find_entry(body: bytes, entry: str) -> Json | str | None:
    """Return the card of a catalog's entry or the URL of the card, or None without the entry."""
    try:
        catalog = json.loads(body)
    except (ValueError, RecursionError):
        raise CommandError(LocalCode.CARD_INVALID, "the catalog is not JSON") from None
    entries = catalog
    if isinstance(catalog, dict):
        entries = catalog.get("entries", catalog.get("agents"))
    for candidate in entries if isinstance(entries, list) else ():
        if not isinstance(candidate, dict):
            continue
        names = {candidate.get(key) for key in ("identifier", "id", "name", "displayName")}
        if entry not in names:
            continue
        inline = candidate.get("inline", candidate.get("card"))
        if isinstance(inline, dict):
            return inline
        if "supportedInterfaces" in candidate:
            return candidate
        for key in ("url", "cardUrl"):
            if isinstance(candidate.get(key), str):
                return str(candidate[key])
    return None
