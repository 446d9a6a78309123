"""Checks the URLs of callers: public hosts over https, and hosts that the operator allows.

A caller that registers a webhook, or sends a file by URL, makes this machine connect to a host of
the caller's choice. The guard therefore refuses every address that is not public: this machine, its
network, and the cloud's metadata service (server-side request forgery, CWE-918).
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import httpx2

from trunkline.errors import ConfigurationError
from trunkline.mesh.client.safe_fetch.dns import resolve as resolve_name

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# Returns all addresses of a host name. Raises OSError if there are none or the lookup times out.
Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

URL_LIMIT_CHARS: Final = 2048

_PORTS: Final = {"https": 443, "http": 80}
# Well-known ports belong to other services. Only an attacker gains by a request to one.
_FIRST_FREE_PORT: Final = 1024
_LAST_PORT: Final = 65535
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)
# A host whose last label is a number is an IPv4 address: decimal, octal or hexadecimal, or partial.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_NAME_LENGTH: Final = 253

# IANA's special-purpose addresses (RFC 6890 and later), reachable or not.
_SPECIAL: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        # Azure's metadata and DNS services.
        "168.63.129.16/32",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
    )
)
# The only part of IPv6 that IANA has allocated for global unicast.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")

_FORM = "must be a URL such as {example}"
_NOT_PUBLIC = (
    "must lead to a host that is reachable from the public internet; the operator of this endpoint "
    "can allow others ({option})"
)
_UNRESOLVED = "leads to a host whose name can't be resolved now; check the name, or try again later"
_NOT_HTTPS = (
    "must begin with https://; the operator of this endpoint can allow http for a host ({option})"
)
_USER_INFO = "must not have a user or password in it; {otherwise}"
_PORT = f"must have port 443, or one from {_FIRST_FREE_PORT} on"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorWording:
    """The parts of error texts that depend on the use of a URL."""

    option: str
    """The option by which the operator allows a host."""
    example: str
    """A URL that would be accepted."""
    otherwise: str
    """The alternative to a password in the URL."""


WEBHOOK_WORDING: Final = ErrorWording(
    option="--allow-webhook HOST",
    example="https://example.com/hook",
    otherwise="give them as `authentication`",
)
FILE_WORDING: Final = ErrorWording(
    option="TRUNKLINE_ALLOW_FETCH=HOST",
    example="https://example.com/report.pdf",
    otherwise="send the file itself",
)


class AddressRefusedError(Exception):
    """A URL is refused. The text says which URLs are accepted, but not the host's addresses."""


class HostUnresolvedError(AddressRefusedError):
    """The name of a host has no address now, or its lookup failed. It may succeed later."""


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """A URL whose form is accepted. Its addresses are checked when a connection is made."""

    scheme: str
    host: str
    """In lower case and ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host that is exempt from the rules, at one port or at all ports."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str, *, option: str) -> Self:
        """Parse `HOST` or `HOST:PORT`.

        Raises:
            ConfigurationError: the text is neither. `option` names the option it came from.
        """
        host, colon, port = text.strip().lower().rpartition(":")
        if not colon or "]" in port or (":" in host and not host.startswith("[")):
            host, port = text.strip().lower(), ""
        host = _normalise(host.removeprefix("[").removesuffix("]"))
        is_name = _NAME.fullmatch(host) is not None and len(host) <= _NAME_LENGTH
        is_port = not port or (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT)
        if not (is_name or _parse_address(host)) or not is_port or (colon and text.endswith(":")):
            problem = f"{text!r} is not HOST or HOST:PORT, without a scheme or path"
            raise ConfigurationError(re.split("[ =]", option)[0], problem)
        return cls(host, int(port) if port else None)

    def matches(self, host: str, port: int) -> bool:
        """Return True if the exemption covers this host and port."""
        return self.host == host and self.port in (None, port)


class AddressGuard:
    """Checks URLs and their addresses against the rules."""

    def __init__(
        self,
        allowed: Iterable[str] = (),
        resolve: Resolver = resolve_name,
        *,
        wording: ErrorWording = WEBHOOK_WORDING,
    ) -> None:
        """Allow the hosts in `allowed`, each `HOST` or `HOST:PORT`, beside the public ones.

        Raises:
            ConfigurationError: an allowed host is malformed.
        """
        self._allowed = tuple(AllowedHost.parse(text, option=wording.option) for text in allowed)
        self._resolve = resolve
        self._wording = wording

    async def check(self, url: str) -> CheckedUrl:
        """Check a URL's form and its current addresses. An allowed host may have none yet.

        Raises:
            HostUnresolvedError: the host can't be resolved.
            AddressRefusedError: the URL is refused.
        """
        endpoint = self.parse_url(url)
        try:
            await self.resolve_addresses(endpoint.host, endpoint.port)
        except HostUnresolvedError:
            if not self._is_allowed(endpoint.host, endpoint.port):
                raise
        return endpoint

    def parse_url(self, url: str) -> CheckedUrl:
        """Parse a URL and check its form.

        Raises:
            AddressRefusedError: the form is refused.
        """
        if not url or len(url) > URL_LIMIT_CHARS:
            raise self._build_refusal(f"{_FORM}, of at most {URL_LIMIT_CHARS} characters")
        try:
            parsed_url = httpx2.URL(url)
            host = _normalise(parsed_url.raw_host.decode("ascii"))
            target = parsed_url.raw_path.decode("ascii")
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise self._build_refusal(_FORM) from None
        port = _PORTS.get(parsed_url.scheme, 0) if parsed_url.port is None else parsed_url.port
        if parsed_url.scheme not in _PORTS or not host or not 0 < port <= _LAST_PORT:
            raise self._build_refusal(_FORM)
        if parsed_url.userinfo:
            raise self._build_refusal(_USER_INFO)
        is_allowed = self._is_allowed(host, port)
        if parsed_url.scheme != "https" and not is_allowed:
            raise self._build_refusal(_NOT_HTTPS)
        if not (is_allowed or port == _PORTS["https"] or port >= _FIRST_FREE_PORT):
            raise self._build_refusal(_PORT)
        return CheckedUrl(parsed_url.scheme, host, port, target)

    async def resolve_addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve a host, and check that a connection to each of its addresses is allowed.

        Connect to the returned addresses: a second lookup of the name may return others.

        Raises:
            HostUnresolvedError: the name can't be resolved.
            AddressRefusedError: an address is refused, or the host is not a name.
        """
        is_allowed = self._is_allowed(host, port)
        addresses = await self._look_up(host)
        if not (is_allowed or all(map(is_public_address, addresses))):
            raise self._build_refusal(_NOT_PUBLIC)
        return addresses

    async def _look_up(self, host: str) -> Sequence[str]:
        """Return the addresses of a host, at least one."""
        literal = _parse_address(host)
        if literal is not None:
            return (str(literal),)
        if not is_host_name(host):
            raise self._build_refusal(_NOT_PUBLIC)
        try:
            addresses = await self._resolve(host)
        except OSError:
            addresses = ()
        if not addresses:
            raise HostUnresolvedError(_UNRESOLVED)
        return addresses

    def _build_refusal(self, template: str) -> AddressRefusedError:
        words = self._wording
        return AddressRefusedError(
            template.format(option=words.option, example=words.example, otherwise=words.otherwise)
        )

    def _is_allowed(self, host: str, port: int) -> bool:
        return any(allowed.matches(host, port) for allowed in self._allowed)


def is_host_name(host: str) -> bool:
    """Return True if a host is a DNS name. A number is an IPv4 address in another notation."""
    if len(host) > _NAME_LENGTH or _NUMBER.fullmatch(host) is not None:
        return False
    return _NAME.fullmatch(host) is not None


def is_public_address(text: str) -> bool:
    """Return True if an address is reachable from the public internet.

    An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4) is judged by the latter.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        inner = _extract_ipv4(address)
        if inner is not None:
            return is_public_address(str(inner))
        if address not in _GLOBAL_UNICAST:
            return False
    return not any(address in network for network in _SPECIAL)


def _extract_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _parse_address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _normalise(host: str) -> str:
    """Return a host in the form in which hosts are compared. An address has several notations."""
    host = host.lower().removesuffix(".")
    literal = _parse_address(host)
    return host if literal is None else str(literal)
