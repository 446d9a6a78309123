"""Where callers' URLs may lead: public hosts over https, and what the operator allows beside them.

Whoever can register a webhook, or send a file by its URL, makes this machine connect to a place of
their choice. So nothing
is connected to that isn't reachable by everybody anyway: not this machine, not the network around
it, not the cloud's metadata (server-side request forgery; OWASP, CWE-918).
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import httpx2

from trunkline.client.safe_fetch.dns import resolve as resolve_name
from trunkline.errors import ConfigurationError

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# Returns all addresses of a host name; OSError if there are none, or not in time.
Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

URL_LIMIT_CHARS: Final = 2048

_PORTS: Final = {"https": 443, "http": 80}
# Well-known ports are other services': a post there is of use only to an attacker.
_FIRST_FREE_PORT: Final = 1024
_LAST_PORT: Final = 65535
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)
# Whose last label is a number is an IPv4 address, in decimal, octal or hexadecimal, whole or not.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_NAME_LENGTH: Final = 253

# Special purposes, by IANA's registries (RFC 6890 and later), whether reachable or not.
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
        # Azure's metadata and DNS, for machines there.
        "168.63.129.16/32",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
    )
)
# Nothing else of IPv6 has been given to anybody.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")

_FORM = "must be a URL such as {example}"
_NOT_PUBLIC = (
    "must lead to a host that everybody on the internet can reach; the operator of this endpoint "
    "can allow others ({option})"
)
_NOT_HTTPS = (
    "must begin with https://; the operator of this endpoint can allow http for a host ({option})"
)
_USER_INFO = "must not have a user or password in it; {otherwise}"
_PORT = f"must have port 443, or one from {_FIRST_FREE_PORT} on"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorWording:
    """How those are told who gave a URL, by what it is for."""

    option: str
    """How the operator allows hosts."""
    example: str
    """A URL that would be taken."""
    otherwise: str
    """What to do instead of writing a password into it."""


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
    """A URL must not lead there; the text says where it may, not what is there."""


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """A URL that may be called, as far as it can be told without asking for addresses."""

    scheme: str
    host: str
    """In lower case and ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """A host for which none of the rules holds, at one port or at all."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str, *, option: str) -> Self:
        """Read `HOST` or `HOST:PORT`. ConfigurationError: it is neither."""
        host, colon, port = text.strip().lower().rpartition(":")
        if not colon or "]" in port or (":" in host and not host.startswith("[")):
            host, port = text.strip().lower(), ""
        host = _plain(host.removeprefix("[").removesuffix("]"))
        is_name = _NAME.fullmatch(host) is not None and len(host) <= _NAME_LENGTH
        is_port = not port or (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT)
        if not (is_name or _literal(host)) or not is_port or (colon and text.endswith(":")):
            problem = f"{text!r} is not HOST or HOST:PORT, without a scheme or path"
            raise ConfigurationError(re.split("[ =]", option)[0], problem)
        return cls(host, int(port) if port else None)

    def matches(self, host: str, port: int) -> bool:
        """Whether this is the host."""
        return self.host == host and self.port in (None, port)


class AddressGuard:
    """Decides where URLs may lead."""

    def __init__(
        self,
        allowed: Iterable[str] = (),
        resolve: Resolver = resolve_name,
        *,
        wording: ErrorWording = WEBHOOK_WORDING,
    ) -> None:
        """`wording` is for texts. ConfigurationError: one of the allowed hosts is none."""
        self._allowed = tuple(AllowedHost.parse(text, option=wording.option) for text in allowed)
        self._resolve = resolve
        self._wording = wording

    async def check(self, url: str) -> CheckedUrl:
        """Return a URL that may be called now, by its form and by its addresses.

        Raises:
            AddressRefusedError: it may not.
        """
        endpoint = self.parse_url(url)
        await self.resolve_addresses(endpoint.host, endpoint.port)
        return endpoint

    def parse_url(self, url: str) -> CheckedUrl:
        """Read a URL and check its form. AddressRefusedError: it must not be called."""
        if not url or len(url) > URL_LIMIT_CHARS:
            raise self._refused(f"{_FORM}, of at most {URL_LIMIT_CHARS} characters")
        try:
            read = httpx2.URL(url)
            host = _plain(read.raw_host.decode("ascii"))
            target = read.raw_path.decode("ascii")
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise self._refused(_FORM) from None
        port = _PORTS.get(read.scheme, 0) if read.port is None else read.port
        if read.scheme not in _PORTS or not host or not 0 < port <= _LAST_PORT:
            raise self._refused(_FORM)
        if read.userinfo:
            raise self._refused(_USER_INFO)
        is_allowed = self._is_allowed(host, port)
        if read.scheme != "https" and not is_allowed:
            raise self._refused(_NOT_HTTPS)
        if not (is_allowed or port == _PORTS["https"] or port >= _FIRST_FREE_PORT):
            raise self._refused(_PORT)
        return CheckedUrl(read.scheme, host, port, target)

    async def resolve_addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, all of which may be connected to.

        Connect to these: a second question for the name may have another answer.

        Raises:
            AddressRefusedError: one of them must not be, or there are none.
        """
        literal = _literal(host)
        is_allowed = self._is_allowed(host, port)
        if literal is not None:
            found: Sequence[str] = (str(literal),)
        elif is_host_name(host):
            try:
                found = await self._resolve(host)
            except OSError:
                found = ()
        else:
            found = ()
        if not found or not (is_allowed or all(is_public_address(address) for address in found)):
            # The same words for all of it: what this machine can see is nobody's business.
            raise self._refused(_NOT_PUBLIC)
        return found

    def _refused(self, template: str) -> AddressRefusedError:
        said = self._wording
        text = template.format(option=said.option, example=said.example, otherwise=said.otherwise)
        return AddressRefusedError(text)

    def _is_allowed(self, host: str, port: int) -> bool:
        return any(one.matches(host, port) for one in self._allowed)


def is_host_name(host: str) -> bool:
    """Whether a host is a name and no number: numbers are addresses in disguise."""
    if len(host) > _NAME_LENGTH or _NUMBER.fullmatch(host) is not None:
        return False
    return _NAME.fullmatch(host) is not None


def is_public_address(text: str) -> bool:
    """Whether an address is one that anybody on the internet can reach.

    One of IPv6 that stands for one of IPv4 (mapped, NAT64, 6to4) is judged by that.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        inner = _embedded(address)
        if inner is not None:
            return is_public_address(str(inner))
        if address not in _GLOBAL_UNICAST:
            return False
    return not any(address in network for network in _SPECIAL)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _literal(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _plain(host: str) -> str:
    """A host in the one form in which hosts are compared: addresses have several."""
    host = host.lower().removesuffix(".")
    literal = _literal(host)
    return host if literal is None else str(literal)
