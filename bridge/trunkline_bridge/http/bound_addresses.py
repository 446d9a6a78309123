"""The addresses that the servers of a bridge have bound."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trunkline.settings import HostPort


@dataclass(slots=True)
class BoundAddresses:
    """The addresses of this bridge, filled in when its servers have bound them."""

    http: str = ""
    """URL without a trailing slash."""
    grpc: str = ""
    """HOST:PORT of the gRPC server, or an empty text if none runs."""
    agent_grpc: dict[str, str] = field(default_factory=dict)
    """HOST:PORT of the gRPC servers of single agents, by name."""

    def grpc_address_for(self, base_url: str, *, agent: str = "") -> str:
        """Return the gRPC address for a caller that reached `base_url`, or an empty text.

        It is the agent's own address, or the address of all agents if the name is empty. A server
        on all network interfaces has the host of the URL. A server on loopback is only for callers
        on this machine.
        """
        address = self.agent_grpc.get(agent, "") if agent else self.grpc
        if not address:
            return ""
        bound = HostPort.parse(address)
        host = urlsplit(base_url).hostname or ""
        if bound.is_wildcard:
            return str(HostPort(host, bound.port))
        if bound.is_loopback and not HostPort(host, bound.port).is_loopback:
            return ""
        return address
