"""The interface of the client's transports, each in the core's data model."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

from google.protobuf.message import Message
from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline.a2a.v0_3.agent_card_pb2 import AgentCard as AgentCardV03
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.interfaces import Interface, ProtocolBinding
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.protocol import (
    EXTENSIONS_HEADER,
    LAST_EVENT_ID_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    RESUME_EXTENSION,
    TIMEOUT_HEADER,
    TREE_HEADER,
    V0_3,
    VERSION_HEADER,
)
from trunkline.a2a_wire.v0_3.methods import V03Method
from trunkline.errors import PeerError, PeerTimeoutError, UnsupportedOperationError
from trunkline.json_values import message_to_dict

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


_TRACERESPONSE: Final = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-[^-]*-[^-]*")
CALL_TIMEOUT_S: Final = 30.0
"""Limit of a unary call; sending a message may take longer."""
_RPC_SYSTEMS: Final[Mapping[ProtocolBinding, str]] = {
    ProtocolBinding.JSONRPC: "jsonrpc",
    ProtocolBinding.REST: "http",
    ProtocolBinding.GRPC: "grpc",
}


def parse_trace_id(traceresponse: str) -> str:
    """Return the trace id of a W3C `traceresponse` header; empty if it is malformed or zeros."""
    match = _TRACERESPONSE.fullmatch(traceresponse)
    return match[1] if match is not None and match[1].strip("0") else ""


class RemoteEvent(NamedTuple):
    """An event of a remote task's stream."""

    response: a2a_pb2.StreamResponse
    id: str = ""
    """The event id, to resume after this event, or empty if the peer sent no id."""
    trace_id: str = ""
    """The trace of the request, from the response header `traceresponse`; empty without it."""
    value: Json | None = None
    """The event's JSON as it came, in the version of the interface; None over gRPC."""


RemoteEvents: TypeAlias = AsyncIterator[RemoteEvent]
LATE_EVENTS_S: Final = 1.0
"""A stream is read for so long after the end of its task."""


async def read_turn(
    events: RemoteEvents, *, peer: str, is_over: Callable[[], bool], has_ended: Callable[[], bool]
) -> AsyncGenerator[RemoteEvent]:
    """Yield events until the turn `is_over`; if its task `has_ended`, also the late events.

    Both are asked after each event. Errors of late events are ignored.
    """
    async for event in events:
        yield event
        if is_over():
            break
    if has_ended():
        async with aclosing(read_late_events(events, peer=peer)) as late_events:
            with suppress(PeerError):
                async for event in late_events:
                    yield event


async def read_late_events(events: RemoteEvents, *, peer: str) -> AsyncGenerator[RemoteEvent]:
    """Yield the events that follow the end of a task, until the stream ends.

    Agents close the stream at the end of the task (A2A 1.0, section 3.1.2), but some report the end
    before their last artifact.

    Raises:
        PeerTimeoutError: The stream did not end within `LATE_EVENTS_S`.
        PeerError: The stream broke.
    """
    ends_at_s = asyncio.get_running_loop().time() + LATE_EVENTS_S
    while True:
        try:
            async with asyncio.timeout_at(ends_at_s):
                event = await anext(events, None)
        except TimeoutError:
            raise PeerTimeoutError(peer, "its stream did not end with its task") from None
        if event is None:
            return
        yield event


class CallOptions(NamedTuple):
    """Options of a call, which are headers in every binding."""

    resumes: bool = False
    """Activate the resume extension."""
    last_event_id: str = ""
    """The event after which a stream is resumed, or empty if it is not resumed."""
    timeout_s: float | None = None
    """Seconds until the task's deadline; only Trunkline's own bridge reads it."""
    tree: str = ""
    """The value of the header Trunkline-Tree for a new task. If empty, it is not sent."""
    headers: tuple[tuple[str, str], ...] = ()
    """More service parameters. They replace the client's own of the same name."""


class Response(NamedTuple):
    """The response of an operation. Both functions raise PeerProtocolError if it can't be read."""

    read: Callable[[], Any]
    """Returns the message of the core model; for SendMessage, an event."""
    json: Callable[[], Json]
    """Returns the JSON of v1.0. Only responses over gRPC or in v0.3 are converted."""


class Transport(Protocol):
    """One version of A2A over one binding, at one address.

    Every method raises NotProcessedError if the request can be sent again, ConnectionLostError or
    PeerTimeoutError if the peer may have processed it, PeerRefusedError for an error of the peer,
    and PeerProtocolError for a response that breaks A2A's rules.
    """

    async def call(
        self, operation: Operation, request: Message, options: CallOptions, *, timeout_s: float
    ) -> Response:
        """Call an operation with one response. Over v0.3 the older form of the operation is called.

        Raises:
            UnsupportedOperationError: v0.3 does not have the operation.
        """

    def stream(
        self, operation: Operation, request: Message, options: CallOptions
    ) -> AbstractAsyncContextManager[RemoteEvents]:
        """Call an operation with a stream, and open the stream."""


def find_v0_3(operation: Operation) -> V03Method:
    """Return an operation in v0.3. UnsupportedOperationError: v0.3 does not have it."""
    if operation.v0_3 is None:
        raise UnsupportedOperationError(operation.name, "A2A 0.3 does not have it")
    return operation.v0_3


def response_json(operation: Operation, response: object) -> Json:
    """Return the JSON of v1.0 of a response that is a message, or JSON that has no reader."""
    if isinstance(response, AgentCardV03):
        return message_to_dict(response)
    if isinstance(response, Message):
        return operation.response_json(response) or {}
    return response if isinstance(response, dict) else {}


def service_headers(version: str, options: CallOptions) -> Mapping[str, str]:
    """Return the headers of a call; over gRPC they are its metadata."""
    headers = {VERSION_HEADER: version}
    if options.resumes:
        headers[EXTENSIONS_HEADER] = RESUME_EXTENSION
        if version == V0_3:
            headers[LEGACY_EXTENSIONS_HEADER] = RESUME_EXTENSION
    if options.last_event_id:
        headers[LAST_EVENT_ID_HEADER] = options.last_event_id
    if options.tree:
        headers[TREE_HEADER.lower()] = options.tree
    if options.timeout_s is not None:
        headers[TIMEOUT_HEADER.lower()] = f"{options.timeout_s:.3f}"
    headers.update((name.lower(), value) for name, value in options.headers)
    return headers


@contextmanager
def call_span(method: str, interface: Interface) -> Iterator[None]:
    """Open a client span named after the A2A method; it lasts until the call's stream ends."""
    url = interface.url if "://" in interface.url else f"//{interface.url}"
    parts = urlsplit(url)
    attributes: dict[str, AttributeValue] = {
        telemetry.A2A_METHOD_NAME: method,
        telemetry.A2A_PROTOCOL_VERSION: interface.version,
        telemetry.RPC_SYSTEM_NAME: _RPC_SYSTEMS[interface.binding],
        telemetry.SERVER_ADDRESS: parts.hostname or "",
    }
    if parts.port is not None:
        attributes[telemetry.SERVER_PORT] = parts.port
    if interface.tenant:
        attributes[telemetry.A2A_TENANT] = interface.tenant
    with telemetry.span(method, kind=SpanKind.CLIENT, attributes=attributes):
        yield
