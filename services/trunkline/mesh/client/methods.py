"""The methods of a channel to another process, as the generated stubs call them.

No caller knows what carries a call. A small call of a method that trunks carry goes by the trunk if
the peer serves trunks, and each other call is a plain call of gRPC. Either way the call names its
user, and raises TrunklineErrors only.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from grpc.aio import EOF, UnaryStreamCall

from trunkline.core.backoff import Backoff
from trunkline.core.users import USER_METADATA
from trunkline.errors import PeerProtocolError, PeerUnavailableError, UnsupportedOperationError
from trunkline.mesh.client.statements import find_statement
from trunkline.mesh.client.status import hides_status, translate_errors
from trunkline.mesh.client.tracing import MethodTracer
from trunkline.mesh.client.trunk import REQUEST_BYTES, Trunk
from trunkline.mesh.client.trunk_connection import BatchSink, TrunkStreamCall
from trunkline.mesh.trunk_wire.methods import BATCH_FIELDS, is_carried

if TYPE_CHECKING:
    import grpc

    from trunkline.mesh.client.channels import MeshChannel

_Response = TypeVar("_Response", bound=Message)


class _Cancelable(Protocol):
    def cancel(self) -> object: ...


_Call = TypeVar("_Call", bound=_Cancelable)
Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]

UNARY_TIMEOUT_S: Final = 60.0
"""The deadline of a unary call that has no other."""
_REGISTRY_TIMEOUT_S: Final = 5.0
_UNREADABLE: Final = "its answer can't be read"

IDEMPOTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "trunkline.v1.TaskService": (
        "GetTask",
        "ListTasks",
        "PauseTask",
        "ResumeTask",
        "AnswerApproval",
        "SetTaskAlias",
        "ResolveTaskAlias",
        "SetPushNotificationConfig",
        "GetPushNotificationConfig",
        "ListPushNotificationConfigs",
        "DeletePushNotificationConfig",
    ),
    "trunkline.v1.WebhookService": ("ListWebhooks",),
    "trunkline.v1.RegistryService": ("Register", "KeepAlive", "Deregister", "ListAgents"),
    "trunkline.v1.ToolService": ("ListTools",),
    "trunkline.v1.TraceService": ("GetTrace", "ListTraces"),
}
"""The methods that are called again if the peer is unavailable, by service.

A request of SetPushNotificationConfig needs a request id for that: use
`HostClient.set_push_config`.
"""


class Method:
    """A method of a stub on a channel."""

    _arity: ClassVar[str]

    def __init__(
        self,
        channel: "MeshChannel",
        path: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        **options: bool,
    ) -> None:
        """Take the arguments of the channel's method in gRPC. `path` is `/SERVICE/METHOD`."""
        self.channel: MeshChannel = channel
        self.name: str = path.removeprefix("/")
        self.parse: Callable[[bytes], Any] = response_deserializer or bytes
        self._serialize = request_serializer
        self._arguments = (path, request_serializer, response_deserializer)
        self._options = options
        self.tracer: MethodTracer = MethodTracer(
            self.name, channel.address, is_in_process=channel.is_in_process
        )
        """Makes the spans of the calls."""
        # gRPC's method on the latest connection.
        self._connection: grpc.aio.Channel | None = None
        self._call: Callable[..., Any] = bytes

    @property
    def peer(self) -> str:
        """The address of the peer, for error texts."""
        return self.channel.address

    def find_trunk(self, request: Any, metadata: Metadata) -> tuple[Trunk, bytes] | None:  # noqa: ANN401
        """Return the trunk that carries a call, and the serialized request.

        Metadata of the caller's own, and large requests, travel with plain calls only.
        """
        trunk = self.channel.trunk
        if trunk is None or not trunk.is_supported or metadata or self._serialize is None:
            return None
        serialized = self._serialize(request)
        return (trunk, serialized) if len(serialized) <= REQUEST_BYTES else None

    def start(
        self,
        *request: object,
        timeout: float | None = None,
        metadata: Metadata = (),
        statement: str = "",
    ) -> Any:  # noqa: ANN401  gRPC's call
        """Start a plain call on the current connection."""
        connection = self.channel.current()
        if connection is not self._connection:
            # Stubs register their methods, which on a closed channel would use freed memory of
            # gRPC.
            options = {} if self.channel.is_closed else self._options
            self._call = getattr(connection, self._arity)(*self._arguments, **options)
            self._connection = connection
        user = ((USER_METADATA, statement),) if statement else ()
        return self.tracer.start_plain(
            self._call,
            *request,
            timeout=timeout,
            metadata=(*metadata, *user),
            is_stream=self._arity.endswith("stream"),
        )

    def read(self, serialized: bytes) -> Any:  # noqa: ANN401  the method's response
        """Parse a response that came by a trunk."""
        try:
            return self.parse(serialized)
        except DecodeError:
            raise PeerProtocolError(self.peer, _UNREADABLE) from None


class UnaryMethod(Method):
    """A method with one request and one response."""

    _arity = "unary_unary"

    def __init__(self, channel: "MeshChannel", path: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(channel, path, *args, **options)
        service, _, name = self.name.partition("/")
        self._is_carried = is_carried(self.name, is_stream=False)
        # gRPC itself repeats plain calls.
        self._is_repeated = self._is_carried and name in IDEMPOTENT.get(service, ())
        is_registry = service == "trunkline.v1.RegistryService"
        # A lease must not end while a call hangs, and the registry answers from memory.
        self._timeout_s = _REGISTRY_TIMEOUT_S if is_registry else UNARY_TIMEOUT_S

    async def __call__(
        self,
        request: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  gRPC's own form
        metadata: Metadata = (),
    ) -> Any:  # noqa: ANN401  the response of the method
        """Call the method; return its response.

        Raises:
            TrunklineError: the peer's error, or PeerTimeoutError without an answer in time.
        """
        timeout_s = self._timeout_s if timeout is None else timeout
        try:
            return await self._answer(request, timeout_s, metadata)
        except PeerUnavailableError as error:
            if not self._is_repeated or self.channel.trunk is None or error.peer != self.peer:
                raise
        await Backoff().pause()
        return await self._answer(request, timeout_s, metadata)

    async def _answer(self, request: object, timeout_s: float, metadata: Metadata) -> Any:  # noqa: ANN401
        statement = await find_statement(self.channel.signer, request)
        route = self.find_trunk(request, metadata) if self._is_carried else None
        if route is not None:
            trunk, serialized = route
            try:
                response = await trunk.call_unary(
                    self.tracer, serialized, timeout_s=timeout_s, user_statement=statement
                )
            except UnsupportedOperationError:
                if trunk.is_supported:
                    raise
            else:
                return self.read(response)
        with translate_errors(self.peer):
            return await self.start(
                request, timeout=timeout_s, metadata=metadata, statement=statement
            )


class StreamMethod(Method):
    """A method with one request, whose responses are a stream. Its calls are `StreamCall`s."""

    _arity = "unary_stream"

    @property
    def call_class(self) -> "Callable[..., StreamCall[Any]]":
        """The class of the calls: `BatchCall` if the responses hold batches."""
        return BatchCall if self.name in BATCH_FIELDS else StreamCall


class UploadMethod(Method):
    """A method whose requests are a stream, with one response."""

    _arity = "stream_unary"

    async def __call__(
        self,
        requests: AsyncIterator[Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109  gRPC's own form
    ) -> Any:  # noqa: ANN401  the response of the method
        """Send the requests; return the response. The first request names the user of the call.

        Raises:
            TrunklineError: the peer's error, or PeerTimeoutError without an answer in time.
        """
        first_request = await anext(requests)
        statement = await find_statement(self.channel.signer, first_request)
        try:
            with translate_errors(self.peer):
                return await self.start(
                    _chain(first_request, requests), timeout=timeout, statement=statement
                )
        except PeerProtocolError as error:
            if not hides_status(error):
                raise
            raise PeerUnavailableError(self.peer, "it ended the call early") from error


class BidirectionalMethod(Method):
    """A method of two streams. Its calls are gRPC's, and raise gRPC's errors.

    Within the mesh only a trunk is such a call, and it translates its errors itself.
    """

    _arity = "stream_stream"

    def __call__(
        self, *requests: object, timeout: float | None = None, metadata: Metadata = ()
    ) -> Any:  # noqa: ANN401  gRPC's call
        """Start a call, perhaps with an iterator of its requests."""
        return self.start(*requests, timeout=timeout, metadata=metadata)


class StreamCall(Generic[_Response]):
    """A call whose responses are a stream. Reading raises TrunklineErrors only.

    The call begins with its first read. Cancel it by `canceling`.
    """

    def __init__(
        self,
        method: Method,
        request: object,
        *,
        timeout: float | None = None,
        metadata: Metadata = (),
    ) -> None:
        """Take the arguments of a call of the method in gRPC."""
        self._method = method
        self._request = request
        self._timeout_s = timeout
        self._metadata = metadata
        self._call: Any = None

    async def __aiter__(self) -> AsyncIterator[_Response]:
        while (response := await self.read()) is not None:
            yield response

    async def read(self) -> _Response | None:
        """Return the next response; None after the last one.

        Raises:
            TrunklineError: the peer's error.
        """
        if self._call is None:
            self._start(await find_statement(self._method.channel.signer, self._request))
        with translate_errors(self._method.peer):
            response = await self._call.read()
        return None if response is EOF else response

    def cancel(self) -> None:
        """End the call."""
        if self._call is not None:
            self._call.cancel()

    def _start(self, statement: str) -> None:
        """Start a plain call."""
        with translate_errors(self._method.peer):
            self._call = self._method.start(
                self._request,
                timeout=self._timeout_s,
                metadata=self._metadata,
                statement=statement,
            )


class BatchCall(StreamCall[_Response]):
    """A call whose stream consists of batches after its first response.

    `read_first` and `batches` pass on the batches serialized: most readers store or forward them
    as they are. Iterating the call itself parses them.
    """

    def __init__(self, method: Method, request: object, **options: Any) -> None:  # noqa: ANN401
        super().__init__(method, request, **options)
        self._trunk_call: TrunkStreamCall | None = None
        self._first_batches: list[bytes] = []
        self._latest = b""

    async def __aiter__(self) -> AsyncIterator[_Response]:
        yield await self.read_first()
        async for batches in self.batches():
            response: Any = self._method.parse(b"")
            field = getattr(response, self._find_field(response))
            try:
                for batch in batches:
                    field.add().MergeFromString(batch)
            except DecodeError:
                raise PeerProtocolError(self._method.peer, _UNREADABLE) from None
            yield response

    async def read_first(self) -> _Response:
        """Open the stream; return its first response, without batches.

        Raises:
            TrunklineError: the peer's error.
        """
        method = self._method
        statement = await find_statement(method.channel.signer, self._request)
        route = method.find_trunk(self._request, self._metadata)
        if route is not None:
            trunk, serialized = route
            call = self._trunk_call = trunk.start_stream(method.tracer, serialized, statement)
            try:
                response: Any = method.read(await call.read_first())
            except UnsupportedOperationError:
                call.cancel()
                self._trunk_call = None
                if trunk.is_supported:
                    raise
            else:
                return response  # type: ignore[no-any-return]  # the method's response
        self._start(statement)
        response = await self.read()
        if response is None:
            return method.parse(b"")  # type: ignore[no-any-return]
        self._first_batches = self._take_batches(response)
        return response  # type: ignore[no-any-return]

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Iterate over the serialized batches after `read_first`, those that came together at once.

        Raises:
            TrunklineError: the peer's error.
        """
        return self._trunk_call or self._iter_plain_batches()

    def take_latest(self) -> bytes:
        """Return the last batch that the reader got since the previous call, or b""."""
        if self._trunk_call is not None:
            return self._trunk_call.take_latest()
        latest, self._latest = self._latest, b""
        return latest

    def set_sink(self, sink: BatchSink) -> None:
        """Pass batches to `sink`; see `TrunkStreamCall.sink`. A plain call never calls it."""
        if self._trunk_call is not None:
            self._trunk_call.sink = sink

    def cancel(self) -> None:
        """End the call."""
        if self._trunk_call is not None:
            self._trunk_call.cancel()
        super().cancel()

    async def _iter_plain_batches(self) -> AsyncIterator[list[bytes]]:
        batches, self._first_batches = self._first_batches, []
        if batches:
            self._latest = batches[-1]
            yield batches
        while (response := await self.read()) is not None:
            if batches := self._take_batches(response):
                self._latest = batches[-1]
                yield batches

    def _take_batches(self, response: Any) -> list[bytes]:  # noqa: ANN401  the method's response
        """Remove the batches of a response; return them serialized."""
        name = self._find_field(response)
        batches = [batch.SerializeToString() for batch in getattr(response, name)]
        response.ClearField(name)
        return batches

    def _find_field(self, response: Message) -> str:
        number = BATCH_FIELDS[self._method.name]
        name: str = response.DESCRIPTOR.fields_by_number[number].name
        return name


@contextmanager
def canceling(call: _Call) -> Iterator[_Call]:
    """Cancel a call at the end of the block."""
    try:
        yield call
    finally:
        call.cancel()


async def read_responses(
    call: "UnaryStreamCall[Any, _Response]",
) -> AsyncGenerator[_Response, None]:
    """Yield the responses of a call that a stub has returned. Closing the generator cancels it.

    Raises:
        TrunklineError: the peer's error.
    """
    with canceling(call):
        async for response in call:
            yield response


async def _chain(first: object, others: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for request in others:
        yield request
