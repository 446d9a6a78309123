"""The HTTP+JSON transport of A2A v1.0 and v0.3."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

from google.protobuf.message import Message

from trunkline.a2a_client.errors import (
    ErrorObject,
    parse_reason,
    refusal_error,
    status_failure,
)
from trunkline.a2a_client.http import HttpClient, HttpResponse, HttpStream
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
from trunkline.a2a_wire.operations import (
    GET_EXTENDED_CARD,
    SEND_STREAMING_MESSAGE,
    SUBSCRIBE_TO_TASK,
    Operation,
)
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3.proto_json import proto_message_json
from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import parse_dict
from trunkline.errors import PeerProtocolError, PeerRefusedError

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
        # The method of HTTP that the server accepts for SubscribeToTask.
        self._subscribe_methods: Sequence[str] = SUBSCRIBE_TO_TASK.http_methods
        self._read_event = self._response_reader(SEND_STREAMING_MESSAGE)
        self._reader = LenientReader(self._read_event, LeftOutLog(lambda: http.peer))

    async def call(
        self, operation: Operation, request: Message, options: CallOptions, *, timeout_s: float
    ) -> Response:
        """See Transport."""
        path, body = self._target(operation, request)
        with call_span(operation.name, self._interface):
            answer = await self._http.request(
                operation.http_methods[0],
                self._base + path,
                body=body,
                headers=self._headers(options),
                timeout_s=timeout_s,
            )
            # Deleting answers without content.
            value = {} if answer.status < 300 and not answer.body else self._json(answer)

        def read() -> Any:  # noqa: ANN401  any message
            return self._parse(self._response_reader(operation), value)

        def json() -> Json:
            return response_json(operation, read() if self._is_v0_3 else value)

        return Response(read, json)

    @asynccontextmanager
    async def stream(
        self, operation: Operation, request: Message, options: CallOptions
    ) -> AsyncIterator[RemoteEvents]:
        """See Transport."""
        with call_span(operation.name, self._interface):
            if operation is SUBSCRIBE_TO_TASK:
                path, _ = self._target(operation, request)
                *first, last = self._subscribe_methods
                for method in first:
                    try:
                        async with self._stream(method, path, None, options) as events:
                            yield events
                            return
                    except _WrongHttpMethodError:
                        self._subscribe_methods = (last,)
                async with self._stream(last, path, None, options) as events:
                    yield events
            else:
                path, body = self._target(operation, request)
                async with self._stream("POST", path, body, options) as events:
                    yield events

    def _target(self, operation: Operation, request: Message) -> tuple[str, bytes | None]:
        """Return the path with the query, and the body of a POST."""
        path, content = operation.http_target(operation.params_json(request))
        if self._is_v0_3:
            older = find_v0_3(operation)
            path = older.path or path
            content = proto_message_json(older.write_request(request))
            # The path has the resource name.
            content.pop("name", None)
        is_post = operation.http_methods[0] == "POST"
        return path, dumps(content).encode() if is_post else None

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
            event = self._parse(self._read_event, value)
            yield RemoteEvent(event, item.id, stream.trace_id, value)

    def _parse(self, read: Callable[[object], _Read], value: object) -> _Read:
        try:
            return self._reader.read(read, value)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            problem = (
                str(error) if type(error) is ValueError else "it does not match the A2A schema"
            )
            raise self._protocol_error(f"its answer can't be read: {problem}") from None

    def _response_reader(self, operation: Operation) -> Callable[[object], Any]:
        """Return the function that reads the JSON of a response or an event."""
        # The extended card has the JSON of JSON-RPC, also in v0.3.
        if not self._is_v0_3 or operation is GET_EXTENDED_CARD:
            return operation.read_json
        older = find_v0_3(operation)

        def read(value: object) -> Any:  # noqa: ANN401  any message
            response = older.response()
            parse_dict(without_timestamps(value), response, ignore_unknown_fields=True)
            return older.read_response(response)

        return read

    def _json(self, answer: HttpResponse) -> JsonValue:
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

    def _headers(self, options: CallOptions) -> Mapping[str, str]:
        kind = "application/json" if self._is_v0_3 else "application/a2a+json"
        return {"content-type": kind, **service_headers(self._interface.version, options)}

    def _protocol_error(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(self._http.peer, problem)


def without_timestamps(value: JsonValue) -> JsonValue:
    """Return a response without the timestamps of statuses.

    No client needs them, and several servers of v0.3 write invalid ones.
    """
    if not isinstance(value, dict):
        return value
    result = {**value}
    for name in ("task", "statusUpdate"):
        if name in result:
            result[name] = without_timestamps(result[name])
    if isinstance(result.get("status"), dict):
        result["status"] = {k: v for k, v in result["status"].items() if k != "timestamp"}
    return result


class _WrongHttpMethodError(PeerRefusedError):
    """The path does not support the HTTP method."""
