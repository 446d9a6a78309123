"""A typical curl command for A2A 0.3, sent as curl sends it."""

import asyncio
import json
import shlex
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Json: TypeAlias = dict[str, Any]

LIMIT_S = 300.0
LINE = (
    "curl -X POST URL -H 'Content-Type: application/json' -H 'Accept: text/event-stream' -d "
    '\'{"jsonrpc":"2.0","id":"test-1","method":"message/stream","params":{"message":{"role":"user",'
    '"parts":[{"kind":"text","text":"what is 1+2"}],"messageId":"msg-1"}}}\''
)


async def curl(url: str, question: str = "what is 1+2") -> list[Json]:
    """Return the JSON-RPC responses of the stream that the command gets from a URL."""
    line = LINE.replace("what is 1+2", question)
    _, _, verb, _, _, first, _, second, _, body = shlex.split(line)
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = [f"{verb} {address.path} HTTP/1.1", f"Host: {address.netloc}", "User-Agent: curl/8.5.0"]
    lines = [*head, first, second, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    writer.write("\r\n".join(lines).encode() + body.encode())
    async with asyncio.timeout(LIMIT_S):
        answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith("HTTP/1.1 200"), answer
    assert "content-type: text/event-stream" in answer
    return [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: ")]
