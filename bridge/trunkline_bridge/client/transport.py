"""What a binding of A2A does for us, in the core model, whichever it is."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import task_pb2
from trunkline_bridge.client.interfaces import Interface, ProtocolBinding
from trunkline_bridge.protocol import RESUME_EXTENSION, V0_3

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


# How long a peer has for a whole answer; sends may wait for the end of a turn.
CALL_TIMEOUT_S: Final = 30.0


class RemoteEvent(NamedTuple):
    """An event of a remote task, and the id behind which its stream can be taken up."""

    response: a2a_pb2.StreamResponse
    id: str = ""


RemoteEvents: TypeAlias = AsyncIterator[RemoteEvent]


class CallOptions(NamedTuple):
    """What is said beside a request."""

    resumes: bool = False
    """The resume extension is activated."""
    last_event_id: str = ""
    timeout_s: float | None = None
    """When the task ends at the latest, for peers of our own kind."""


class Transport(Protocol):
    """One version of A2A over one binding, at one address.

    Every method raises NotTakenError when the peer can't have begun, BrokenError or
    PeerTimeoutError when that isn't known, PeerRefusedError for its own errors, and
    PeerProtocolError for what is no A2A.
    """

    async def send(
        self, request: a2a_pb2.SendMessageRequest, call: CallOptions, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """Send a message; return the task, or the message that answers it."""

    def stream(
        self, request: a2a_pb2.SendMessageRequest, call: CallOptions
    ) -> AbstractAsyncContextManager[RemoteEvents]:
        """Send a message and read the stream that answers it."""

    def subscribe(
        self, task_id: str, call: CallOptions
    ) -> AbstractAsyncContextManager[RemoteEvents]:
        """Read what becomes of a task."""

    async def get(self, task_id: str) -> task_pb2.Task:
        """Return a task with all of its history."""

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """Cancel a task and return it."""


def service_headers(version: str, call: CallOptions) -> Mapping[str, str]:
    """Return the headers, or the metadata, of a call."""
    found = {"a2a-version": version}
    if call.resumes:
        found["a2a-extensions"] = RESUME_EXTENSION
        if version == V0_3:
            found["x-a2a-extensions"] = RESUME_EXTENSION
    if call.last_event_id:
        found["last-event-id"] = call.last_event_id
    if call.timeout_s is not None:
        found["trunkline-timeout"] = f"{call.timeout_s:.3f}"
    return found


@contextmanager
def call_span(method: str, interface: Interface) -> Iterator[None]:
    """Make a span around a call, its stream included, named by A2A's method."""
    url = interface.url if "://" in interface.url else f"//{interface.url}"
    parts = urlsplit(url)
    attributes: dict[str, AttributeValue] = {
        telemetry.A2A_METHOD_NAME: method,
        telemetry.A2A_PROTOCOL_VERSION: interface.version,
        telemetry.RPC_SYSTEM_NAME: "grpc"
        if interface.binding is ProtocolBinding.GRPC
        else "jsonrpc",
        telemetry.SERVER_ADDRESS: parts.hostname or "",
    }
    if interface.binding is ProtocolBinding.REST:
        attributes[telemetry.RPC_SYSTEM_NAME] = "http"
    if parts.port is not None:
        attributes[telemetry.SERVER_PORT] = parts.port
    if interface.tenant:
        attributes[telemetry.A2A_TENANT] = interface.tenant
    with telemetry.span(method, kind=SpanKind.CLIENT, attributes=attributes):
        yield
