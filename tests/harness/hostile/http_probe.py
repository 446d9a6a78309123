"""Sends malformed requests on raw sockets, and checks the answers."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from harness.hostile.http_requests import Request

Json: TypeAlias = dict[str, Any]

PATIENCE_S = 300.0
# The error codes of JSON-RPC and A2A that blame the request. -32603 blames the server.
_CODES: Final = {-32700, -32600, -32601, -32602, -32000, *range(-32009, -32000)}
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpProbe:
    """Sends requests on raw sockets, and checks every answer."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self.place = (address.hostname, address.port)
        self.host = address.netloc

    async def provoke(self, request: Request) -> Answer | None:
        """Send a request; check its answer, if there is one, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*self.place)
            try:
                writer.write(request.render())
                if request.is_framed:
                    answer = await read_answer(reader, has_body=request.method != b"HEAD")
                    check(answer, is_json_rpc=request.is_json_rpc)
                    return answer
                # The number of answers is unknown. After another request was served, none is due.
                await self.is_served()
                if writer.can_write_eof():
                    writer.write_eof()
                check_bytes(await _all(reader))
                return None
            except ConnectionError:
                assert not request.is_framed
                return None
            finally:
                writer.transport.abort()

    async def is_served(self) -> None:
        """Check that a valid request is answered."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).encode()
        valid = Request(b"POST", b"/agents/echo", [(b"Host", self.host.encode())], body)
        reader, writer = await asyncio.open_connection(*self.place)
        try:
            writer.write(valid.render())
            answer = await read_answer(reader)
        finally:
            writer.transport.abort()
        assert answer.status == 200
        assert "result" in json.loads(answer.body)


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> Answer:
    """Read one answer, or the first event of a stream."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = b""
    if has_body and status not in (204, 304):
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            await reader.readuntil(b"\r\n")
            body = await reader.readuntil(b"\n\n")
    return Answer(status, headers, body)


async def _all(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    try:
        while piece := await reader.read(1 << 16):
            pieces.append(piece)
    except ConnectionError:
        # The server refused the request before it had read all of it.
        pass
    return b"".join(pieces)


def check_bytes(answers: bytes) -> None:
    """Check that bytes are HTTP responses, and that no status blames the server."""
    assert answers == b"" or answers.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), answers[:200]
    assert b"5" not in {match[1][:1] for match in _STATUS.finditer(answers)}, answers[:300]
    assert b'"code":-32603' not in answers, answers[:1000]


def check(answer: Answer, *, is_json_rpc: bool) -> None:
    """Check that an answer is one of A2A, and does not blame the server."""
    assert 200 <= answer.status < 500, answer
    assert answer.headers.get("content-type", "").partition(";")[0] in {
        "",
        "application/json",
        "application/a2a+json",
        "text/event-stream",
    }, answer
    if not answer.body:
        return
    text = answer.body
    if answer.headers["content-type"] == "text/event-stream":
        text = b"".join(line[6:] for line in text.split(b"\n") if line.startswith(b"data: "))
    response = json.loads(text)
    assert "jsonrpc" in response or not is_json_rpc, answer
    if answer.status >= 400:
        assert "error" in response, answer
    if isinstance(response, dict) and "error" in response:
        _check_error(response, answer)


def _check_error(body: Json, answer: Answer) -> None:
    error = body["error"]
    if "jsonrpc" in body:
        assert set(body) == {"jsonrpc", "id", "error"}, answer
        assert error["code"] in _CODES, answer
        details = error.get("data") or []
    else:
        assert error["code"] == answer.status, answer
        assert error["status"] not in {"INTERNAL", "UNKNOWN", "DATA_LOSS"}, answer
        details = error["details"]
    assert error["message"], answer
    reasons = [detail.get("reason") for detail in details if isinstance(detail, dict)]
    if "INVALID_PARAMS" in reasons:
        # The error must name the field.
        assert ": " in error["message"], answer
        if answer.headers["content-type"] != "text/event-stream":
            assert any("fieldViolations" in detail for detail in details), answer
