"""Addresses to listen on, and which of them other machines may reach."""

import ipaddress
from dataclasses import dataclass
from typing import Self

from trunkline.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where something listens. Port 0 lets the system pick one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`; an IPv6 host stands in brackets.

        Raises:
            ValueError: it isn't that; the text says what is wrong.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host:
            raise ValueError(f"{text!r} is not HOST:PORT")
        if not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"port of {text!r} is not a number from 0 to 65535")
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif ":" in host:
            raise ValueError(f"{text!r}: an IPv6 host stands in brackets, like [::1]:{port}")
        return cls(host=host, port=int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than `localhost` may be anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_any(self) -> bool:
        """Whether it stands for all interfaces of the machine."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - looked for, not listened on

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# What else makes it safe to be reachable.
_OR_ASK = dict.fromkeys(
    ("http", "a2a-grpc"), "; or let callers say who they are (api_keys_file or jwt_keys)"
)


def check_exposure(name: str, address: HostPort, *, is_allowed: bool) -> None:
    """Refuse to be reachable from other machines by accident: callers aren't authenticated.

    Raises:
        ConfigurationError: the address, that of setting `name`, is not loopback, and may not be.
    """
    if not (address.is_loopback or is_allowed):
        problem = (
            f"{address} can be reached from other machines, and callers are not authenticated; "
            "use 127.0.0.1, or give --insecure if that is what you want" + _OR_ASK.get(name, "")
        )
        raise ConfigurationError(where=f"--{name}", problem=problem)


def reachable(address: str) -> str:
    """Return where this machine reaches an address that may stand for all its interfaces."""
    bound = HostPort.parse(address)
    return str(HostPort("127.0.0.1", bound.port)) if bound.is_any else address
