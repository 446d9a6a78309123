"""Addresses to listen on, and checks of their reachability."""

import ipaddress
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trunkline.core.network import is_loopback
from trunkline.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class _Parsed(ABC):
    """A value that settings give as text."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Parse the text.

        Raises:
            ValueError: the text has another form.
        """

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


@dataclass(frozen=True, slots=True)
class HostPort(_Parsed):
    """An address to listen on. Port 0 selects a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `HOST:PORT`; an IPv6 host is in brackets.

        Raises:
            ValueError: the text has another form.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host or "/" in text:
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

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_wildcard(self) -> bool:
        """True if it stands for all interfaces of the machine."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - only compared

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MeshAddress(_Parsed):
    """The addresses of the registries of a mesh, at least one. The first one names the mesh."""

    registries: tuple[HostPort, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse one `HOST:PORT`, or several that commas separate.

        Raises:
            ValueError: the text has another form, or an address is there twice.
        """
        registries = tuple(HostPort.parse(each.strip()) for each in text.split(","))
        if len(set(registries)) < len(registries):
            raise ValueError(f"{text!r} has an address twice")
        return cls(registries)

    @property
    def first(self) -> HostPort:
        """The address that names the mesh."""
        return self.registries[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses as texts."""
        return tuple(map(str, self.registries))

    def __str__(self) -> str:
        return ",".join(self.addresses)


def check_exposure(name: str, address: HostPort, *, is_allowed: bool) -> None:
    """Refuse a non-loopback address of the bridge, unless its callers are authenticated.

    Raises:
        ConfigurationError: the address of setting `name` is not loopback, and `is_allowed` is
            false.
    """
    if not (address.is_loopback or is_allowed):
        problem = (
            f"{address} can be reached from other machines, and callers are not authenticated; "
            "use 127.0.0.1, or give --insecure if that is what you want; or authenticate callers "
            "(api_keys_file or jwt_keys)"
        )
        raise ConfigurationError(where=f"--{name}", problem=problem)


def advertised_address(listen: HostPort, configured: str, *, mesh: HostPort) -> HostPort:
    """Return the address by which other processes reach a listener.

    Port 0 stands for the bound port of the listener. `configured` is `HOST`, `HOST:PORT` or empty.
    If it is empty, the result is `listen`, or for a wildcard address this machine's address on the
    route to `mesh`.

    Raises:
        ConfigurationError: `configured` is malformed or a wildcard address, or it is empty and
            there is no route to a mesh on another machine.
    """
    if configured:
        return _parse_advertised(configured)
    if not listen.is_wildcard:
        return listen
    host = "" if mesh.is_loopback or mesh.is_wildcard else _local_address_towards(mesh)
    if not host:
        problem = (
            f"{listen} stands for all addresses of this machine, and the others on the mesh have "
            "to know one: give --advertise HOST, or HOST:PORT"
        )
        raise ConfigurationError(where="--advertise", problem=problem)
    return HostPort(host, 0)


def _parse_advertised(text: str) -> HostPort:
    is_bare = ":" not in text.rpartition("]")[2]
    try:
        address = HostPort.parse(f"{text}:0" if is_bare else text)
    except ValueError as error:
        raise ConfigurationError(where="--advertise", problem=f"{error}, or HOST") from error
    if address.is_wildcard:
        problem = f"{text!r} stands for any address; name one that others can reach"
        raise ConfigurationError(where="--advertise", problem=problem)
    return address


def _local_address_towards(mesh: HostPort) -> str:
    """Return this machine's address on the route to `mesh`; empty without a route."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(
            mesh.host, mesh.port, type=socket.SOCK_DGRAM
        ):
            # Nothing is sent. The system only looks up the route.
            with socket.socket(family, kind) as probe:
                probe.connect(address)
                host = str(probe.getsockname()[0])
                return "" if HostPort(host, 0).is_loopback else host
    except OSError:
        pass
    return ""


def dial_address(address: str) -> str:
    """Return the address at which this machine reaches a listener on all interfaces."""
    bound = HostPort.parse(address)
    return str(HostPort("127.0.0.1", bound.port)) if bound.is_wildcard else address
