"""A2A's gRPC binding, in v1.0 and v0.3: handlers for the calls of a gRPC server."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import (
    BRIDGE,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    WireError,
    to_wire_error,
)
from trunkline.a2a_wire.protocol import AGENT_KEY, EVENT_ID_KEY, RESUME_EXTENSION
from trunkline.a2a_wire.v0_3.file_bytes import (
    decode_file_bytes,
    encode_file_bytes,
    uses_raw_file_bytes,
)
from trunkline.core.json_values import serialize_for_a2a, update_struct
from trunkline.core.printable import truncate_utf8
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.a2a.bindings.grpc_messages import parse_request
from trunkline_bridge.a2a.operations import request_parser as parser
from trunkline_bridge.a2a.operations.operation_table import StreamOperation, UnaryOperation
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.projection import WireEvent
from trunkline_bridge.a2a.versions.grpc_service import GrpcMethod, GrpcService
from trunkline_bridge.a2a.versions.grpc_status import (
    GrpcContext,
    MetadataPairs,
    abort,
    error_text,
    status_code,
)
from trunkline_bridge.a2a.versions.v0_3 import grpc_methods as v0_3
from trunkline_bridge.a2a.versions.v1_0 import grpc_methods as v1_0
from trunkline_bridge.callers.caller import Caller, CallerFactory, extension_headers, resolve_agent
from trunkline_bridge.callers.version_header import check_version
from trunkline_bridge.http import tracing
from trunkline_bridge.http.client_certificates import certificate_name_of_call, parse_peer_address
from trunkline_bridge.http.connection_limits import MAX_HEAD_BYTES
from trunkline_bridge.http.in_flight import Connection, InFlightRequests, Peer
from trunkline_bridge.http.messages import PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT

SERVICES: Sequence[GrpcService] = (v1_0.SERVICE, v0_3.SERVICE)

_MESSAGE_TOO_LARGE = PAYLOAD_TOO_LARGE._replace(grpc_code=code_pb2.RESOURCE_EXHAUSTED)
_MESSAGE_TIMEOUT = REQUEST_TIMEOUT._replace(grpc_code=code_pb2.DEADLINE_EXCEEDED)
_SHUTDOWN = PeerUnavailableError(
    BRIDGE,
    "it is shutting down; try again, for a stream with the last id as last-event-id",
)
# One span name for all unknown methods: clients can invent any number of them.
_UNKNOWN_SPAN_NAME = "_OTHER"
_SHOWN_BYTES = 200
# The size of a header field beside its name and its value (RFC 7541, section 4.1).
_FIELD_BYTES = 32

_AGENT_KEY = AGENT_KEY.encode()

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_CallWork: TypeAlias = Callable[["CallMetadata", MetadataPairs], Awaitable[bytes | None]]


class CallMetadata:
    """The text metadata of a call: A2A's service parameters over gRPC.

    The values of a repeated key are joined by commas. Metadata beyond MAX_HEAD_BYTES is not read.
    """

    __slots__ = ("_context", "_is_too_large", "_values")

    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        values: defaultdict[str, list[str]] = defaultdict(list)
        size_bytes = 0
        for key, value in context.invocation_metadata() or ():
            size_bytes += len(key) + len(value) + _FIELD_BYTES
            if size_bytes > MAX_HEAD_BYTES:
                break
            if isinstance(value, str):
                values[key].append(value)
        self._values = {key: ", ".join(repeated) for key, repeated in values.items()}
        self._is_too_large = size_bytes > MAX_HEAD_BYTES

    def check_size(self) -> None:
        """Check that all metadata was read.

        grpc's own limit is 160 KiB for clients that have confirmed its settings, and 16 MiB for
        others. A call that waits for its message would hold as much.

        Raises:
            WireError: there is more.
        """
        if self._is_too_large:
            text = f"the metadata is larger than {MAX_HEAD_BYTES} bytes; shorten it"
            raise WireError(_MESSAGE_TOO_LARGE, text)

    def get(self, name: bytes) -> str | None:
        """Return a value by its key in lower case."""
        return self._values.get(name.decode("ascii"))

    @property
    def peer(self) -> Peer:
        """The client that made the call."""
        name = certificate_name_of_call(self._context.auth_context())
        return Peer(parse_peer_address(self._context.peer()), name)

    def trace_context(self) -> dict[str, str]:
        """Return the headers of W3C Trace Context."""
        return {
            key: self._values[key] for key in ("traceparent", "tracestate") if key in self._values
        }


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on the size of a call's message and on the time for it to arrive."""

    max_bytes: int
    timeout_s: float

    async def receive(self, context: GrpcContext) -> bytes:
        """Return the message of a call.

        Raises:
            WireError: the message is too large, did not arrive in time, or is missing.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await context.read()
        except TimeoutError:
            text = f"the message did not arrive within {self.timeout_s:g} s; send it again"
            raise WireError(_MESSAGE_TIMEOUT, text) from None
        if not isinstance(body, bytes):
            # grpc returns its EOF object: the client sent nothing, or a message too large for grpc.
            raise WireError(INVALID_REQUEST, "the call has no message; send one")
        if len(body) > self.max_bytes:
            text = f"the message is larger than {self.max_bytes} bytes; send large content by url"
            raise WireError(_MESSAGE_TOO_LARGE, text)
        return body


class UnknownMethods(grpc.GenericRpcHandler):
    """Rejects calls of unknown methods. The error names the services or methods that exist."""

    def __init__(self, services: Sequence[GrpcService]) -> None:
        self._services = services

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Handler:
        """Return a handler that rejects the call."""
        error, text = self._build_error(handler_call_details.method)

        async def reject(_requests: object, context: GrpcContext) -> None:
            metadata = CallMetadata(context)
            with tracing.grpc_call_span(_UNKNOWN_SPAN_NAME, metadata.trace_context()) as response:
                tracing.record_grpc_status(status_code(error).name, error.kind.reason)
            await abort(context, error, text=text, trailing=_trace_metadata(response))

        return grpc.stream_stream_rpc_method_handler(reject)

    def _build_error(self, path: str) -> tuple[WireError, str]:
        """Return the error for a path, and its text beside the status."""
        name, _, method = path.removeprefix("/").rpartition("/")
        services = self._services
        service = next((service for service in services if service.name == name), None)
        if service is None:
            names = " and ".join(service.name for service in services)
            text = f"no service {_quote_name(name)} here; A2A is served as {names}"
        else:
            owner = next((other for other in services if method in _method_names(other)), None)
            text = f"{name} has no method {_quote_name(method)}"
            if owner is not None:
                text += f"; {owner.name} of A2A {owner.version} has it"
            else:
                text += f"; it has {', '.join(_method_names(service))}"
        error = WireError(METHOD_NOT_FOUND, text, {"method": path.removeprefix("/")})
        return error, service.error_text(error) if service is not None else error_text(error)


class GrpcBinding:
    """Handlers for the calls of both versions.

    A call ends when its client leaves. Neither that nor the call's deadline ends a task of the
    mesh.
    """

    def __init__(
        self,
        operations: Operations,
        callers: CallerFactory,
        limits: MessageLimits,
        *,
        is_strict: bool = False,
    ) -> None:
        """With `is_strict`, a call of v1.0 that names no version is rejected."""
        self.limits = limits
        self._operations = operations
        self._callers = callers
        self._is_strict = is_strict
        self._in_flight = InFlightRequests()

    def __len__(self) -> int:
        """Return the number of calls in flight."""
        return len(self._in_flight)

    def abort_all(self) -> None:
        """End all calls in flight, each with an error that tells the client how to continue."""
        self._in_flight.abort_all()

    def handlers(self, service: GrpcService, *, agent: str = "") -> dict[str, _Handler]:
        """Return the handlers of a service by method; they receive and send bytes.

        All calls are for `agent`. If it is empty, the metadata or the tenant of a call names the
        agent, and a call without a name is for the default agent.

        All of them receive a stream of messages, because grpc would hold a single message in memory
        until the call ends.
        """
        handlers: dict[str, _Handler] = {}
        for method in service.methods:
            operation = method.operation
            if isinstance(operation, StreamOperation):
                stream = self._stream_handler(service, method, operation, agent)
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(stream)
            else:
                unary = self._unary_handler(service, method, operation, agent)
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(unary)
        return handlers

    def _unary_handler(
        self, service: GrpcService, method: GrpcMethod, operation: UnaryOperation, agent: str
    ) -> Callable[..., Any]:
        async def serve(_messages: object, context: GrpcContext) -> bytes:
            async def work(metadata: CallMetadata, trace: MetadataPairs) -> bytes:
                caller, request = await self._receive(service, method, context, metadata, agent)
                await _send_initial_metadata(context, caller, metadata, trace)
                result = await operation.call(self._operations, caller, request)
                return _encode(method.from_core(result), service, caller)

            return await self._serve(service, method, context, work)

        return serve

    def _stream_handler(
        self, service: GrpcService, method: GrpcMethod, operation: StreamOperation, agent: str
    ) -> Callable[..., Any]:
        # A coroutine that writes, not a generator: if a call is cancelled, grpc leaves a generator
        # and everything it refers to for the garbage collector.
        async def serve(_messages: object, context: GrpcContext) -> None:
            async def work(metadata: CallMetadata, trace: MetadataPairs) -> None:
                caller, request = await self._receive(service, method, context, metadata, agent)
                async with (
                    operation.open(self._operations, caller, request) as events,
                    aclosing(events),
                ):
                    await _send_initial_metadata(context, caller, metadata, trace)
                    with_ids = RESUME_EXTENSION in caller.extensions
                    async for ready in events:
                        for event in ready:
                            message = _render_event(event, method, with_ids=with_ids)
                            # Waits for a slow client, which delays only its own stream.
                            await context.write(_encode(message, service, caller))
                        # The next events may take days: release these.
                        ready = ()

            await self._serve(service, method, context, work)

        return serve

    async def _receive(
        self,
        service: GrpcService,
        method: GrpcMethod,
        context: GrpcContext,
        metadata: CallMetadata,
        agent: str,
    ) -> tuple[Caller, Any]:
        """Return the caller and the valid core request.

        Raises:
            WireError: the call is invalid.
        """
        metadata.check_size()
        identity = await self._callers.authenticate(metadata)
        check_version(metadata, version=service.version, is_strict=self._is_strict)
        parsed = await parse_request(method.request, await self.limits.receive(context))
        if service.has_file_bytes and uses_raw_file_bytes(metadata.get(b"user-agent") or ""):
            encode_file_bytes(parsed.request)
        request = method.to_core(parsed.request)
        agent = resolve_agent(agent, [metadata.get(_AGENT_KEY) or ""], field=AGENT_KEY)
        caller = self._callers.build_caller(
            identity,
            metadata,
            agent=resolve_agent(agent, [request.tenant]),
            version=service.version,
        )
        tracing.name_request_span(method.name, caller.agent)
        # Report a missing permission or agent before any other error in the request.
        id_fields = method.operation.wire.id_fields
        task_id = getattr(request, id_fields[0]) if id_fields else ""
        await self._operations.authorizer.check(caller, method.operation.permission, task_id)
        method.check(request)
        if parsed.is_deep and isinstance(request, a2a_pb2.SendMessageRequest):
            parser.check_nesting(request)
        return caller, request

    async def _serve(
        self, service: GrpcService, method: GrpcMethod, context: GrpcContext, work: _CallWork
    ) -> bytes:
        metadata = CallMetadata(context)
        result: bytes | None = None
        error: WireError | None = None

        async def report_end(reason: Exception | None) -> None:
            nonlocal error
            error = to_wire_error(reason or _SHUTDOWN)

        name = f"{service.name}/{method.name}"
        with tracing.grpc_call_span(name, metadata.trace_context()) as traceresponse:
            # At the end, too: a call that fails early has no initial metadata.
            trace = _trace_metadata(traceresponse)
            context.set_trailing_metadata(trace)
            # grpc cancels this task when the client disconnects.
            async with self._in_flight.track(Connection(), send_abort=report_end):
                try:
                    result = await work(metadata, trace)
                except grpc.aio.BaseError:
                    # The client disconnected during a write.
                    pass
                except Exception as failure:  # noqa: BLE001  every error is reported to the client
                    error = to_wire_error(failure)
            if error is None:
                tracing.record_grpc_status("OK")
            else:
                tracing.record_grpc_status(status_code(error).name, error.kind.reason)
        if error is not None:
            await abort(context, error, text=service.error_text(error), trailing=trace)
        return result or b""


async def _send_initial_metadata(
    context: GrpcContext, caller: Caller, metadata: CallMetadata, trace: MetadataPairs
) -> None:
    """Report the trace and the active extensions, under the name that the client used for them."""
    active = extension_headers(caller, metadata)
    await context.send_initial_metadata((*active.items(), *trace))


def _trace_metadata(traceresponse: str) -> MetadataPairs:
    return (("traceresponse", traceresponse),) if traceresponse else ()


def _render_event(event: WireEvent, method: GrpcMethod, *, with_ids: bool) -> Message:
    response = event.response
    # A direct reply is not in a journal, so a stream can't resume from it.
    if with_ids and event.sequence:
        payload = getattr(response, response.WhichOneof("payload") or "task")
        update_struct(payload.metadata, {EVENT_ID_KEY: event.id})
    return method.from_core(response)


def _encode(message: Message, service: GrpcService, caller: Caller) -> bytes:
    if service.has_file_bytes and uses_raw_file_bytes(caller.user_agent):
        decode_file_bytes(message)
    return serialize_for_a2a(message)


def _method_names(service: GrpcService) -> list[str]:
    return [method.name for method in service.methods]


def _quote_name(name: str) -> str:
    return repr(truncate_utf8(name, _SHOWN_BYTES))
