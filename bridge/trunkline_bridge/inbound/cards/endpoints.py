"""Where an agent answers: the interfaces of its card."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from trunkline.settings import HostPort
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.errors import INVALID_REQUEST, WireError
from trunkline_bridge.wire.versions import V0_3, V1_0

_ORIGIN = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]{1,255}")


@dataclass(slots=True)
class Endpoints:
    """Where this bridge is served. Who serves it fills this in, as soon as an address is bound."""

    http: str = ""
    """Its URL, without a last slash."""
    grpc: str = ""
    """HOST:PORT of its gRPC edge; empty: there is none."""

    def grpc_seen_from(self, base_url: str) -> str:
        """Return where a caller that reached the bridge at a URL reaches its gRPC; may be nowhere.

        All interfaces of a machine have the name that the caller used; what listens on loopback
        alone is only for those that came by loopback.
        """
        if not self.grpc:
            return ""
        bound = HostPort.parse(self.grpc)
        host = urlsplit(base_url).hostname or ""
        if bound.is_any:
            return str(HostPort(host, bound.port))
        if bound.is_loopback and not HostPort(host, bound.port).is_loopback:
            return ""
        return self.grpc


def is_origin(text: str) -> bool:
    """Whether a request says by which scheme and host it came."""
    return _ORIGIN.fullmatch(text) is not None


def check_origin(origin: str) -> str:
    """Return scheme and host of a request, or raise the WireError for a Host that is none."""
    if not is_origin(origin):
        raise WireError(INVALID_REQUEST, "the Host header is missing or not a host's name")
    return origin


def interfaces(
    agent: str, *, base_url: str, grpc: str, is_default: bool, at_root: bool
) -> Iterator[agent_card_pb2.AgentInterface]:
    """Yield where an agent answers, what we like best first: v1.0 before v0.3.

    `at_root` is the default agent at the bridge's own URL. v0.3 has no way to name an agent over
    gRPC, so there only the default one answers.
    """
    rest_url = base_url if at_root else f"{base_url}/agents/{agent}"
    rpc_url = f"{base_url}/" if at_root else rest_url
    for version in (V1_0, V0_3):
        for url, binding in ((rpc_url, "JSONRPC"), (rest_url, "HTTP+JSON")):
            yield agent_card_pb2.AgentInterface(
                url=url, protocol_binding=binding, protocol_version=version
            )
        is_named = version == V1_0
        if grpc and (is_named or is_default):
            yield agent_card_pb2.AgentInterface(
                url=grpc,
                protocol_binding="GRPC",
                protocol_version=version,
                tenant=agent if is_named else "",
            )
