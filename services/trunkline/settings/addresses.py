"""Addresses to listen on, and checks of who can reach them."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trunkline.errors import ConfigurationError
from trunkline.network import is_loopback

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address to listen on. Port 0: a free port."""

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

    def with_bound_port(self, bound: str) -> str:
        """Return the address as text, with the port of a bound address in place of port 0."""
        return str(self if self.port else HostPort(self.host, HostPort.parse(bound).port))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls._validate)

    @classmethod
    def _validate(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError(f"expected HOST:PORT, got {value!r}")
        return cls.parse(value)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_wildcard(self) -> bool:
        """It stands for all interfaces of the machine."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - looked for, not listened on

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# The other way to make a public address safe.
_OR_ASK = dict.fromkeys(
    ("http", "a2a-grpc"), "; or let callers say who they are (api_keys_file or jwt_keys)"
)


def check_exposure(name: str, address: HostPort, *, is_allowed: bool) -> None:
    """Refuse a non-loopback address by default, because callers are not authenticated.

    Raises:
        ConfigurationError: the address, that of setting `name`, is not loopback, and may not be.
    """
    if not (address.is_loopback or is_allowed):
        problem = (
            f"{address} can be reached from other machines, and callers are not authenticated; "
            "use 127.0.0.1, or give --insecure if that is what you want" + _OR_ASK.get(name, "")
        )
        raise ConfigurationError(where=f"--{name}", problem=problem)


def advertised_address(listen: HostPort, configured: str, *, mesh: HostPort) -> HostPort:
    """Return the address that others use for a listener. Port 0 stands for its bound port.

    `given` is what the operator says, `HOST` or `HOST:PORT`. Nothing is needed where the address
    says it itself, or where the way to a mesh on another machine leads from one of this machine's.

    Raises:
        ConfigurationError: `given` is neither, or it is needed.
    """
    if configured:
        return _read_advertised(configured)
    if not listen.is_wildcard:
        return listen
    found = "" if mesh.is_loopback or mesh.is_wildcard else _address_towards(mesh)
    if not found:
        problem = (
            f"{listen} stands for all addresses of this machine, and the others on the mesh have "
            "to know one: give --advertise HOST, or HOST:PORT"
        )
        raise ConfigurationError(where="--advertise", problem=problem)
    return HostPort(found, 0)


def _read_advertised(given: str) -> HostPort:
    is_bare = ":" not in given.rpartition("]")[2]
    try:
        address = HostPort.parse(f"{given}:0" if is_bare else given)
    except ValueError as error:
        raise ConfigurationError(where="--advertise", problem=f"{error}, or HOST") from error
    if address.is_wildcard:
        problem = f"{given!r} stands for any address; name one that others can reach"
        raise ConfigurationError(where="--advertise", problem=problem)
    return address


def _address_towards(mesh: HostPort) -> str:
    """Return this machine's address on the route to another one. Empty: there is no route yet."""
    try:
        for family, kind, _, _, place in socket.getaddrinfo(
            mesh.host, mesh.port, type=socket.SOCK_DGRAM
        ):
            # Nothing is sent. The system only looks up the route.
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                host = str(probe.getsockname()[0])
                return "" if HostPort(host, 0).is_loopback else host
    except OSError:
        pass
    return ""


def dial_address(address: str) -> str:
    """Return the address at which this machine reaches a listener on all interfaces."""
    bound = HostPort.parse(address)
    return str(HostPort("127.0.0.1", bound.port)) if bound.is_wildcard else address
