"""Answers calls over gRPC: who asks, which agent, errors, traces, streams at the client's pace."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import PeerUnavailableError
from trunkline_bridge.errors import WireError, wire_error
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.caller import Caller, Callers, activated, agent_named
from trunkline_bridge.inbound.cards import RESUME_EXTENSION
from trunkline_bridge.inbound.cards.names import EVENT_ID_KEY
from trunkline_bridge.inbound.grpc import v0_3, v1
from trunkline_bridge.inbound.grpc.body import Bounds
from trunkline_bridge.inbound.grpc.content import read_request
from trunkline_bridge.inbound.grpc.metadata import Metadata
from trunkline_bridge.inbound.grpc.service import Method, Service, Streaming, Unary
from trunkline_bridge.inbound.grpc.status import Context, Pairs, abort, code_of
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.reading import params
from trunkline_bridge.inbound.streaming.presence import Answers, Connection
from trunkline_bridge.inbound.versions import check_version
from trunkline_bridge.projection import WireEvent
from trunkline_bridge.wire.v0_3_proto.files import (
    has_plain_files,
    read_plain_files,
    write_plain_files,
)

SERVICES: Sequence[Service] = (v1.SERVICE, v0_3.SERVICE)

_CUT = "it is shutting down; ask again, a stream with the last-event-id that came last"

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Work: TypeAlias = Callable[[Metadata], Awaitable[bytes | None]]


class _Outcome:
    """What has come of a call."""

    __slots__ = ("error", "result")

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.error: WireError | None = None


class Calls:
    """Handlers of both versions, for whatever server they are added to.

    A call is answered as long as somebody is there to read it, and its end, its deadline's too,
    ends no task of the mesh; `cut` ends all with an error that says how to go on.
    """

    def __init__(
        self, operations: Operations, callers: Callers, bounds: Bounds, *, is_strict: bool = False
    ) -> None:
        """With `is_strict`, a call of v1.0 that names no version is refused."""
        self.bounds = bounds
        self._operations = operations
        self._callers = callers
        self._is_strict = is_strict
        self._answers = Answers()

    def __len__(self) -> int:
        """How many answers are under way."""
        return len(self._answers)

    def cut(self) -> None:
        """End all answers that are under way, each with an error that says how to go on."""
        self._answers.cut()

    def handlers(self, service: Service) -> dict[str, _Handler]:
        """Return a service's handlers by method. Messages come and go as bytes.

        To grpc the one message of a client is a stream: what it received itself, it would keep
        until the call is over.
        """
        found: dict[str, _Handler] = {}
        for method in service.methods:
            if isinstance(method, Streaming):
                found[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._streaming(service, method)
                )
            else:
                found[method.name] = grpc.stream_unary_rpc_method_handler(
                    self._unary(service, method)
                )
        return found

    def _unary(self, service: Service, method: Unary) -> Callable[..., Any]:
        async def serve(_messages: object, context: Context) -> bytes:
            async def work(metadata: Metadata) -> bytes:
                caller, request = await self._read(service, method, context, metadata)
                await _tell_extensions(context, caller, metadata)
                answer = await method.answer(self._operations, caller, request)
                return _written(method.result(answer), service, caller)

            return await self._answered(service, method, context, work)

        return serve

    def _streaming(self, service: Service, method: Streaming) -> Callable[..., Any]:
        # A coroutine that writes, not a generator: a call that is cancelled would leave a generator
        # to the garbage collector, and with it all that it holds.
        async def serve(_messages: object, context: Context) -> None:
            async def work(metadata: Metadata) -> None:
                caller, request = await self._read(service, method, context, metadata)
                async with (
                    method.open(self._operations, caller, request) as events,
                    aclosing(events),
                ):
                    await _tell_extensions(context, caller, metadata)
                    with_ids = RESUME_EXTENSION in caller.extensions
                    async for ready in events:
                        for event in ready:
                            # It waits until the client has room: a slow one slows itself alone.
                            said = _said(event, method, with_ids=with_ids)
                            await context.write(_written(said, service, caller))
                        # What comes next may come in days.
                        ready = ()

            await self._answered(service, method, context, work)

        return serve

    async def _read(
        self, service: Service, method: Method, context: Context, metadata: Metadata
    ) -> tuple[Caller, Any]:
        """Return who calls, and with what. WireError: something isn't right."""
        identity = await self._callers.identify(metadata)
        check_version(metadata, version=service.version, is_strict=self._is_strict)
        given = await read_request(method.request, await self.bounds.receive(context))
        if service.has_old_files and has_plain_files(metadata.get(b"user-agent") or ""):
            read_plain_files(given.request)
        request = method.core(given.request)
        caller = self._callers.caller(
            identity,
            metadata,
            agent=agent_named("", [request.tenant]),
            version=service.version,
        )
        tracing.name_request(method.name, caller.agent)
        # That an agent isn't there is said before the rest is looked at.
        self._operations.check_agent(caller.agent, _task_of(request))
        method.check(request)
        if given.is_deep and isinstance(request, a2a_pb2.SendMessageRequest):
            params.check_fits(request)
        return caller, request

    async def _answered(
        self, service: Service, method: Method, context: Context, work: _Work
    ) -> bytes:
        metadata = Metadata(context.invocation_metadata())
        outcome = _Outcome()

        async def say_cut() -> None:
            outcome.error = wire_error(PeerUnavailableError("the bridge", _CUT))

        with tracing.call(f"{service.name}/{method.name}", metadata.carrier()) as told:
            trailing: Pairs = (("traceresponse", told),) if told else ()
            context.set_trailing_metadata(trailing)
            # gRPC itself cancels us when the client has gone.
            await self._answers.give_on(
                Connection(), _try(outcome, work(metadata)), say_cut=say_cut
            )
            error = outcome.error
            if error is not None:
                tracing.mark_failed(error.row.reason)
            tracing.note_code("OK" if error is None else code_of(error).name)
        if error is not None:
            await abort(context, error, text=service.text_of(error), trailing=trailing)
        return outcome.result or b""


async def _try(outcome: _Outcome, work: Awaitable[bytes | None]) -> None:
    try:
        outcome.result = await work
    except grpc.aio.BaseError:
        # The client left while we wrote.
        return
    except Exception as error:  # noqa: BLE001  whatever it is, the client is told
        outcome.error = wire_error(error)


async def _tell_extensions(context: Context, caller: Caller, metadata: Metadata) -> None:
    """Say which extensions are active, by the name that the client has for that."""
    if active := activated(caller, metadata):
        await context.send_initial_metadata(tuple(active.items()))


def _said(event: WireEvent, method: Streaming, *, with_ids: bool) -> Message:
    response = event.response
    # What is in no journal (a direct reply) has no place to resume from.
    if with_ids and event.sequence:
        shown = getattr(response, response.WhichOneof("payload") or "task")
        shown.metadata[EVENT_ID_KEY] = event.id
    return method.event(response)


def _written(message: Message, service: Service, caller: Caller) -> bytes:
    if service.has_old_files and has_plain_files(caller.user_agent):
        write_plain_files(message)
    return message.SerializeToString()


def _task_of(request: Any) -> str:  # noqa: ANN401  any request of the core's
    """Return the task that a request is about, if it is about one."""
    return getattr(request, "task_id", "") or getattr(request, "id", "")
