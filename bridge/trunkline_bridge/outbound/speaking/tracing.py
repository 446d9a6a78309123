"""One client span for each call of a remote agent, in which the call's trace context is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline_bridge.outbound.interfaces import Binding, Interface

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


@contextmanager
def calling(method: str, interface: Interface) -> Iterator[None]:
    """Make a span around a call, its stream included, named by A2A's method."""
    url = interface.url if "://" in interface.url else f"//{interface.url}"
    parts = urlsplit(url)
    attributes: dict[str, AttributeValue] = {
        telemetry.A2A_METHOD_NAME: method,
        telemetry.A2A_PROTOCOL_VERSION: interface.version,
        telemetry.RPC_SYSTEM_NAME: "grpc" if interface.binding is Binding.GRPC else "jsonrpc",
        telemetry.SERVER_ADDRESS: parts.hostname or "",
    }
    if interface.binding is Binding.REST:
        attributes[telemetry.RPC_SYSTEM_NAME] = "http"
    if parts.port is not None:
        attributes[telemetry.SERVER_PORT] = parts.port
    if interface.tenant:
        attributes[telemetry.A2A_TENANT] = interface.tenant
    with telemetry.span(method, kind=SpanKind.CLIENT, attributes=attributes):
        yield
