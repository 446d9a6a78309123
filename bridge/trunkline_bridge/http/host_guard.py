"""Refuses requests for hosts that are not this endpoint's, against DNS rebinding (RFC 9110, 7.4).

A web page of a foreign site can let its own name resolve to this machine. A browser then lets the
page read our responses, but its requests still have the foreign name as Host.

gRPC needs no such check: browsers cannot send its requests without TLS, and with TLS the
certificate does not have the foreign name.
"""

import logging
import socket
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.types import Scope

from trunkline.a2a_wire.errors import INVALID_REQUEST, WireError
from trunkline.errors import ConfigurationError
from trunkline.network import Authority, is_ip_address, is_loopback, parse_authority
from trunkline.settings import Settings
from trunkline_bridge.http.bound_addresses import BoundAddresses
from trunkline_bridge.http.messages import (
    MISDIRECTED_REQUEST,
    PROBE_PATHS,
    set_host,
    split_absolute_target,
)

logger = logging.getLogger(__name__)

_DEFAULT_PORTS = {"http": 80, "https": 443}
# Limit on the stored headers: on all interfaces, callers can invent addresses and ports.
_MAX_ACCEPTED = 1000


class HostGuard:
    """Accepts requests for the hosts of this endpoint.

    These are `public_url` and `allowed_hosts`, and at any port the address that the server listens
    on, and all names and addresses of loopback. A server that other machines can reach also has the
    name of this machine and all IP addresses, at any port. Tunnels, address translation and
    published ports change addresses and ports, and no page of a foreign site has such a host.
    """

    def __init__(self, settings: Settings, addresses: BoundAddresses) -> None:
        """`addresses` may be filled in later, before the first request.

        Raises:
            ConfigurationError: a host in the settings is malformed.
        """
        self._addresses = addresses
        self._machine_name = socket.gethostname().lower()
        self._at_any_port: set[str] = set()
        self._at_port: set[Authority] = set()
        for text in settings.allowed_hosts:
            self._allow(text)
        if settings.public_url:
            self._allow_url(settings.public_url)
        # Canonical headers that were accepted, each with the address of the server.
        self._accepted: set[tuple[bytes | None, str]] = set()

    def check(self, scope: Scope) -> Scope:
        """Return the scope of an accepted request, whose Host header is canonical.

        A request of HTTP/1.0 may have no Host. Probes may have any, since orchestrators and load
        balancers choose it.

        Raises:
            WireError: the host is not one of this endpoint (421), or the Host header is missing,
                repeated or malformed (400).
        """
        if scope["type"] not in ("http", "websocket"):
            return scope
        host: bytes | None = None
        # A loop and no comprehension, which costs more: this runs for each request.
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    raise WireError(INVALID_REQUEST, "the Host header is repeated; send only one")
                host = value
        server = scope.get("server") or ("", None)
        if (host, server[0]) in self._accepted:
            return scope
        if host is None:
            if scope["http_version"] == "1.0":
                return scope
            raise WireError(INVALID_REQUEST, "the Host header is missing; send one")
        return self._check_host(scope, host, server)

    def _check_host(self, scope: Scope, host: bytes, server: tuple[str, int | None]) -> Scope:
        authority = _parse_host(host)
        canonical = str(authority).encode("ascii")
        if self._is_own(authority, server):
            if len(self._accepted) < _MAX_ACCEPTED:
                self._accepted.add((canonical, server[0]))
        elif scope["path"] not in PROBE_PATHS:
            raise _misdirected(authority)
        if canonical == host:
            return scope
        headers = list(scope["headers"])
        set_host(headers, canonical)
        return {**scope, "headers": headers}

    def _allow(self, text: str) -> None:
        try:
            host, port = parse_authority(text)
        except ValueError as error:
            raise ConfigurationError("allowed_hosts", str(error)) from error
        if port is None:
            self._at_any_port.add(host)
            return
        self._at_port.add(Authority(host, port))
        if port in _DEFAULT_PORTS.values():
            self._at_port.add(Authority(host))

    def _allow_url(self, text: str) -> None:
        try:
            url = urlsplit(text)
            host, _ = parse_authority(_ascii_host(url.hostname or ""))
            port = url.port or _DEFAULT_PORTS[url.scheme]
        except (ValueError, KeyError) as error:
            raise ConfigurationError("public_url", f"{text!r} is not an HTTP URL") from error
        # Some proxies pass the host without its port.
        self._at_port.update((Authority(host), Authority(host, port)))

    def _is_own(self, authority: Authority, server: tuple[str, int | None]) -> bool:
        host = authority.host
        if authority in self._at_port or host in self._at_any_port or is_loopback(host):
            return True
        bound_host = urlsplit(self._addresses.http).hostname or ""
        if host in (server[0], bound_host):
            return True
        if not bound_host or is_loopback(bound_host):
            return False
        return is_ip_address(host) or host == self._machine_name


def _ascii_host(host: str) -> str:
    """Return the host of a URL as in a Host header."""
    return f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")


def with_origin_form(scope: Scope) -> Scope:
    """Return a scope with the path of an absolute target and its authority as Host.

    The authority replaces the Host header (RFC 9112, 3.2.2). h11 passes such targets on unchanged.
    """
    if scope["type"] != "http" or scope["path"][:1] == "/":
        return scope
    parts = split_absolute_target(scope.get("raw_path") or scope["path"].encode("utf-8"))
    if parts is None:
        return scope
    authority, raw_path = parts
    changed: dict[str, Any] = {**scope, "headers": list(scope["headers"])}
    set_host(changed["headers"], authority)
    changed["raw_path"], changed["path"] = raw_path, unquote(raw_path.decode("latin-1"))
    return changed


def _parse_host(host: bytes) -> Authority:
    try:
        # httptools leaves white space behind a value.
        return parse_authority(host.decode("ascii").rstrip(" \t"))
    except ValueError:
        text = "the Host header is invalid; send HOST or HOST:PORT"
        raise WireError(INVALID_REQUEST, text) from None


def _misdirected(authority: Authority) -> WireError:
    logger.info("host.refused", extra={"host": str(authority)})
    text = (
        f"{authority} is not a host of this endpoint; use its own address, or add the host to the "
        "endpoint's setting allowed_hosts (TRUNKLINE_ALLOWED_HOSTS) or set its public_url"
    )
    return WireError(MISDIRECTED_REQUEST, text, {"host": str(authority)})
