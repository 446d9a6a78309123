"""Facts that network code of every layer needs: hosts, addresses of this machine, HTTP dates."""

import asyncio
import ipaddress
import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

# A header value is a number of seconds or a date; both are shorter than this.
_MAX_LENGTH: Final = 64
# A name of the DNS, with the underscores of container names, or an IPv6 address in brackets.
_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{0,5}))?")
_MAX_AUTHORITY_LENGTH: Final = 262
_LAST_PORT: Final = 65535
_PROBE_TIMEOUT_S: Final = 5.0
_MAX_RETRY_AFTER_S: Final = 24 * 3600.0


class Authority(NamedTuple):
    """The host and port of a URL or of a Host header (RFC 3986, 3.2)."""

    host: str
    """In lower case, without a trailing dot; an IPv6 address in its shortest form."""
    port: int | None = None
    """None stands for the default port of the URL's scheme."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def parse_authority(text: str) -> Authority:
    """Parse `HOST` or `HOST:PORT`.

    Raises:
        ValueError: the text has another form.
    """
    match = _AUTHORITY.fullmatch(text) if len(text) <= _MAX_AUTHORITY_LENGTH else None
    if match is None:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    address, name, digits = match.groups()
    port = int(digits) if digits else None
    if port is not None and port > _LAST_PORT:
        raise ValueError(f"port of {text!r} is not a number from 0 to {_LAST_PORT}")
    if address is not None:
        return Authority(str(ipaddress.IPv6Address(address)), port)
    host = name.lower().removesuffix(".")
    if not all(host.split(".")):
        raise ValueError(f"{text!r} has an empty label")
    return Authority(host, port)


def peer_host(peer: str) -> str:
    """Return the address in the name that gRPC gives to a peer, such as `ipv4:127.0.0.1:50051`.

    The port is left out. A Unix socket is `unix`.
    """
    scheme, _, rest = unquote(peer).partition(":")
    if scheme not in {"ipv4", "ipv6"}:
        return scheme
    return rest.rpartition(":")[0].strip("[]")


def is_ip_address(host: str) -> bool:
    """Return True if a host is an IP address in its usual notation, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host; of names only `localhost` counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_this_machine(address: str) -> bool:
    """Return True if a URL, a gRPC target, `HOST:PORT` or a host leads to this machine.

    Traffic to this machine must not go through a proxy. An unspecified address (0.0.0.0, ::) leads
    here too, because connecting to it reaches this machine.
    """
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = _parse_host(address)
    try:
        return is_loopback(host) or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def is_listening(url: str) -> bool:
    """Return whether a server listens at a URL, or something drops or delays the connection."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except TimeoutError:
        return True
    except OSError:
        return False
    writer.close()
    return True


def parse_retry_after(text: str, *, limit_s: float = _MAX_RETRY_AFTER_S) -> float:
    """Return the pause that a Retry-After header asks for, in seconds from now, at most `limit_s`.

    Without `limit_s`, the limit is a day.
    The value is a number of seconds or a date (RFC 9110, 10.2.3). An empty or invalid one gives 0.
    """
    if not text or len(text) > _MAX_LENGTH:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = _seconds_until(text)
    return min(max(seconds, 0.0), limit_s) if math.isfinite(seconds) else 0.0


def parse_http_date(text: str) -> datetime | None:
    """Return the time of an HTTP date (RFC 9110, 5.6.7), or None if it is invalid."""
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        date = parsedate_to_datetime(text)
    # The parser raises any of these for an invalid date.
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date


def _parse_host(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
    except ValueError:
        return ""
    return (parts.hostname or "").rstrip(".")


def _seconds_until(text: str) -> float:
    date = parse_http_date(text)
    return 0.0 if date is None else (date - datetime.now(UTC)).total_seconds()
