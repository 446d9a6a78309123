"""An MCP server of the older protocol over HTTP, whose tools answer with what the test says."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from harness.remote.socket_server import Serve

RawAnswer: TypeAlias = tuple[str, Callable[[Any], bytes], int]
"""The media type, a piece of the body made from the id of the call, and how often it is sent.

None at all never ends.
"""

_INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}


def raw_http_server(answers: Mapping[str, RawAnswer]) -> Serve:
    """Serve one tool for each answer."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in answers]
    results: dict[str, Any] = {"initialize": _INFO, "tools/list": {"tools": tools}}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"POST"):
            writer.write(b"HTTP/1.1 405 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            return
        (length,) = [
            int(line.split(b":")[1])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length:")
        ]
        request = json.loads(await reader.readexactly(length))
        method, key = request["method"], request.get("id")
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": key}
        if method == "tools/call":
            media_type, piece, times = answers[request["params"]["name"]]
        else:
            error = {"code": -32601, "message": "no such method"}
            answer = {"result": results[method]} if method in results else {"error": error}
            media_type, times = "application/json", 1
            piece = lambda _: json.dumps(message | answer).encode()  # noqa: E731
        status = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n"
        try:
            writer.write(status.encode())
            for _ in range(times):
                writer.write(piece(key))
                await writer.drain()
            if not times:
                await asyncio.Event().wait()
        except ConnectionError:
            # The client has read enough.
            return

    return serve
