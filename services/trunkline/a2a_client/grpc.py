"""The gRPC transport: the services lf.a2a.v1 of v1.0 and a2a.v1 of v0.3."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from trunkline import telemetry
from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import (
    ConnectionLostError,
    ErrorObject,
    NotProcessedError,
    refusal_error,
)
from trunkline.a2a_client.http import CONNECT_TIMEOUT_S, MAX_BODY_BYTES, WireObserver
from trunkline.a2a_client.interfaces import Interface
from trunkline.a2a_client.operations import RemoteOperation
from trunkline.a2a_client.operations_v0_3 import find_v0_3
from trunkline.a2a_client.tls import ChannelSecurity
from trunkline.a2a_client.transport import (
    CALL_TIMEOUT_S,
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    call_span,
    parse_trace_id,
    service_headers,
)
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import EVENT_ID_KEY, V0_3, V1_0
from trunkline.a2a_wire.v0_3 import proto_reader
from trunkline.errors import PeerProtocolError, PeerTimeoutError
from trunkline.json_values import (
    find_exact_number,
    message_to_dict,
    read_text,
    remove_member,
    serialize_for_a2a,
)
from trunkline.network import is_this_machine
from trunkline.v1 import task_pb2

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


class _ServiceCodec(NamedTuple):
    """The service of one version: its path, and the builders and parsers of its messages."""

    path: str
    subscribe_method: str
    build_send: Callable[[a2a_pb2.SendMessageRequest, str], Message]
    """Takes the request and the tenant."""
    build_task_request: Callable[[str, str, str], Message]
    """Takes the method, the task id and the tenant."""
    parse_send_response: Callable[[bytes], a2a_pb2.StreamResponse]
    parse_event: Callable[[bytes], a2a_pb2.StreamResponse]
    parse_task: Callable[[bytes], task_pb2.Task]


def _v1_send(request: a2a_pb2.SendMessageRequest, tenant: str) -> Message:
    message = a2a_pb2.SendMessageRequest()
    message.CopyFrom(request)
    message.tenant = tenant
    return message


def _v1_task_request(method: str, task_id: str, tenant: str) -> Message:
    kinds: Mapping[str, Any] = {
        "GetTask": a2a_pb2.GetTaskRequest,
        "CancelTask": a2a_pb2.CancelTaskRequest,
        "SubscribeToTask": a2a_pb2.SubscribeToTaskRequest,
    }
    message: Message = kinds[method](id=task_id, tenant=tenant)
    return message


def _v1_send_response(data: bytes) -> a2a_pb2.StreamResponse:
    # SendMessageResponse has the same two members with the same field numbers.
    return a2a_pb2.StreamResponse.FromString(data)


def _v0_3_send(request: a2a_pb2.SendMessageRequest, _tenant: str) -> Message:
    return proto_reader.to_v0_3_send(request)


def _v0_3_task_request(method: str, task_id: str, _tenant: str) -> Message:
    kinds: Mapping[str, Any] = {
        "GetTask": v0_3_pb2.GetTaskRequest,
        "CancelTask": v0_3_pb2.CancelTaskRequest,
        "TaskSubscription": v0_3_pb2.TaskSubscriptionRequest,
    }
    message: Message = kinds[method](name=f"tasks/{task_id}")
    return message


_SERVICES: Final = {
    V1_0: _ServiceCodec(
        "/lf.a2a.v1.A2AService/",
        "SubscribeToTask",
        _v1_send,
        _v1_task_request,
        _v1_send_response,
        a2a_pb2.StreamResponse.FromString,
        task_pb2.Task.FromString,
    ),
    V0_3: _ServiceCodec(
        "/a2a.v1.A2AService/",
        "TaskSubscription",
        _v0_3_send,
        _v0_3_task_request,
        lambda data: proto_reader.from_v0_3_send_response(
            v0_3_pb2.SendMessageResponse.FromString(data)
        ),
        lambda data: proto_reader.from_v0_3_stream_response(
            v0_3_pb2.StreamResponse.FromString(data)
        ),
        lambda data: proto_reader.from_v0_3_task(v0_3_task_pb2.Task.FromString(data)),
    ),
}


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
        self._service = _SERVICES[interface.version]

    async def send(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """See Transport."""
        message = self._service.build_send(request, self._interface.tenant)
        parse = self._service.parse_send_response
        return await self._unary("SendMessage", message, parse, options, timeout_s)

    @asynccontextmanager
    async def stream(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        message = self._service.build_send(request, self._interface.tenant)
        async with self._stream("SendStreamingMessage", message, options) as events:
            yield events

    @asynccontextmanager
    async def subscribe(self, task_id: str, options: CallOptions) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        method = self._service.subscribe_method
        message = self._service.build_task_request(method, task_id, self._interface.tenant)
        async with self._stream(method, message, options) as events:
            yield events

    async def get(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        return await self._task("GetTask", task_id)

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        return await self._task("CancelTask", task_id)

    async def call(
        self,
        operation: RemoteOperation,
        request: Message,
        options: CallOptions,
        *,
        timeout_s: float,
    ) -> Json:
        """See Transport."""
        if self._interface.version == V0_3:
            older = find_v0_3(operation)
            built, read = older.build(request), older.response.FromString
            answer = await self._unary(older.grpc_method, built, read, options, timeout_s)
            return self._parse(older.read_response, answer)
        message: Any = type(request)()
        message.CopyFrom(request)
        message.tenant = self._interface.tenant
        parse = operation.parse
        response = await self._unary(operation.name, message, parse, options, timeout_s)
        return operation.write(response)

    async def _task(self, method: str, task_id: str) -> task_pb2.Task:
        message = self._service.build_task_request(method, task_id, self._interface.tenant)
        parse = self._service.parse_task
        return await self._unary(method, message, parse, CallOptions(), CALL_TIMEOUT_S)

    async def _unary(
        self,
        method: str,
        request: Message,
        parse: Callable[[bytes], _Parsed],
        options: CallOptions,
        timeout_s: float,
    ) -> _Parsed:
        with call_span(method, self._interface):
            await self._connect()
            body = serialize_for_a2a(request)
            stub: Any = self._channel.unary_unary(self._service.path + method)
            metadata = self._metadata(options)
            self._observe_request(method, request, metadata)
            try:
                data = await stub(body, metadata=metadata, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                raise self._error(error) from None
            response = self._parse(parse, data)
            self._observe_response(response)
            return response

    @asynccontextmanager
    async def _stream(
        self, method: str, request: Message, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        with call_span(method, self._interface):
            await self._connect()
            body = serialize_for_a2a(request)
            stub: Any = self._channel.unary_stream(self._service.path + method)
            metadata = self._metadata(options)
            self._observe_request(method, request, metadata)
            call = stub(body, metadata=metadata)
            try:
                yield self._events(call)
            finally:
                call.cancel()

    async def _events(self, call: Any) -> AsyncIterator[RemoteEvent]:  # noqa: ANN401  a grpc call
        trace_id: str | None = None
        try:
            async for data in call:
                if trace_id is None:
                    trace_id = _find_trace_id(await call.initial_metadata())
                response = self._parse(self._service.parse_event, data)
                self._observe_response(response)
                yield RemoteEvent(response, _take_event_id(response), trace_id)
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None

    def _observe_request(
        self, method: str, request: Message, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        if self._observer is not None:
            target = f"gRPC {self._interface.url}{self._service.path}{method}"
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
        # A field of ours, which A2A doesn't have. Nobody has checked that it is a number.
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

    grpc_status can't parse this: it rejects details whose text differs from that of the status,
    which many servers send.
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
    """Return the ErrorInfo of a serialized status; an empty one if it has none."""
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
