"""Where and how a remote agent is spoken to: what its card offers, and what of it we take."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from trunkline.network import is_this_machine
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.protocol import V0_3, V1_0

ClientVersion: TypeAlias = Literal["1.0", "0.3"]


class ProtocolBinding(StrEnum):
    """A2A's bindings by the names that cards have for them."""

    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"
    GRPC = "GRPC"


@dataclass(frozen=True, slots=True)
class Interface:
    """One address of an agent."""

    binding: ProtocolBinding
    version: ClientVersion
    url: str
    """Without a last slash; of gRPC `host:port`."""
    tenant: str = ""
    """Said in every request."""
    is_secure: bool = False
    """Over TLS."""

    def with_other_version(self) -> "Interface":
        """The same address for a peer that speaks the other version there."""
        return replace(self, version=V0_3 if self.version == V1_0 else V1_0)


@dataclass(frozen=True, slots=True)
class InterfaceSelector:
    """Which interfaces may be taken."""

    card_url: str
    """Where the card was: its interfaces are on that host, too, or on one of `hosts`."""
    allowed_hosts: Collection[str] = ()
    bindings: Collection[str] = ()
    """Only these; none: any."""
    versions: Collection[str] = ()
    """Only these; none: any."""

    def select(self, offered: Iterable[agent_card_pb2.AgentInterface]) -> Interface:
        """Return the first of the interfaces that we speak and that lead where they may.

        ValueError: there is none; the text says why.
        """
        offered = list(offered)
        strangers: list[str] = []
        for one in offered:
            found = self._parse_supported(one)
            if found is None:
                continue
            host = parse_host(found.url)
            if self._is_allowed_host(host) and not self._is_downgrade(found):
                return found
            strangers.append(host)
        if strangers:
            problem = f"its card leads to {', '.join(sorted(set(strangers)))}"
            raise ValueError(f"{problem}, which is not where the card is; allow it by `hosts`")
        names = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in offered)
        raise ValueError(f"its card has no interface that we speak: {names[:200] or 'none at all'}")

    def _parse_supported(self, one: agent_card_pb2.AgentInterface) -> Interface | None:
        try:
            binding = ProtocolBinding(one.protocol_binding.upper())
        except ValueError:
            return None
        version = parse_version(one.protocol_version)
        if version is None or (self.bindings and binding not in self.bindings):
            return None
        if self.versions and version not in self.versions:
            return None
        try:
            return (
                _grpc_interface(one, version, self.card_url)
                if binding is ProtocolBinding.GRPC
                else _http_interface(one, binding, version)
            )
        except ValueError:
            return None

    def _is_allowed_host(self, host: str) -> bool:
        """What a card names gets our messages and credentials: it mustn't be just anybody."""
        ours = parse_host(self.card_url)
        return (
            host == ours
            or host in self.allowed_hosts
            or (is_this_machine(host) and is_this_machine(ours))
        )

    def _is_downgrade(self, found: Interface) -> bool:
        """Whether it isn't encrypted although the card was."""
        return self.card_url.startswith("https:") and not found.is_secure


def parse_version(text: str) -> ClientVersion | None:
    """Return which of the versions that we speak a card's version is; None: none of them.

    Only Major.Minor counts; v0.2's JSON is v0.3's.
    """
    major, _, minor = text.strip().removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if major == "1":
        return V1_0
    return V0_3 if not text.strip() or (major, minor) in (("0", "3"), ("0", "2")) else None


def parse_host(url: str) -> str:
    """Return the host of a URL or of `host:port`, without the brackets of IPv6; empty: none."""
    parts = _split_address(url)
    return (parts.hostname or "").rstrip(".")


def _split_address(url: str) -> SplitResult:
    return urlsplit(url if "://" in url else f"//{url}")


def _http_interface(
    one: agent_card_pb2.AgentInterface, binding: ProtocolBinding, version: ClientVersion
) -> Interface | None:
    parts = urlsplit(one.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    url = one.url.rstrip("/")
    return Interface(binding, version, url, one.tenant, is_secure=parts.scheme == "https")


def _grpc_interface(
    one: agent_card_pb2.AgentInterface, version: ClientVersion, card_url: str
) -> Interface | None:
    """Cards have `host:port`, or a URL, which says whether it is over TLS; else the card's does."""
    parts = _split_address(one.url)
    if not parts.hostname:
        return None
    scheme = parts.scheme or urlsplit(card_url).scheme
    is_secure = scheme in ("https", "grpcs")
    port = parts.port or (443 if is_secure else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{host}:{port}"
    return Interface(ProtocolBinding.GRPC, version, address, one.tenant, is_secure=is_secure)
