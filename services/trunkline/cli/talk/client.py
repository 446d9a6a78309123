"""An A2A v1.0 client over JSON-RPC and SSE: all that the command line says to a mesh's public edge.

A stream that breaks is taken up again behind the last event that came, so what a caller reads is
whole. Messages are plain dicts in A2A's JSON, as they came.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from trunkline.cli.options import is_on_this_machine
from trunkline.errors import (
    AgentNotFoundError,
    InternalError,
    InvalidArgumentError,
    OverloadedError,
    PeerProtocolError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)

# An SSE stream that says nothing for so long, not even a heartbeat, is taken for broken.
SILENCE_LIMIT_S = 60.0
EVENT_LIMIT_BYTES = 64 * 1024 * 1024
# Waits before a broken stream is taken up again; an event that comes starts them over.
RETRY_WAITS_S = (0.1, 0.3, 1.0, 3.0, 5.0)

TERMINAL = frozenset(
    f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
)
INTERRUPTED = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})

NOBODY_THERE = "nobody answers there; start a mesh with `trunkline up`, or give another --url"


class A2AClient:
    """One agent as its public callers see it. Every method raises TrunklineErrors only."""

    def __init__(self, url: str, *, api_key: str = "") -> None:
        self.url = url
        self.trace_id = ""
        """Of the last message sent, as the server told it; empty when it didn't."""
        credentials = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx2.AsyncClient(
            headers={"A2A-Version": "1.0", **credentials},
            timeout=httpx2.Timeout(SILENCE_LIMIT_S, connect=5.0),
            # A proxy set for the world outside must not capture what stays on this machine.
            trust_env=not is_on_this_machine(url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def stream(
        self,
        text: str,
        *,
        task_id: str = "",
        context_id: str = "",
        timeout_s: float | None = None,
        files: Sequence[Mapping[str, Any]] = (),
    ) -> AsyncGenerator[dict[str, Any]]:
        """Send a message and yield A2A's stream responses until the turn is over.

        `files` are parts beside the text. `timeout_s` is the task's own deadline. Closing the
        iterator leaves the task running.

        Raises:
            PeerUnavailableError: nobody answers there, or the stream broke for good.
        """
        message = _message(text, task_id=task_id, context_id=context_id)
        message["parts"] += files
        params: dict[str, Any] = {"message": message}
        headers = {} if timeout_s is None else {"Trunkline-Timeout": f"{timeout_s:g}"}
        method = "SendStreamingMessage"
        self.trace_id = ""
        turn = _Turn(is_new=not task_id)
        waits = iter(RETRY_WAITS_S)
        while True:
            try:
                async with aclosing(self._events(method, params, headers)) as events:
                    async for result, event_id in events:
                        waits = iter(RETRY_WAITS_S)
                        turn.take(result, event_id)
                        yield result
                        if turn.is_over:
                            return
                turn.end_of_stream()
                if turn.is_over:
                    return
                error = PeerUnavailableError(self.url, "the stream ended before the turn did")
            except PeerUnavailableError as broken:
                error = broken
            wait_s = next(waits, None)
            # Without an event the message may or may not have arrived: sending it again could
            # start the work twice.
            if wait_s is None or not turn.event_id:
                raise error
            await asyncio.sleep(wait_s)
            method, params = "SubscribeToTask", {"id": turn.task_id}
            headers = {"Last-Event-ID": turn.event_id}

    async def get_task(self, task_id: str) -> dict[str, Any]:
        """Return a task as it stands.

        Raises:
            TaskNotFoundError: this agent has no such task.
        """
        return await self._call("GetTask", {"id": task_id})

    async def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Cancel a task and return it.

        Raises:
            TaskNotCancelableError: it had ended.
        """
        return await self._call("CancelTask", {"id": task_id})

    def is_ours(self, url: str) -> bool:
        """Whether a URL leads to where this client asks, and may get its credentials."""
        return urlsplit(url)[:2] == urlsplit(self.url)[:2]

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield a file in pieces; a connection that breaks is taken up again where it broke.

        Raises:
            PeerUnavailableError: it can't be read, or broke for good.
        """
        at, etag = 0, ""
        waits = iter(RETRY_WAITS_S)
        while True:
            headers = {"Range": f"bytes={at}-", "If-Range": etag} if at else {}
            try:
                with self._transport_errors():
                    async with self._http.stream("GET", url, headers=headers) as response:
                        if response.status_code != (206 if at else 200):
                            problem = f"answers with HTTP {response.status_code}"
                            raise PeerProtocolError(url, problem)
                        etag = response.headers.get("etag", "")
                        async for piece in response.aiter_raw():
                            waits = iter(RETRY_WAITS_S)
                            at += len(piece)
                            yield piece
                return
            except PeerUnavailableError:
                wait_s = next(waits, None)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)

    async def _call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        with self._transport_errors():
            response = await self._http.post(self.url, json=_request(method, params))
        return self._result(response.status_code, response.content, params)

    async def _events(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[dict[str, Any], str]]:
        """Yield the results and event ids of one connection; PeerUnavailableError if it breaks."""
        request = _request(method, params)
        headers = {"Accept": "text/event-stream", **headers}
        with self._transport_errors():
            async with self._http.stream(
                "POST", self.url, json=request, headers=headers
            ) as response:
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "text/event-stream":
                    self._result(response.status_code, await response.aread(), params)
                    raise PeerProtocolError(self.url, f"answered {kind or 'nothing'}, no stream")
                self.trace_id = self.trace_id or _trace_id(response.headers)
                async for event in httpx2.EventSource(response, EVENT_LIMIT_BYTES):
                    if event.data:
                        yield self._result(200, event.data.encode(), params), event.id

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException as error:
            problem = "silent for too long" if not _is_connecting(error) else NOBODY_THERE
            raise PeerUnavailableError(self.url, problem) from error
        except httpx2.TransportError as error:
            problem = NOBODY_THERE if _is_connecting(error) else str(error) or type(error).__name__
            raise PeerUnavailableError(self.url, problem) from error

    def _result(self, status: int, body: bytes, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            raise _mesh_error(self.url, status, answer["error"], params)
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            problem = f"HTTP {status} is no A2A answer; is a mesh's bridge there?"
            raise PeerProtocolError(self.url, problem)
        result: dict[str, Any] = answer["result"]
        return result


class _Turn:
    """How far a turn has been read."""

    def __init__(self, *, is_new: bool) -> None:
        self.task_id = ""
        self.event_id = ""
        self.is_over = False
        # A turn of an old task begins with the task as the last turn left it: no news yet.
        self._expects_old_state = not is_new
        self._state = ""

    def take(self, result: Mapping[str, Any], event_id: str) -> None:
        self.event_id = event_id or self.event_id
        if "message" in result:
            self.is_over = True
        elif "task" in result:
            task = result["task"]
            self.task_id = task.get("id", self.task_id)
            self._enter(task.get("status", {}), is_news=not self._expects_old_state)
            self._expects_old_state = False
        elif "statusUpdate" in result:
            self._enter(result["statusUpdate"].get("status", {}), is_news=True)

    def end_of_stream(self) -> None:
        """The server closed the stream in good order: whatever it said last holds."""
        self.is_over = self._state in TERMINAL | INTERRUPTED

    def _enter(self, status: Mapping[str, Any], *, is_news: bool) -> None:
        self._state = status.get("state", "")
        self.is_over = self._state in TERMINAL or (is_news and self._state in INTERRUPTED)


def _message(text: str, *, task_id: str, context_id: str) -> dict[str, Any]:
    message: dict[str, Any] = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
    }
    if task_id:
        message["taskId"] = task_id
    if context_id:
        message["contextId"] = context_id
    return message


def _request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}


def _mesh_error(
    url: str, status: int, error: Mapping[str, Any], params: Mapping[str, Any]
) -> TrunklineError:
    """Return what a JSON-RPC error is; `params` are those of the request that it answers."""
    text = str(error.get("message", "")) or f"error {error.get('code')}"
    details = _details(error.get("data"))
    task_id = str(params.get("id") or params.get("message", {}).get("taskId", ""))
    match error.get("code"), status:
        case -32001, _:
            return TaskNotFoundError(task_id)
        case -32002, _:
            return TaskNotCancelableError(task_id, details.get("state", "?"))
        case -32603, _ if details.get("traceId"):
            return InternalError(details["traceId"])
        case -32602, _ if list(details) == ["agent"]:
            return AgentNotFoundError(details["agent"])
        case _, 401 | 403:
            return InvalidArgumentError("--api-key or TRUNKLINE_API_KEY", text)
        case _, 429:
            return OverloadedError(
                agent=details.get("agent", url), retry_after_s=details.get("retryAfterS", "a few")
            )
        case -32000, _:
            return PeerUnavailableError(url, text)
    return InvalidArgumentError("the request", text)


def _details(data: object) -> dict[str, str]:
    """Return the ErrorInfo's metadata; older servers send other shapes, which say nothing."""
    entries = data if isinstance(data, list) else []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("metadata"), dict):
            return {str(name): str(value) for name, value in entry["metadata"].items()}
    return {}


def _trace_id(headers: Mapping[str, str]) -> str:
    pieces = headers.get("traceresponse", "").split("-")
    return pieces[1] if len(pieces) == 4 and len(pieces[1]) == 32 else ""


def _is_connecting(error: httpx2.TransportError) -> bool:
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
