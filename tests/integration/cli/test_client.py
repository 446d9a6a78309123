"""The command line's A2A client resumes broken turns, and its errors say what to do."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.remote.socket_server import listening
from trunkline.a2a_client.answers import ClientAnswer, ClientEvent
from trunkline.cli.agent_client import AgentClient, build_message
from trunkline.errors import (
    AgentNotFoundError,
    InternalError,
    InvalidArgumentError,
    LimitExceededError,
    OverloadedError,
    PeerProtocolError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TreeLimitError,
    TrunklineError,
)

FULL = {"agent": "a", "retryAfterS": "3"}
SPENT = {"limit": "account 'a' has used its budget", "retryAfterS": "3"}
TREE = {
    "reason": "TREE_LIMIT",
    "metadata": {"limit": "depth", "chain": "a > b", "problem": "raise depth"},
}
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
WORKING = {"task": {"id": "t-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
WAITING = {
    "task": {"id": "t-1", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
}


@dataclass
class Call:
    """A received request, and the connection for its answer."""

    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter

    def begin(self, *more: bytes) -> None:
        self.writer.write(STREAM + b"".join(line + b"\r\n" for line in more) + b"\r\n")

    def event(self, event_id: str, result: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
        self.writer.write(f"id: {event_id}\ndata: {data}\n\n".encode())

    def answer(self, body: object, *, status: int = 200, kind: str = "application/json") -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}"
        self.writer.write(f"{head}\r\n\r\n".encode() + content)


Script = Callable[[Call], Awaitable[None]]


@dataclass
class Server:
    """Answers each connection by the next script; every connection has one request."""

    scripts: list[Script]
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        call = Call(headers, body, writer)
        self.calls.append(call)
        await self.scripts[len(self.calls) - 1](call)
        await writer.drain()


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[tuple[AgentClient, Server]]:
    server = Server(list(scripts))
    async with listening(server.serve) as port:
        server.url = f"http://127.0.0.1:{port}/agents/echo"
        async with AgentClient(server.url) as client:
            yield client, server


async def discard(_: ClientEvent) -> None:
    """Ignore an event."""


async def ask(
    client: AgentClient, *, task_id: str = "", timeout_s: float | None = None
) -> ClientAnswer:
    message = build_message("hello", task_id=task_id)
    return await client.send(message, discard, timeout_s=timeout_s)


def piece(text: str, *, append: bool = False) -> dict[str, Any]:
    return {
        "artifactUpdate": {
            "append": append,
            "taskId": "t-1",
            "contextId": "c",
            "artifact": {"artifactId": "a", "parts": [{"text": text}]},
        }
    }


def status(state: str) -> dict[str, Any]:
    return {
        "statusUpdate": {
            "taskId": "t-1",
            "contextId": "c",
            "status": {"state": f"TASK_STATE_{state}"},
        }
    }


async def test_a_message_is_sent_with_its_task_and_its_deadline() -> None:
    async def read_task(call: Call) -> None:
        call.answer({"result": WAITING["task"]})

    async def script(call: Call) -> None:
        call.begin(b"traceresponse: 00-" + b"ab" * 16 + b"-0000000000000001-01")
        call.event("1.0", WAITING)
        call.event("2.0", piece("x"))
        call.event("3.0", status("COMPLETED"))

    async with serving(read_task, script) as (client, server):
        answer = await ask(client, task_id="t-1", timeout_s=2.5)
    assert (answer.text, answer.trace_id) == ("x", "ab" * 16)
    _, call = server.calls
    assert call.headers["a2a-version"] == "1.0"
    assert 2 < float(call.headers["trunkline-timeout"]) <= 2.5
    assert call.body["method"] == "SendStreamingMessage"
    message = call.body["params"]["message"]
    assert (message["role"], message["taskId"], message["contextId"]) == ("ROLE_USER", "t-1", "c")
    assert message["parts"] == [{"text": "hello"}]


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_message_that_may_not_have_arrived_is_not_sent_again(is_cut: bool) -> None:
    async def cut(call: Call) -> None:
        call.begin(*([b"content-length: 9999"] if is_cut else []))

    async with serving(cut) as (client, server):
        with pytest.raises(PeerUnavailableError):
            await ask(client)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("status_code", "error", "expected"),
    [
        (200, {"code": -32001, "message": "x"}, TaskNotFoundError("t-9")),
        (200, {"code": -32002, "message": "x", "data": [{"metadata": {"state": "failed"}}]},
         TaskNotCancelableError("t-9", "failed")),
        (200, {"code": -32602, "message": "x", "data": [{"metadata": {"agent": "nobody"}}]},
         AgentNotFoundError("nobody")),
        (200, {"code": -32602, "message": "parts: missing"},
         InvalidArgumentError("the request", "parts: missing")),
        (429, {"code": -32000, "message": "x", "data": [{"metadata": FULL}]},
         OverloadedError("a", "3")),
        (429, {"code": -32000, "message": "x", "data": [{"metadata": SPENT}]},
         LimitExceededError("account 'a' has used its budget", "3")),
        (200, {"code": -32000, "message": "x", "data": [TREE]},
         TreeLimitError("depth", "a > b", "raise depth")),
        (401, {"code": -32000, "message": "say who you are"},
         InvalidArgumentError("--api-key or TRUNKLINE_API_KEY", "say who you are")),
        (200, {"code": -32603, "message": "x", "data": [{"metadata": {"traceId": "ab"}}]},
         InternalError("ab")),
        (200, {"code": -32004, "message": "it has ended", "data": {"odd": "shape"}},
         InvalidArgumentError("the request", "it has ended")),
    ],
)  # fmt: skip
async def test_errors_of_the_server_map_to_our_classes(
    status_code: int, error: dict[str, Any], expected: TrunklineError
) -> None:
    async def script(call: Call) -> None:
        call.answer({"jsonrpc": "2.0", "id": 1, "error": error}, status=status_code)

    async with serving(script, script) as (client, _):
        with pytest.raises(type(expected)) as excinfo:
            await client.get_task("t-9")
        assert str(excinfo.value) == str(expected)
        with pytest.raises(type(expected)):
            await ask(client, task_id="t-9")


@pytest.mark.parametrize("body", [b"<html>not here</html>", b"", b"[]", b'{"result": 3}'])
async def test_a_server_that_does_not_speak_a2a_is_named(body: bytes) -> None:
    async def script(call: Call) -> None:
        call.answer(body, status=404, kind="text/html")

    async with serving(script, script) as (client, server):
        with pytest.raises(PeerProtocolError, match="is a mesh's bridge there") as excinfo:
            await ask(client)
        assert server.url in str(excinfo.value)
        with pytest.raises(PeerProtocolError):
            await client.cancel_task("t")


async def test_local_requests_bypass_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    async def script(call: Call) -> None:
        call.answer({"result": WORKING["task"]})

    async with serving(script) as (client, _):
        assert (await client.get_task("t-1")).id == "t-1"


async def test_the_error_of_an_unreachable_server_has_advice() -> None:
    # No server listens on port 1.
    async with AgentClient("http://127.0.0.1:1/agents/echo") as client:
        with pytest.raises(PeerUnavailableError, match="trunkline up"):
            await ask(client)
