"""The JSON-RPC transport of A2A v1.0 and v0.3."""

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message

from trunkline.a2a_client.errors import jsonrpc_refusal, status_failure
from trunkline.a2a_client.http import HttpClient, HttpStream
from trunkline.a2a_client.interfaces import Interface
from trunkline.a2a_client.lenient_reader import LeftOutLog, LenientReader
from trunkline.a2a_client.transport import (
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    Response,
    call_span,
    find_v0_3,
    response_json,
    service_headers,
)
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.response_reader import parse_stream_response
from trunkline.core.json_types import JsonValue
from trunkline.errors import PeerProtocolError

_Read = TypeVar("_Read")


class JsonRpcTransport:
    """Calls a remote agent's JSON-RPC endpoint."""

    def __init__(self, http: HttpClient, interface: Interface) -> None:
        self._http = http
        self._interface = interface
        self._is_v0_3 = interface.version == V0_3
        self._ids = itertools.count(1)
        self._reader = LenientReader(parse_stream_response, LeftOutLog(lambda: http.peer))

    async def call(
        self, operation: Operation, request: Message, options: CallOptions, *, timeout_s: float
    ) -> Response:
        """See Transport."""
        method, params = self._method(operation, request)
        with call_span(method, self._interface):
            result = await self._call(method, params, options, timeout_s=timeout_s)

        def read() -> Any:  # noqa: ANN401  any message
            return self._parse(operation.read_json, result)

        def json() -> Json:
            return response_json(operation, read() if self._is_v0_3 else result)

        return Response(read, json)

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Message, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        method, params = self._method(operation, request)
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

    def _method(self, operation: Operation, request: Message) -> tuple[str, Json]:
        """Return the method of an operation, and the parameters of a request."""
        if self._is_v0_3:
            older = find_v0_3(operation)
            return older.jsonrpc, older.params_json(request)
        tenant = {"tenant": self._interface.tenant} if self._interface.tenant else {}
        return operation.name, {**operation.params_json(request), **tenant}

    async def _call(
        self, method: str, params: Json, options: CallOptions, *, timeout_s: float
    ) -> JsonValue:
        answer = await self._http.request(
            "POST",
            self._interface.url,
            body=self._body(method, params),
            headers=self._headers(options),
            timeout_s=timeout_s,
        )
        return self._result(answer.body, answer.status)

    async def _events(self, stream: HttpStream) -> AsyncGenerator[RemoteEvent]:
        async for item in stream.items:
            value = self._result(item.data, stream.status)
            event = self._parse(parse_stream_response, value)
            yield RemoteEvent(event, item.id, stream.trace_id, value)

    def _parse(self, read: Callable[[object], _Read], result: object) -> _Read:
        try:
            return self._reader.read(read, result)
        except ValueError as error:
            raise self._protocol_error(f"its answer can't be read: {error}") from None

    def _result(self, body: bytes, status: int) -> JsonValue:
        """Return the result of a response. Ids are not compared: each response has one request."""
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            raise jsonrpc_refusal(self._http.peer, answer["error"], status)
        if self._is_v0_3 and isinstance(answer, dict) and answer.keys() == {"jsonrpc", "id"}:
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

    def _protocol_error(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(self._http.peer, problem)
