"""The HTTP+JSON transport of A2A v1.0 and v0.3."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

from google.protobuf.message import Message

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.errors import (
    ErrorObject,
    parse_reason,
    refusal_error,
    status_failure,
)
from trunkline.a2a_client.http import HttpClient, HttpResponse, HttpStream
from trunkline.a2a_client.interfaces import Interface
from trunkline.a2a_client.json_reader import parse_stream_response, parse_task
from trunkline.a2a_client.lenient_reader import LeftOutLog, LenientReader
from trunkline.a2a_client.operations import RemoteOperation
from trunkline.a2a_client.operations_v0_3 import find_v0_3, without_timestamps
from trunkline.a2a_client.transport import (
    CALL_TIMEOUT_S,
    CallOptions,
    RemoteEvent,
    RemoteEvents,
    call_span,
    service_headers,
)
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3 import proto_reader
from trunkline.a2a_wire.v0_3.proto_json import proto_message_json
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.errors import PeerProtocolError, PeerRefusedError
from trunkline.json_values import parse_dict
from trunkline.v1 import task_pb2

_Read = TypeVar("_Read")

# Reasons by HTTP status, for servers of v0.3, whose bodies name no reason.
_REASONS: Final = {
    404: "TASK_NOT_FOUND",
    405: "METHOD_NOT_FOUND",
    409: "TASK_NOT_CANCELABLE",
    415: "CONTENT_TYPE_NOT_SUPPORTED",
    422: "INVALID_PARAMS",
    500: "INTERNAL_ERROR",
    501: "UNSUPPORTED_OPERATION",
}


class RestTransport:
    """Calls a remote agent's HTTP+JSON endpoint."""

    def __init__(self, http: HttpClient, interface: Interface) -> None:
        self._http = http
        self._interface = interface
        self._is_v0_3 = interface.version == V0_3
        tenant = quote(interface.tenant, safe="")
        prefix = "/v1" if self._is_v0_3 else f"/{tenant}" if tenant else ""
        self._base = interface.url + prefix
        # A2A's proto file and its text name different HTTP methods, and servers support either.
        self._subscribe_method = "POST"
        self._reader = LenientReader(self._read_response, LeftOutLog(lambda: http.peer))

    async def send(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """See Transport."""
        with call_span("SendMessage", self._interface):
            body = self._send_body(request)
            answer = await self._http.request(
                "POST",
                f"{self._base}/message:send",
                body=body,
                headers=self._headers(options),
                timeout_s=timeout_s,
            )
            return self._event(self._json(answer))

    @asynccontextmanager
    async def stream(
        self, request: a2a_pb2.SendMessageRequest, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        path, body = "/message:stream", self._send_body(request)
        with call_span("SendStreamingMessage", self._interface):
            async with self._stream("POST", path, body, options) as events:
                yield events

    @asynccontextmanager
    async def subscribe(self, task_id: str, options: CallOptions) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        path = f"/tasks/{quote(task_id, safe='')}:subscribe"
        with call_span("SubscribeToTask", self._interface):
            if self._subscribe_method == "POST":
                try:
                    async with self._stream("POST", path, None, options) as events:
                        yield events
                        return
                except _WrongHttpMethodError:
                    self._subscribe_method = "GET"
            async with self._stream("GET", path, None, options) as events:
                yield events

    async def get(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        return await self._task("GetTask", "GET", f"/tasks/{quote(task_id, safe='')}")

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """See Transport."""
        path = f"/tasks/{quote(task_id, safe='')}:cancel"
        return await self._task("CancelTask", "POST", path, b"{}")

    async def call(
        self,
        operation: RemoteOperation,
        request: Message,
        options: CallOptions,
        *,
        timeout_s: float,
    ) -> Json:
        """See Transport."""
        older = find_v0_3(operation) if self._is_v0_3 else None
        path, content = operation.http_target(operation.params(request))
        if older is not None:
            path, content = older.path or path, older.rest_body(request)
        is_post = operation.http_method == "POST"
        with call_span(operation.name, self._interface):
            answer = await self._http.request(
                operation.http_method,
                self._base + path,
                body=dumps(content).encode() if is_post else None,
                headers=self._headers(options),
                timeout_s=timeout_s,
            )
            # Deleting answers without content.
            if answer.status < 300 and not answer.body:
                return {}
            value = self._json(answer)
            if older is not None:
                return self._parse(older.read_rest, value)
            return value if isinstance(value, dict) else {}

    async def _task(
        self, name: str, method: str, path: str, body: bytes | None = None
    ) -> task_pb2.Task:
        with call_span(name, self._interface):
            answer = await self._http.request(
                method,
                self._base + path,
                body=body,
                headers=self._headers(CallOptions()),
                timeout_s=CALL_TIMEOUT_S,
            )
            return self._parse(self._read_task, self._json(answer))

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: bytes | None, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        async with self._http.stream(
            method, self._base + path, body=body, headers=self._headers(options)
        ) as stream:
            if stream.status == 405:
                raise _WrongHttpMethodError(self._http.peer, "it has no such method", "")
            if stream.status >= 300:
                content = b"".join([item.data async for item in stream.items])
                self._json(HttpResponse(stream.status, stream.media_type, content))
            async with aclosing(self._events(stream)) as events:
                yield events

    async def _events(self, stream: HttpStream) -> AsyncGenerator[RemoteEvent]:
        async for item in stream.items:
            value = self._json(HttpResponse(400 if item.is_error else 200, "", item.data))
            if isinstance(value, dict) and isinstance(value.get("error"), dict):
                raise self._refusal(400, value)
            yield RemoteEvent(self._event(value), item.id, stream.trace_id, value)

    def _event(self, value: object) -> a2a_pb2.StreamResponse:
        return self._parse(self._read_response, value)

    def _parse(self, read: Callable[[object], _Read], value: object) -> _Read:
        try:
            return self._reader.read(read, value)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            problem = (
                str(error) if type(error) is ValueError else "it does not match the A2A schema"
            )
            raise self._protocol_error(f"its answer can't be read: {problem}") from None

    def _read_response(self, value: object) -> a2a_pb2.StreamResponse:
        if not self._is_v0_3:
            return parse_stream_response(value)
        result = v0_3_pb2.StreamResponse()
        parse_dict(without_timestamps(value), result, ignore_unknown_fields=True)
        return proto_reader.from_v0_3_stream_response(result)

    def _read_task(self, value: object) -> task_pb2.Task:
        if not self._is_v0_3:
            return parse_task(value)
        result = v0_3_task_pb2.Task()
        parse_dict(without_timestamps(value), result, ignore_unknown_fields=True)
        return proto_reader.from_v0_3_task(result)

    def _json(self, answer: HttpResponse) -> Any:  # noqa: ANN401  any JSON value
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            if 400 <= answer.status < 500:
                raise self._refusal(answer.status, None) from None
            if answer.status >= 500:
                raise status_failure(self._http.peer, answer.status) from None
            raise self._protocol_error(f"HTTP {answer.status} without JSON") from None
        if answer.status >= 400:
            raise self._refusal(answer.status, value)
        return value

    def _refusal(self, status: int, value: object) -> Exception:
        """Convert an error body to an error: google.rpc.Status, v0.3's JSON, or problem+json."""
        error = value.get("error", value) if isinstance(value, dict) else {}
        error = error if isinstance(error, dict) else {"message": error}
        # An error in a stream has its status in its code.
        if isinstance(code := error.get("code"), int) and code >= 400:
            status = code
        reason = parse_reason(None, error.get("details"))
        if not reason and (kind := error.get("type")) and isinstance(kind, str):
            reason = kind.rpartition("/")[2].removesuffix("-error").replace("-", "_").upper()
        text = error.get("message") or error.get("detail") or error.get("title")
        if not reason and status in (502, 504):
            return status_failure(self._http.peer, status)
        reason = reason or _REASONS.get(status, "")
        return refusal_error(
            self._http.peer,
            text or f"HTTP {status}",
            reason,
            ErrorObject.from_json(error),
            status=status,
        )

    def _send_body(self, request: a2a_pb2.SendMessageRequest) -> bytes:
        if self._is_v0_3:
            return dumps(proto_message_json(proto_reader.to_v0_3_send(request))).encode()
        return dumps(v1_json.send_params_json(request)).encode()

    def _headers(self, options: CallOptions) -> Mapping[str, str]:
        kind = "application/json" if self._is_v0_3 else "application/a2a+json"
        return {"content-type": kind, **service_headers(self._interface.version, options)}

    def _protocol_error(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(self._http.peer, problem)


class _WrongHttpMethodError(PeerRefusedError):
    """The path does not support the HTTP method."""
