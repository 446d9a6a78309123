"""A scripted remote A2A agent on a real socket, over JSON-RPC and the POSTs of HTTP+JSON."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from harness.remote.socket_server import listening

Json: TypeAlias = dict[str, Any]
Writer: TypeAlias = asyncio.StreamWriter
# Answers a call by writing to the stream.
Answer: TypeAlias = Callable[["Call", Writer], Awaitable[None]]

PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Call:
    """A received request."""

    method: str
    """The method of JSON-RPC, or the path of HTTP+JSON."""
    params: Json
    headers: Mapping[str, str]
    id: Any = None

    def result(self, result: object) -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def error(self, code: int, text: str = "no") -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": text}}


@dataclass(slots=True)
class ScriptedAgent:
    """The script of the agent by method, and its record of calls.

    Each answer is used once, and the last one of a method for every further call.
    """

    url: str = ""
    card: Json = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def on(self, method: str, *answers: Answer) -> None:
        self.answers[method] = list(answers)

    def find_requests(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    async def until(self, method: str, times: int = 1) -> Call:
        """Wait until a method was called so many times; return the last call."""
        try:
            async with asyncio.timeout(PATIENCE_S), self.changed:
                await self.changed.wait_for(lambda: len(self.find_requests(method)) >= times)
        except TimeoutError:
            methods = [call.method for call in self.calls]
            raise AssertionError(f"not asked {times} times for {method}: {methods}") from None
        return self.find_requests(method)[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            call = await _read(reader)
            async with self.changed:
                self.calls.append(call)
                self.changed.notify_all()
            answers = self.answers.get(call.method, [error(-32601)])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            await answer(call, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if first.startswith("GET"):
        return Call("card", {}, headers)
    body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
    if "method" not in body:
        return Call(first.split()[1], body, headers)
    return Call(body["method"], body["params"], headers, body["id"])


def head(kind: str, *, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}\r\n".encode()


def raw(*pieces: bytes) -> Answer:
    """Answer these bytes and close the connection."""

    async def answer(_call: Call, writer: Writer) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return answer


def http(status: str, body: str = "", *, kind: str = "text/plain", more: str = "") -> Answer:
    return raw(head(kind, status=status, more=more) + body.encode())


def error(code: int, text: str = "no") -> Answer:
    async def answer(call: Call, writer: Writer) -> None:
        writer.write(head("application/json") + json.dumps(call.error(code, text)).encode())
        await writer.drain()

    return answer


def result(value: object) -> Answer:
    async def answer(call: Call, writer: Writer) -> None:
        writer.write(head("application/json") + json.dumps(call.result(value)).encode())
        await writer.drain()

    return answer


def stream(
    *events: object, then: asyncio.Event | None = None, ids: bool = False, cut: bool = False
) -> Answer:
    """Stream events; after the last one wait for `then`, or close.

    `cut` ends the response early, as a broken connection does.
    """

    async def answer(call: Call, writer: Writer) -> None:
        chunked = "transfer-encoding: chunked\r\n" if cut else ""
        writer.write(head("text/event-stream", more=chunked))
        for number, event in enumerate(events):
            text = event if isinstance(event, str) else f"data: {json.dumps(call.result(event))}"
            label = f"id: {number + 1}\n" if ids else ""
            data = f"{label}{text}\n\n".encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n" if cut else data)
        await writer.drain()
        if then is not None:
            await then.wait()

    return answer


async def silence(_call: Call, writer: Writer) -> None:
    """Never answer."""
    await writer.wait_closed()


def task(state: str = "WORKING", **more: object) -> Json:
    status = {"state": f"TASK_STATE_{state}"}
    return {"task": {"id": "t-1", "contextId": "c-1", "status": status, **more}}


def status(state: str, text: str = "", **more: object) -> Json:
    fields: Json = {"state": f"TASK_STATE_{state}"}
    if text:
        fields["message"] = message(text)["message"]
    return {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": fields, **more}}


def message(text: str) -> Json:
    return {"message": {"messageId": f"m {text}", "role": "ROLE_AGENT", "parts": [{"text": text}]}}


def artifact(text: str, artifact_id: str = "a-1") -> Json:
    return {"artifactId": artifact_id, "parts": [{"text": text}]}


def chunk(text: str, *, artifact_id: str = "a-1", task_id: str = "t-1", **more: object) -> Json:
    update = {"taskId": task_id, "contextId": "c-1", "artifact": artifact(text, artifact_id)}
    return {"artifactUpdate": {**update, **more}}


@asynccontextmanager
async def scripted_agent(
    *, streaming: bool = True, resumes: str = "", port: int = 0
) -> AsyncIterator[ScriptedAgent]:
    """Serve an agent called Scripted for the length of a block."""
    agent = ScriptedAgent()
    async with listening(agent.serve, port=port) as bound:
        agent.url = f"http://127.0.0.1:{bound}"
        extensions = [{"uri": resumes}] if resumes else []
        agent.card = {
            "name": "Scripted",
            "description": "Answers by a script.",
            "version": "1",
            "supportedInterfaces": [
                {"url": agent.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {"streaming": streaming, "extensions": extensions},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
        }

        async def show_card(_call: Call, writer: Writer) -> None:
            writer.write(head("application/json") + json.dumps(agent.card).encode())
            await writer.drain()

        agent.on("card", show_card)
        agent.on("CancelTask", result(task("CANCELED")["task"]))
        yield agent
