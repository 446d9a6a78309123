"""The gRPC transport: the services lf.a2a.v1 of v1.0 and a2a.v1 of v0.3."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from trunkline import telemetry
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import (
    ConnectionLostError,
    ErrorObject,
    NotProcessedError,
    refusal_error,
)
from trunkline.a2a_client.http import CONNECT_TIMEOUT_S, MAX_BODY_BYTES, WireObserver
from trunkline.a2a_client.interfaces import Interface
from trunkline.a2a_client.tls import ChannelSecurity
from trunkline.a2a_client.transport import (
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    Response,
    call_span,
    find_v0_3,
    parse_trace_id,
    response_json,
    service_headers,
)
from trunkline.a2a_wire.json_values import dumps
from trunkline.a2a_wire.operations import SEND_MESSAGE, Operation
from trunkline.a2a_wire.protocol import EVENT_ID_KEY, V0_3, V1_0
from trunkline.errors import PeerProtocolError, PeerTimeoutError
from trunkline.json_values import (
    find_exact_number,
    message_to_dict,
    read_text,
    remove_member,
    serialize_for_a2a,
)
from trunkline.network import is_this_machine

_STATUS_DETAILS_KEY = "grpc-status-details-bin"
_REASONS: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "METHOD_NOT_FOUND",
    grpc.StatusCode.NOT_FOUND: "TASK_NOT_FOUND",
    grpc.StatusCode.INVALID_ARGUMENT: "INVALID_PARAMS",
    grpc.StatusCode.FAILED_PRECONDITION: "UNSUPPORTED_OPERATION",
    grpc.StatusCode.UNAUTHENTICATED: "UNAUTHENTICATED",
    grpc.StatusCode.PERMISSION_DENIED: "PERMISSION_DENIED",
    grpc.StatusCode.INTERNAL: "INTERNAL_ERROR",
    # The status of an exception that a servicer did not catch.
    grpc.StatusCode.UNKNOWN: "INTERNAL_ERROR",
}
_Parsed = TypeVar("_Parsed")


_SERVICES: Final = {V1_0: "/lf.a2a.v1.A2AService/", V0_3: "/a2a.v1.A2AService/"}
"""The path of the service of each version."""


def open_channel(
    interface: Interface, *, security: ChannelSecurity | None = None
) -> grpc.aio.Channel:
    """Open a channel to an address; `security` replaces the system's trusted certificates."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", MAX_BODY_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]
    if is_this_machine(interface.url):
        options.append(("grpc.enable_http_proxy", 0))
    if interface.is_secure:
        security = security or ChannelSecurity(grpc.ssl_channel_credentials())
        if security.server_name:
            options.append(("grpc.ssl_target_name_override", security.server_name))
        return grpc.aio.secure_channel(interface.url, security.credentials, options=options)
    return grpc.aio.insecure_channel(interface.url, options=options)


class GrpcTransport:
    """Calls a remote agent's gRPC endpoint."""

    def __init__(
        self,
        peer: str,
        channel: grpc.aio.Channel,
        interface: Interface,
        headers: Mapping[str, str],
        observer: WireObserver | None = None,
    ) -> None:
        """`headers` are sent with every call; they hold credentials."""
        self._observer = observer
        self._peer = peer
        self._channel = channel
        self._interface = interface
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._is_v0_3 = interface.version == V0_3
        self._path = _SERVICES[interface.version]

    async def call(
        self, operation: Operation, request: Message, options: CallOptions, *, timeout_s: float
    ) -> Response:
        """See Transport."""
        method, message = self._method(operation, request)
        with call_span(method, self._interface):
            await self._connect()
            body = serialize_for_a2a(message)
            stub: Any = self._channel.unary_unary(self._path + method)
            metadata = self._metadata(options)
            self._observe_request(method, message, metadata)
            try:
                data = await stub(body, metadata=metadata, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                raise self._error(error) from None
            response = self._parse(self._reader(operation), data)
            self._observe_response(response)
        return Response(lambda: response, lambda: response_json(operation, response))

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Message, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        method, message = self._method(operation, request)
        with call_span(method, self._interface):
            await self._connect()
            body = serialize_for_a2a(message)
            stub: Any = self._channel.unary_stream(self._path + method)
            metadata = self._metadata(options)
            self._observe_request(method, message, metadata)
            call = stub(body, metadata=metadata)
            try:
                yield self._events(call, self._reader(operation))
            finally:
                call.cancel()

    def _method(self, operation: Operation, request: Message) -> tuple[str, Message]:
        """Return the method of an operation, and the request in the version of the interface."""
        if self._is_v0_3:
            older = find_v0_3(operation)
            return older.grpc, older.write_request(request)
        message: Any = type(request)()
        message.CopyFrom(request)
        message.tenant = self._interface.tenant
        return operation.name, message

    def _reader(self, operation: Operation) -> Callable[[bytes], Any]:
        """Return the function that reads a response or an event."""
        if self._is_v0_3:
            older = find_v0_3(operation)
            return lambda data: older.read_response(older.response.FromString(data))
        # SendMessageResponse has the first two members of an event, with the same field numbers.
        kind = a2a_pb2.StreamResponse if operation is SEND_MESSAGE else operation.response
        return kind.FromString

    async def _events(
        self,
        call: Any,  # noqa: ANN401  a grpc call
        read: Callable[[bytes], a2a_pb2.StreamResponse],
    ) -> AsyncIterator[RemoteEvent]:
        trace_id: str | None = None
        try:
            async for data in call:
                if trace_id is None:
                    trace_id = _find_trace_id(await call.initial_metadata())
                response = self._parse(read, data)
                self._observe_response(response)
                yield RemoteEvent(response, _take_event_id(response), trace_id)
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None

    def _observe_request(
        self, method: str, request: Message, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        if self._observer is not None:
            target = f"gRPC {self._interface.url}{self._path}{method}"
            self._observer.request(target, dict(metadata), _as_json(request))

    def _observe_response(self, response: object) -> None:
        if self._observer is not None and isinstance(response, Message):
            self._observer.data(_as_json(response))

    async def _connect(self) -> None:
        """Connect before sending, so that a failure here means the request was not sent."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._channel.channel_ready()
        except TimeoutError:
            raise NotProcessedError(self._peer, "nothing answers at its address") from None

    def _parse(self, parse: Callable[[Any], _Parsed], data: object) -> _Parsed:
        try:
            parsed = parse(data)
        except (DecodeError, ValueError) as error:
            raise PeerProtocolError(self._peer, "its answer can't be read") from error
        # `exact_number` is our field, which A2A doesn't have. Its value was not validated.
        if (
            isinstance(parsed, Message)
            and isinstance(data, bytes)
            and find_exact_number(parsed, data)
        ):
            raise PeerProtocolError(self._peer, "its answer has a number that is not of A2A")
        return parsed

    def _metadata(self, options: CallOptions) -> tuple[tuple[str, str], ...]:
        fields = service_headers(self._interface.version, options)
        return tuple({**self._headers, **fields, **telemetry.inject()}.items())

    def _error(self, error: grpc.aio.AioRpcError) -> Exception:
        code, text = error.code(), error.details() or ""
        parsed = _parse_error(error)
        reason = parsed.reason
        if self._observer is not None:
            self._observer.response(f"{code.name}: {text}", {})
        match code:
            case grpc.StatusCode.UNAVAILABLE if reason:
                return NotProcessedError(self._peer, "it is not available")
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return ConnectionLostError(self._peer, "the connection broke")
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in text:
                limit = MAX_BODY_BYTES // 1024 // 1024
                return PeerProtocolError(self._peer, f"it sent an event over {limit} MiB")
            # Other reasons concern the request itself, so a retry would not help.
            case grpc.StatusCode.RESOURCE_EXHAUSTED if reason in ("", "RESOURCE_EXHAUSTED"):
                return NotProcessedError(self._peer, "it is overloaded")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return PeerTimeoutError(self._peer, "it took too long")
        return refusal_error(self._peer, text, reason or _REASONS.get(code, ""), parsed)


def _find_trace_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the trace of a call by its initial metadata, or ""."""
    values = (str(value) for name, value in metadata if name == "traceresponse")
    return next((parse_trace_id(value) for value in values), "")


def _as_json(message: Message) -> bytes:
    """Return a message for diagnostics, which can't show its bytes."""
    return dumps(message_to_dict(message)).encode()


def _parse_error(error: grpc.aio.AioRpcError) -> ErrorObject:
    """Read the details of an error; in v0.3 its reason is the name before a colon.

    grpc_status can't parse this: it rejects details whose text differs from the text of the
    status, and many servers send such details.
    """
    text = error.details() or ""
    for name, value in error.trailing_metadata() or ():
        if name == _STATUS_DETAILS_KEY and isinstance(value, bytes):
            info = _parse_error_info(value)
            return ErrorObject(text=text, metadata=dict(info.metadata), reason=info.reason)
    name = text.partition(":")[0]
    if not name.isidentifier() or not name.endswith("Error"):
        return ErrorObject(text=text)
    words = "".join(f"_{c}" if c.isupper() else c for c in name.removesuffix("Error"))
    return ErrorObject(text=text, reason=words.lstrip("_").upper())


def _parse_error_info(data: bytes) -> error_details_pb2.ErrorInfo:
    """Return the ErrorInfo of a serialized status, or an empty ErrorInfo."""
    info = error_details_pb2.ErrorInfo()
    with suppress(DecodeError):
        for detail in status_pb2.Status.FromString(data).details:
            if detail.Unpack(info):
                break
    return info


def _take_event_id(response: a2a_pb2.StreamResponse) -> str:
    """Remove the resume extension's event id from the event's metadata and return it."""
    payload = getattr(response, response.WhichOneof("payload") or "task")
    event_id = read_text(payload.metadata, EVENT_ID_KEY)
    remove_member(payload.metadata, EVENT_ID_KEY)
    if not payload.metadata.members:
        payload.ClearField("metadata")
    return event_id
