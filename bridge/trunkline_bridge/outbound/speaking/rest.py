"""Speaks HTTP+JSON with a remote agent, in A2A v1.0 and v0.3."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

from google.protobuf import json_format

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import PeerProtocolError, PeerRefusedError
from trunkline.v1 import task_pb2
from trunkline_bridge.outbound.interfaces import Interface
from trunkline_bridge.outbound.speaking.bindings import (
    CALL_S,
    Call,
    Events,
    PeerEvent,
    service_parameters,
)
from trunkline_bridge.outbound.speaking.http import Answer, Http, StreamItem
from trunkline_bridge.outbound.speaking.reading import read_response, read_task
from trunkline_bridge.outbound.speaking.tracing import calling
from trunkline_bridge.outbound.speaking.trouble import BrokenError, reason_of, refused
from trunkline_bridge.wire import v1_json
from trunkline_bridge.wire.json_values import dumps
from trunkline_bridge.wire.v0_3_proto import reading, requests
from trunkline_bridge.wire.v0_3_proto.proto_json import proto_json
from trunkline_bridge.wire.versions import V0_3

_Read = TypeVar("_Read")

# What a status says where the body doesn't: v0.3's servers say no more.
_REASONS: Final = {
    404: "TASK_NOT_FOUND",
    405: "METHOD_NOT_FOUND",
    409: "TASK_NOT_CANCELABLE",
    415: "CONTENT_TYPE_NOT_SUPPORTED",
    422: "INVALID_PARAMS",
    501: "UNSUPPORTED_OPERATION",
}


class Rest:
    """A remote agent's HTTP+JSON endpoint."""

    def __init__(self, http: Http, interface: Interface) -> None:
        self._http = http
        self._interface = interface
        self._is_old = interface.version == V0_3
        tenant = quote(interface.tenant, safe="")
        prefix = "/v1" if self._is_old else f"/{tenant}" if tenant else ""
        self._base = interface.url + prefix
        # The specification has both, and servers have either.
        self._subscribe_by = "POST"

    async def send(
        self, request: a2a_pb2.SendMessageRequest, call: Call, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """See PeerBinding."""
        with calling("SendMessage", self._interface):
            body = self._send_body(request)
            answer = await self._http.request(
                "POST",
                f"{self._base}/message:send",
                body=body,
                headers=self._headers(call),
                timeout_s=timeout_s,
            )
            return self._event(self._json(answer))

    @asynccontextmanager
    async def stream(
        self, request: a2a_pb2.SendMessageRequest, call: Call
    ) -> AsyncIterator[Events]:
        """See PeerBinding."""
        path, body = "/message:stream", self._send_body(request)
        with calling("SendStreamingMessage", self._interface):
            async with self._stream("POST", path, body, call) as events:
                yield events

    @asynccontextmanager
    async def subscribe(self, task_id: str, call: Call) -> AsyncIterator[Events]:
        """See PeerBinding."""
        path = f"/tasks/{quote(task_id, safe='')}:subscribe"
        with calling("SubscribeToTask", self._interface):
            if self._subscribe_by == "POST":
                try:
                    async with self._stream("POST", path, None, call) as events:
                        yield events
                        return
                except _NotThisVerbError:
                    self._subscribe_by = "GET"
            async with self._stream("GET", path, None, call) as events:
                yield events

    async def get(self, task_id: str) -> task_pb2.Task:
        """See PeerBinding."""
        return await self._task("GetTask", "GET", f"/tasks/{quote(task_id, safe='')}")

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """See PeerBinding."""
        path = f"/tasks/{quote(task_id, safe='')}:cancel"
        return await self._task("CancelTask", "POST", path, b"{}")

    async def _task(
        self, name: str, method: str, path: str, body: bytes | None = None
    ) -> task_pb2.Task:
        with calling(name, self._interface):
            answer = await self._http.request(
                method,
                self._base + path,
                body=body,
                headers=self._headers(Call()),
                timeout_s=CALL_S,
            )
            return self._understood(self._read_task, self._json(answer))

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, body: bytes | None, call: Call
    ) -> AsyncIterator[Events]:
        async with self._http.stream(
            method, self._base + path, body=body, headers=self._headers(call)
        ) as stream:
            if stream.status == 405:
                raise _NotThisVerbError(self._http.peer, "it has no such method", "")
            if stream.status >= 300:
                found = b"".join([item.data async for item in stream.items])
                self._json(Answer(stream.status, stream.kind, found))
            async with aclosing(self._events(stream.items)) as events:
                yield events

    async def _events(self, items: AsyncIterator[StreamItem]) -> AsyncGenerator[PeerEvent]:
        async for item in items:
            given = self._json(Answer(400 if item.is_error else 200, "", item.data))
            if isinstance(given, dict) and isinstance(given.get("error"), dict):
                raise self._refusal(400, given)
            yield PeerEvent(self._event(given), item.id)

    def _event(self, given: object) -> a2a_pb2.StreamResponse:
        return self._understood(self._read_response, given)

    def _understood(self, read: Callable[[object], _Read], given: object) -> _Read:
        try:
            return read(given)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            said = str(error) if type(error) is ValueError else "it is not as A2A has it"
            raise self._nonsense(f"its answer can't be read: {said}") from None

    def _read_response(self, given: object) -> a2a_pb2.StreamResponse:
        if not self._is_old:
            return read_response(given)
        made = old.StreamResponse()
        json_format.ParseDict(_untimed(given), made, ignore_unknown_fields=True)
        return reading.core_response(made)

    def _read_task(self, given: object) -> task_pb2.Task:
        if not self._is_old:
            return read_task(given)
        made = old_task.Task()
        json_format.ParseDict(_untimed(given), made, ignore_unknown_fields=True)
        return reading.core_task(made)

    def _json(self, answer: Answer) -> Any:  # noqa: ANN401  any JSON value
        try:
            given = json.loads(answer.body)
        except (ValueError, RecursionError):
            if 400 <= answer.status < 500:
                raise self._refusal(answer.status, None) from None
            if answer.status >= 500:
                raise BrokenError(self._http.peer, f"HTTP {answer.status}") from None
            raise self._nonsense(f"HTTP {answer.status} with what is no JSON") from None
        if answer.status >= 400:
            raise self._refusal(answer.status, given)
        return given

    def _refusal(self, status: int, given: object) -> Exception:
        """Return what the body of an error says: google.rpc.Status, v0.3's, or problem+json."""
        said = given.get("error", given) if isinstance(given, dict) else {}
        said = said if isinstance(said, dict) else {"message": said}
        reason = reason_of(None, said.get("details"))
        if not reason and (kind := said.get("type")) and isinstance(kind, str):
            reason = kind.rpartition("/")[2].removesuffix("-error").replace("-", "_").upper()
        text = said.get("message") or said.get("detail") or said.get("title")
        if not reason and status in (502, 504):
            return BrokenError(self._http.peer, f"HTTP {status}")
        reason = reason or _REASONS.get(status, "")
        return refused(self._http.peer, text or f"HTTP {status}", reason)

    def _send_body(self, request: a2a_pb2.SendMessageRequest) -> bytes:
        if self._is_old:
            return dumps(proto_json(requests.old_send(request))).encode()
        return dumps(v1_json.send_params(request)).encode()

    def _headers(self, call: Call) -> Mapping[str, str]:
        kind = "application/json" if self._is_old else "application/a2a+json"
        return {"content-type": kind, **service_parameters(self._interface.version, call)}

    def _nonsense(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(self._http.peer, problem)


class _NotThisVerbError(PeerRefusedError):
    """The path is there, with another method."""


def _untimed(given: Any) -> Any:  # noqa: ANN401  any JSON value
    """Leave out when a status came about, which isn't needed and not always as it should be."""
    if not isinstance(given, dict):
        return given
    made = {**given}
    for name in ("task", "statusUpdate"):
        if name in made:
            made[name] = _untimed(made[name])
    if isinstance(made.get("status"), dict):
        made["status"] = {k: one for k, one in made["status"].items() if k != "timestamp"}
    return made
