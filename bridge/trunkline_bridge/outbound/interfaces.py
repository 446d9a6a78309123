"""Where and how a remote agent is spoken to: what its card offers, and what of it we take."""

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.wire.versions import V0_3, V1_0

Version: TypeAlias = Literal["1.0", "0.3"]


class Binding(StrEnum):
    """A2A's bindings by the names that cards have for them."""

    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"
    GRPC = "GRPC"


@dataclass(frozen=True, slots=True)
class Interface:
    """One address of an agent."""

    binding: Binding
    version: Version
    url: str
    """Without a last slash; of gRPC `host:port`."""
    tenant: str = ""
    """Said in every request."""
    is_secure: bool = False
    """Over TLS."""

    def in_other_version(self) -> "Interface":
        """The same address for a peer that speaks the other version there."""
        return replace(self, version=V0_3 if self.version == V1_0 else V1_0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which interfaces may be taken."""

    card_url: str
    """Where the card was: its interfaces are on that host, too, or on one of `hosts`."""
    hosts: Collection[str] = ()
    bindings: Collection[str] = ()
    """Only these; none: any."""
    versions: Collection[str] = ()
    """Only these; none: any."""

    def take(self, offered: Iterable[agent_card_pb2.AgentInterface]) -> Interface:
        """Return the first of the interfaces that we speak and that lead where they may.

        ValueError: there is none; the text says why.
        """
        offered = list(offered)
        strangers: list[str] = []
        for one in offered:
            found = self._spoken(one)
            if found is None:
                continue
            host = host_of(found.url)
            if self._may_lead_to(host) and not self._is_downgrade(found):
                return found
            strangers.append(host)
        if strangers:
            problem = f"its card leads to {', '.join(sorted(set(strangers)))}"
            raise ValueError(f"{problem}, which is not where the card is; allow it by `hosts`")
        names = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in offered)
        raise ValueError(f"its card has no interface that we speak: {names[:200] or 'none at all'}")

    def _spoken(self, one: agent_card_pb2.AgentInterface) -> Interface | None:
        try:
            binding = Binding(one.protocol_binding.upper())
        except ValueError:
            return None
        version = version_of(one.protocol_version)
        if version is None or (self.bindings and binding not in self.bindings):
            return None
        if self.versions and version not in self.versions:
            return None
        try:
            return (
                _grpc(one, version, self.card_url)
                if binding is Binding.GRPC
                else _http(one, binding, version)
            )
        except ValueError:
            return None

    def _may_lead_to(self, host: str) -> bool:
        """What a card names gets our messages and credentials: it mustn't be just anybody."""
        ours = host_of(self.card_url)
        return host == ours or host in self.hosts or (_is_loopback(host) and _is_loopback(ours))

    def _is_downgrade(self, found: Interface) -> bool:
        """Whether it isn't encrypted although the card was."""
        return self.card_url.startswith("https:") and not found.is_secure


def version_of(text: str) -> Version | None:
    """Return which of the versions that we speak a card's version is; None: none of them.

    Only Major.Minor counts; v0.2's JSON is v0.3's.
    """
    major, _, minor = text.strip().removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if major == "1":
        return V1_0
    return V0_3 if not text.strip() or (major, minor) in (("0", "3"), ("0", "2")) else None


def host_of(url: str) -> str:
    """Return the host of a URL or of `host:port`, without the brackets of IPv6; empty: none."""
    parts = _split(url)
    return (parts.hostname or "").rstrip(".")


def _split(url: str) -> SplitResult:
    return urlsplit(url if "://" in url else f"//{url}")


def _http(
    one: agent_card_pb2.AgentInterface, binding: Binding, version: Version
) -> Interface | None:
    parts = urlsplit(one.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    url = one.url.rstrip("/")
    return Interface(binding, version, url, one.tenant, is_secure=parts.scheme == "https")


def _grpc(one: agent_card_pb2.AgentInterface, version: Version, card_url: str) -> Interface | None:
    """Cards have `host:port`, or a URL, which says whether it is over TLS; else the card's does."""
    parts = _split(one.url)
    if not parts.hostname:
        return None
    scheme = parts.scheme or urlsplit(card_url).scheme
    is_secure = scheme in ("https", "grpcs")
    port = parts.port or (443 if is_secure else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{host}:{port}"
    return Interface(Binding.GRPC, version, address, one.tenant, is_secure=is_secure)


def is_local(url: str) -> bool:
    """Whether a URL leads to this machine: no proxy must see what goes there."""
    return _is_loopback(host_of(url))


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
