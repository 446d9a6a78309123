"""A call's metadata as A2A's service parameters."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.grpc_messages import parse_request
from trunkline_bridge.bindings.grpc_service import (
    GrpcMethod,
    GrpcService,
    StreamingGrpcMethod,
    UnaryGrpcMethod,
)
from trunkline_bridge.bindings.grpc_status import (
    GrpcContext,
    MetadataPairs,
    abort,
    error_text,
    status_code,
    truncate,
)
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.caller import Caller, CallerFactory, extension_headers, resolve_agent
from trunkline_bridge.edge.http import PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT
from trunkline_bridge.edge.in_flight import Connection, InFlightRequests
from trunkline_bridge.edge.version_header import check_version
from trunkline_bridge.errors import INVALID_REQUEST, METHOD_NOT_FOUND, WireError, to_wire_error
from trunkline_bridge.projection import WireEvent
from trunkline_bridge.protocol import EVENT_ID_KEY, RESUME_EXTENSION
from trunkline_bridge.versions.v0_3 import grpc_methods as v0_3
from trunkline_bridge.versions.v0_3.file_bytes import (
    decode_file_bytes,
    encode_file_bytes,
    uses_raw_file_bytes,
)
from trunkline_bridge.versions.v1_0 import grpc_methods as v1


class CallMetadata:
    """Metadata by key; what is given twice is one list. Values that are no text aren't A2A's."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str, str | bytes]] | None) -> None:
        values: dict[str, str] = {}
        for key, value in pairs or ():
            if isinstance(value, str):
                values[key] = value if key not in values else f"{values[key]}, {value}"
        self._values = values

    def get(self, name: bytes) -> str | None:
        """Return a value by its key in lower case."""
        return self._values.get(name.decode("ascii"))

    def carrier(self) -> dict[str, str]:
        """Return what W3C Trace Context has there."""
        return {
            key: self._values[key] for key in ("traceparent", "tracestate") if key in self._values
        }


_TOO_LARGE = PAYLOAD_TOO_LARGE._replace(grpc_code=code_pb2.RESOURCE_EXHAUSTED)
_MESSAGE_TIMEOUT = REQUEST_TIMEOUT._replace(grpc_code=code_pb2.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """What a call's message must fit."""

    max_bytes: int
    timeout_s: float

    async def receive(self, context: GrpcContext) -> bytes:
        """Return a call's message. Nothing of grpc's keeps it, however long the call stands.

        Raises:
            WireError: it is larger than the limit, has not come in time, or there is none.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await context.read()
        except TimeoutError:
            text = f"the message has not come within {self.timeout_s:g} s; send it again"
            raise WireError(_MESSAGE_TIMEOUT, text) from None
        if not isinstance(body, bytes):
            # grpc's mark for the end of what a client sends; also for what is too large for it.
            raise WireError(INVALID_REQUEST, "the call has no message; send one")
        if len(body) > self.max_bytes:
            text = f"the message is larger than {self.max_bytes} bytes; send large content by url"
            raise WireError(_TOO_LARGE, text)
        return body


# A name that strangers can't make many of.
_UNKNOWN_SPAN_NAME = "_OTHER"
_SHOWN_BYTES = 200


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers what no handler before it takes."""

    def __init__(self, services: Sequence[GrpcService]) -> None:
        self._services = services

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return what refuses a call, whether its client sends one message or many."""
        error, text = self._refusal(handler_call_details.method)

        async def refuse(_requests: object, context: GrpcContext) -> None:
            metadata = CallMetadata(context.invocation_metadata())
            with tracing.grpc_call_span(_UNKNOWN_SPAN_NAME, metadata.carrier()) as told:
                tracing.record_failure(error.kind.reason)
                tracing.record_grpc_code(status_code(error).name)
            trailing = (("traceresponse", told),) if told else ()
            await abort(context, error, text=text, trailing=trailing)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _refusal(self, path: str) -> tuple[WireError, str]:
        """Return the error for a path, and what is said of it beside its status."""
        name, _, method = path.removeprefix("/").rpartition("/")
        known = next((one for one in self._services if one.name == name), None)
        if known is None:
            names = " and ".join(one.name for one in self._services)
            text = f"no service {_quote_name(name)} here; A2A is served as {names}"
        else:
            owner = next((one for one in self._services if method in _method_names(one)), None)
            text = f"{name} has no method {_quote_name(method)}"
            if owner is not None:
                text += f"; {owner.name} has it, of A2A {owner.version}"
            else:
                text += f"; it has {', '.join(_method_names(known))}"
        error = WireError(METHOD_NOT_FOUND, text, {"method": path.removeprefix("/")})
        return error, known.error_text(error) if known is not None else error_text(error)


def _method_names(service: GrpcService) -> list[str]:
    return [method.name for method in service.methods]


def _quote_name(name: str) -> str:
    return repr(truncate(name, _SHOWN_BYTES))


SERVICES: Sequence[GrpcService] = (v1.SERVICE, v0_3.SERVICE)

_SHUTDOWN_PROBLEM = "it is shutting down; ask again, a stream with the last-event-id that came last"

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_CallWork: TypeAlias = Callable[[CallMetadata], Awaitable[bytes | None]]


class _CallResult:
    """What has come of a call."""

    __slots__ = ("error", "result")

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.error: WireError | None = None


class GrpcBinding:
    """Handlers of both versions, for whatever server they are added to.

    A call is answered as long as somebody is there to read it, and its end, its deadline's too,
    ends no task of the mesh; `cut` ends all with an error that says how to go on.
    """

    def __init__(
        self,
        operations: Operations,
        callers: CallerFactory,
        limits: MessageLimits,
        *,
        is_strict: bool = False,
    ) -> None:
        """With `is_strict`, a call of v1.0 that names no version is refused."""
        self.limits = limits
        self._operations = operations
        self._callers = callers
        self._is_strict = is_strict
        self._answers = InFlightRequests()

    def __len__(self) -> int:
        """How many answers are under way."""
        return len(self._answers)

    def abort_all(self) -> None:
        """End all answers that are under way, each with an error that says how to go on."""
        self._answers.abort_all()

    def handlers(self, service: GrpcService) -> dict[str, _Handler]:
        """Return a service's handlers by method. Messages come and go as bytes.

        To grpc the one message of a client is a stream: what it received itself, it would keep
        until the call is over.
        """
        found: dict[str, _Handler] = {}
        for method in service.methods:
            if isinstance(method, StreamingGrpcMethod):
                found[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._streaming(service, method)
                )
            else:
                found[method.name] = grpc.stream_unary_rpc_method_handler(
                    self._unary(service, method)
                )
        return found

    def _unary(self, service: GrpcService, method: UnaryGrpcMethod) -> Callable[..., Any]:
        async def serve(_messages: object, context: GrpcContext) -> bytes:
            async def work(metadata: CallMetadata) -> bytes:
                caller, request = await self._read(service, method, context, metadata)
                await _send_extensions(context, caller, metadata)
                answer = await method.call(self._operations, caller, request)
                return _encode(method.from_core(answer), service, caller)

            return await self._answered(service, method, context, work)

        return serve

    def _streaming(self, service: GrpcService, method: StreamingGrpcMethod) -> Callable[..., Any]:
        # A coroutine that writes, not a generator: a call that is cancelled would leave a generator
        # to the garbage collector, and with it all that it holds.
        async def serve(_messages: object, context: GrpcContext) -> None:
            async def work(metadata: CallMetadata) -> None:
                caller, request = await self._read(service, method, context, metadata)
                async with (
                    method.open(self._operations, caller, request) as events,
                    aclosing(events),
                ):
                    await _send_extensions(context, caller, metadata)
                    with_ids = RESUME_EXTENSION in caller.extensions
                    async for ready in events:
                        for event in ready:
                            # It waits until the client has room: a slow one slows itself alone.
                            said = _render_event(event, method, with_ids=with_ids)
                            await context.write(_encode(said, service, caller))
                        # What comes next may come in days.
                        ready = ()

            await self._answered(service, method, context, work)

        return serve

    async def _read(
        self, service: GrpcService, method: GrpcMethod, context: GrpcContext, metadata: CallMetadata
    ) -> tuple[Caller, Any]:
        """Return who calls, and with what. WireError: something isn't right."""
        identity = await self._callers.authenticate(metadata)
        check_version(metadata, version=service.version, is_strict=self._is_strict)
        given = await parse_request(method.request, await self.limits.receive(context))
        if service.has_old_files and uses_raw_file_bytes(metadata.get(b"user-agent") or ""):
            encode_file_bytes(given.request)
        request = method.to_core(given.request)
        caller = self._callers.build_caller(
            identity,
            metadata,
            agent=resolve_agent("", [request.tenant]),
            version=service.version,
        )
        tracing.name_request_span(method.name, caller.agent)
        # That an agent isn't there is said before the rest is looked at.
        self._operations.check_agent(caller.agent, _request_task_id(request))
        method.check(request)
        if given.is_deep and isinstance(request, a2a_pb2.SendMessageRequest):
            params.check_nesting(request)
        return caller, request

    async def _answered(
        self, service: GrpcService, method: GrpcMethod, context: GrpcContext, work: _CallWork
    ) -> bytes:
        metadata = CallMetadata(context.invocation_metadata())
        outcome = _CallResult()

        async def say_cut() -> None:
            outcome.error = to_wire_error(PeerUnavailableError("the bridge", _SHUTDOWN_PROBLEM))

        with tracing.grpc_call_span(f"{service.name}/{method.name}", metadata.carrier()) as told:
            trailing: MetadataPairs = (("traceresponse", told),) if told else ()
            context.set_trailing_metadata(trailing)
            # gRPC itself cancels us when the client has gone.
            await self._answers.run_on(
                Connection(), _run_call(outcome, work(metadata)), send_abort=say_cut
            )
            error = outcome.error
            if error is not None:
                tracing.record_failure(error.kind.reason)
            tracing.record_grpc_code("OK" if error is None else status_code(error).name)
        if error is not None:
            await abort(context, error, text=service.error_text(error), trailing=trailing)
        return outcome.result or b""


async def _run_call(outcome: _CallResult, work: Awaitable[bytes | None]) -> None:
    try:
        outcome.result = await work
    except grpc.aio.BaseError:
        # The client left while we wrote.
        return
    except Exception as error:  # noqa: BLE001  whatever it is, the client is told
        outcome.error = to_wire_error(error)


async def _send_extensions(context: GrpcContext, caller: Caller, metadata: CallMetadata) -> None:
    """Say which extensions are active, by the name that the client has for that."""
    if active := extension_headers(caller, metadata):
        await context.send_initial_metadata(tuple(active.items()))


def _render_event(event: WireEvent, method: StreamingGrpcMethod, *, with_ids: bool) -> Message:
    response = event.response
    # What is in no journal (a direct reply) has no place to resume from.
    if with_ids and event.sequence:
        shown = getattr(response, response.WhichOneof("payload") or "task")
        shown.metadata[EVENT_ID_KEY] = event.id
    return method.event_from_core(response)


def _encode(message: Message, service: GrpcService, caller: Caller) -> bytes:
    if service.has_old_files and uses_raw_file_bytes(caller.user_agent):
        decode_file_bytes(message)
    return message.SerializeToString()


def _request_task_id(request: Any) -> str:  # noqa: ANN401  any request of the core's
    """Return the task that a request is about, if it is about one."""
    return getattr(request, "task_id", "") or getattr(request, "id", "")
