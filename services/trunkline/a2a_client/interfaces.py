"""Interfaces of a remote agent: address, binding and version; and the selection of one."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit

from trunkline.a2a_wire.protocol import V0_3, V1_0
from trunkline.errors import ConfigurationError
from trunkline.network import Authority, is_this_machine, parse_authority
from trunkline.v1 import agent_card_pb2

ClientVersion: TypeAlias = Literal["1.0", "0.3"]


class ProtocolBinding(StrEnum):
    """The bindings by their names in agent cards."""

    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"
    GRPC = "GRPC"


@dataclass(frozen=True, slots=True)
class Interface:
    """One address of an agent, with its binding and protocol version."""

    binding: ProtocolBinding
    version: ClientVersion
    url: str
    """Without a trailing slash; for gRPC `host:port`."""
    tenant: str = ""
    """Sent in every request."""
    is_secure: bool = False
    """The connection uses TLS."""

    def with_other_version(self) -> "Interface":
        """Return this interface in the other protocol version."""
        return replace(self, version=V0_3 if self.version == V1_0 else V1_0)


@dataclass(frozen=True, slots=True)
class InterfaceSelector:
    """Selects an interface of a card by the operator's settings."""

    card_url: str
    """The card's URL. Interfaces must be on its host and port or on one of `allowed_hosts`."""
    allowed_hosts: Collection[str] = ()
    """Each as HOST, for any port, or as HOST:PORT."""
    bindings: Collection[str] = ()
    """If not empty, only these are selected."""
    versions: Collection[str] = ()
    """If not empty, only these are selected."""

    def select(self, offered: Iterable[agent_card_pb2.AgentInterface]) -> Interface:
        """Return the first offered interface that is supported and on an allowed host.

        ValueError: There is no such interface. The text says why.
        ConfigurationError: There are, but the settings exclude them.
        """
        offered = list(offered)
        other_addresses: list[str] = []
        has_downgrade = has_excluded = False
        for candidate in offered:
            interface = _parse_supported(candidate, self.card_url)
            if interface is None:
                continue
            if self._is_excluded(interface):
                has_excluded = True
                continue
            address = _parse_address(interface.url, is_secure=interface.is_secure)
            if not self._is_allowed_address(address):
                other_addresses.append(str(address))
            elif self._is_downgrade(interface):
                has_downgrade = True
            else:
                return interface
        if other_addresses:
            problem = f"its card leads to {', '.join(sorted(set(other_addresses)))}"
            raise ValueError(
                f"{problem}, which is not the card's host and port; list it in `hosts`"
            )
        if has_downgrade:
            raise ValueError("its card was read over HTTPS but has only interfaces without TLS")
        names = ", ".join(
            f"{interface.protocol_binding} {interface.protocol_version}" for interface in offered
        )
        names = names[:200] or "none at all"
        if has_excluded:
            limits = "; ".join(
                f"{name} {', '.join(values)}"
                for name, values in (("bindings", self.bindings), ("versions", self.versions))
                if values
            )
            raise ConfigurationError(
                self.card_url, f"its card offers {names}; allowed are {limits}"
            )
        raise ValueError(f"its card has no interface that we speak: {names}")

    def _is_excluded(self, interface: Interface) -> bool:
        """Return whether the settings exclude an interface's binding or version."""
        return bool(
            (self.bindings and interface.binding not in self.bindings)
            or (self.versions and interface.version not in self.versions)
        )

    def _is_allowed_address(self, address: Authority) -> bool:
        """Return whether an address may receive our messages and credentials."""
        host, port = address
        for entry in self.allowed_hosts:
            if entry == host:
                return True
            with suppress(ValueError):
                allowed = parse_authority(entry)
                if allowed.host == host and allowed.port in (None, port):
                    return True
        card = _parse_address(self.card_url, is_secure=self.card_url.startswith("https:"))
        is_card_host = host == card.host or (is_this_machine(host) and is_this_machine(card.host))
        return is_card_host and port == card.port

    def _is_downgrade(self, interface: Interface) -> bool:
        """Return whether the interface is unencrypted although the card was read over HTTPS."""
        return self.card_url.startswith("https:") and not interface.is_secure


def parse_version(text: str) -> ClientVersion | None:
    """Parse the protocol version of a card; None if the client doesn't support it.

    Any 1.x is read as v1.0. v0.2, which has the same JSON, and no version are read as v0.3.
    """
    major, _, minor = text.strip().removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if major == "1":
        return V1_0
    return V0_3 if not text.strip() or (major, minor) in (("0", "3"), ("0", "2")) else None


def parse_host(url: str) -> str:
    """Return the host of a URL or of `host:port`, without IPv6 brackets, or an empty text."""
    parts = _split_address(url)
    return (parts.hostname or "").rstrip(".")


def _parse_address(url: str, *, is_secure: bool) -> Authority:
    """Return the host and the port of a URL or of `host:port`."""
    port = _split_address(url).port
    return Authority(parse_host(url), port or (443 if is_secure else 80))


def _split_address(url: str) -> SplitResult:
    return urlsplit(url if "://" in url else f"//{url}")


def _parse_supported(offered: agent_card_pb2.AgentInterface, card_url: str) -> Interface | None:
    """Parse an offered interface; None if the client doesn't support it."""
    version = parse_version(offered.protocol_version)
    if version is None:
        return None
    try:
        binding = ProtocolBinding(offered.protocol_binding.upper())
        return (
            _grpc_interface(offered, version, card_url)
            if binding is ProtocolBinding.GRPC
            else _http_interface(offered, binding, version, card_url)
        )
    except ValueError:
        return None


def _http_interface(
    offered: agent_card_pb2.AgentInterface,
    binding: ProtocolBinding,
    version: ClientVersion,
    card_url: str,
) -> Interface | None:
    """Parse a URL. A relative one is resolved against the card's (RFC 3986, section 5)."""
    parts = urlsplit(offered.url)
    if offered.url and not parts.scheme:
        parts = urlsplit(urljoin(card_url, offered.url))
    _ = parts.port  # Raises ValueError for an invalid port.
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    url = parts.geturl().rstrip("/")
    return Interface(binding, version, url, offered.tenant, is_secure=parts.scheme == "https")


def _grpc_interface(
    offered: agent_card_pb2.AgentInterface, version: ClientVersion, card_url: str
) -> Interface | None:
    """Parse `host:port` or a URL. Without a scheme, TLS is used if the card's URL has https."""
    parts = _split_address(offered.url)
    if not parts.hostname:
        return None
    scheme = parts.scheme or urlsplit(card_url).scheme
    is_secure = scheme in ("https", "grpcs")
    port = parts.port or (443 if is_secure else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{host}:{port}"
    return Interface(ProtocolBinding.GRPC, version, address, offered.tenant, is_secure=is_secure)
