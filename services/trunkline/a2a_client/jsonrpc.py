"""The JSON-RPC transport of A2A v1.0 and v0.3."""

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import jsonrpc_refusal, status_failure
from trunkline.a2a_client.http import HttpClient, HttpStream
from trunkline.a2a_client.interfaces import Interface
from trunkline.a2a_client.json_reader import parse_stream_response, parse_task
from trunkline.a2a_client.lenient_reader import LeftOutLog, LenientReader
from trunkline.a2a_client.operations import RemoteOperation
from trunkline.a2a_client.operations_v0_3 import find_v0_3
from trunkline.a2a_client.transport import (
    CALL_TIMEOUT_S,
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    call_span,
    service_headers,
)
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import V0_3, V1_0
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.errors import PeerProtocolError
from trunkline.v1 import task_pb2

_Read = TypeVar("_Read")


class _Methods(NamedTuple):
    send: str
    stream: str
    get: str
    cancel: str
    subscribe: str


_METHODS: Final = {
    V1_0: _Methods(
        "SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"
    ),
    V0_3: _Methods(
        "message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"
    ),
}


class JsonRpcTransport:
    """Calls a remote agent's JSON-RPC endpoint."""

    def __init__(self, http: HttpClient, interface: Interface) -> None:
        self._http = http
        self._interface = interface
        self._methods = _METHODS[interface.version]
        self._ids = itertools.count(1)
        self._reader = LenientReader(parse_stream_response, LeftOutLog(lambda: http.peer))

    async def send(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """See Transport."""
        params = self._send_params(request)
        with call_span(self._methods.send, self._interface):
            result = await self._call(self._methods.send, params, options, timeout_s=timeout_s)
            return self._read(result)

    @asynccontextmanager
    async def stream(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        async with self._stream(
            self._methods.stream, self._send_params(request), options
        ) as events:
            yield events

    @asynccontextmanager
    async def subscribe(self, task_id: str, options: CallOptions) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        params = {"id": task_id, **self._tenant()}
        async with self._stream(self._methods.subscribe, params, options) as events:
            yield events

    async def get(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        return await self._task(self._methods.get, task_id)

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        return await self._task(self._methods.cancel, task_id)

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
            method, params = older.jsonrpc_method, older.write_params(request)
            with call_span(method, self._interface):
                result = await self._call(method, params, options, timeout_s=timeout_s)
                return self._parse(older.read_result, result)
        params = {**operation.params(request), **self._tenant()}
        with call_span(operation.name, self._interface):
            result = await self._call(operation.name, params, options, timeout_s=timeout_s)
            return result if isinstance(result, dict) else {}

    async def _task(self, method: str, task_id: str) -> task_pb2.Task:
        with call_span(method, self._interface):
            params = {"id": task_id, **self._tenant()}
            result = await self._call(method, params, CallOptions(), timeout_s=CALL_TIMEOUT_S)
            return self._parse(parse_task, result)

    async def _call(
        self, method: str, params: Json, options: CallOptions, *, timeout_s: float
    ) -> Any:  # noqa: ANN401  any JSON value
        answer = await self._http.request(
            "POST",
            self._interface.url,
            body=self._body(method, params),
            headers=self._headers(options),
            timeout_s=timeout_s,
        )
        return self._result(answer.body, answer.status)

    @asynccontextmanager
    async def _stream(
        self, method: str, params: Json, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        with call_span(method, self._interface):
            async with self._http.stream(
                "POST",
                self._interface.url,
                body=self._body(method, params),
                headers=self._headers(options),
            ) as stream:
                if stream.is_event_stream and stream.status >= 500:
                    raise status_failure(self._http.peer, stream.status)
                if stream.is_event_stream and stream.status >= 300:
                    raise self._protocol_error(f"HTTP {stream.status} with a stream")
                async with aclosing(self._events(stream)) as events:
                    yield events

    async def _events(self, stream: HttpStream) -> AsyncGenerator[RemoteEvent]:
        async for item in stream.items:
            value = self._result(item.data, stream.status)
            yield RemoteEvent(self._read(value), item.id, stream.trace_id, value)

    def _read(self, result: object) -> a2a_pb2.StreamResponse:
        return self._parse(parse_stream_response, result)

    def _parse(self, read: Callable[[object], _Read], result: object) -> _Read:
        try:
            return self._reader.read(read, result)
        except ValueError as error:
            raise self._protocol_error(f"its answer can't be read: {error}") from None

    def _result(self, body: bytes, status: int) -> Any:  # noqa: ANN401  any JSON value
        """Return the result of a response. Ids are not compared: each response has one request."""
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            raise jsonrpc_refusal(self._http.peer, answer["error"], status)
        is_v0_3 = self._interface.version == V0_3
        if is_v0_3 and isinstance(answer, dict) and answer.keys() == {"jsonrpc", "id"}:
            # The reference SDK of v0.3 leaves out a result that is null.
            return None
        if not isinstance(answer, dict) or "result" not in answer:
            if status >= 500:
                raise status_failure(self._http.peer, status)
            raise self._protocol_error(f"HTTP {status} without a JSON-RPC response")
        return answer["result"]

    def _body(self, method: str, params: Json) -> bytes:
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return dumps(request).encode()

    def _headers(self, options: CallOptions) -> Mapping[str, str]:
        headers = service_headers(self._interface.version, options)
        return {"content-type": "application/json", **headers}

    def _send_params(self, request: a2a_pb2.SendMessageRequest) -> Json:
        if self._interface.version == V0_3:
            return v0_3_json.send_params_json(request)
        return {**v1_json.send_params_json(request), **self._tenant()}

    def _tenant(self) -> Json:
        return {"tenant": self._interface.tenant} if self._interface.tenant else {}

    def _protocol_error(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(self._http.peer, problem)
