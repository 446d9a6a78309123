"""The floor: `python -m bench.floor.server agent | middle AGENT | front AGENT MIDDLE`.

Between processes a task is a connection with a line for each event: a letter for its kind, then its
text. The front wraps each line in the JSON that an A2A client gets. Nothing is stored, checked,
traced or resumed, and a task can't be canceled: the cost of Trunkline above this floor is the cost
of its guarantees.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from bench.workload import PLAN, Ask, tokens

_CHILD = "child "
# An agent without pauses sends this many tokens, then yields to other tasks.
_RUN_LENGTH = 16
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)

Lines = AsyncIterator[bytes]
Answer = Callable[[str], Lines]


async def _agent(text: str) -> Lines:
    """Answer the question; a direct call also gets the plan, the notice and the whole text."""
    if text.startswith("echo "):
        yield b"w" + text.removeprefix("echo ").encode() + b"\n"
    elif text.startswith("wait"):
        yield b"n\n"
        await asyncio.sleep(3600)
    elif text.startswith(_CHILD):
        async for lines in _tokens(text):
            yield lines
    else:
        async for lines in _with_plan(_tokens(text)):
            yield lines


async def _tokens(text: str) -> Lines:
    ask = Ask.parse(text)
    run: list[str] = []
    async for token in tokens(ask):
        run.append(f"t{token}\n")
        if ask.gap_ms or len(run) == _RUN_LENGTH:
            yield "".join(run).encode()
            run.clear()
            await asyncio.sleep(0)
    yield "".join(run).encode()


def _middle(url: str) -> Answer:
    return lambda text: _with_plan(_ask(url, _CHILD + text))


async def _with_plan(answer: Lines) -> Lines:
    yield "".join(f"p{token}\n" for token in PLAN).encode() + b"n\n"
    pieces: list[bytes] = []
    async for lines in answer:
        pieces.append(lines)
        yield lines
    yield b"n\nw" + b"".join(pieces).replace(b"\nt", b"")[1:]


async def _ask(url: str, text: str) -> Lines:
    """Call the next process and yield complete lines on arrival."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(text.encode() + b"\n")
        rest = b""
        while data := await reader.read(1 << 16):
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                yield lines + newline
    finally:
        writer.close()


def _handle_lines(answer: Answer) -> Callable[..., Awaitable[None]]:
    """Return a handler for connections of the previous process."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = (await reader.readline()).decode().rstrip("\n")
        async for lines in answer(text):
            writer.write(lines)
            await writer.drain()
        writer.close()

    return serve


def _handle_http(next_urls: dict[str, str]) -> Callable[..., Awaitable[None]]:
    """Return a handler for A2A clients; `next_of` maps paths to the next process."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = _LENGTH.search(head)
            assert length is not None, head
            call = json.loads(await reader.readexactly(int(length[1])))
            url = next_urls[head.split(b" ", 2)[1].decode()]
            if call["method"] == "SendMessage":
                text = call["params"]["message"]["parts"][0]["text"]
                pieces = b"".join([lines async for lines in _ask(url, text)])
                body = b'{"jsonrpc":"2.0","id":1,"result":' + _body(pieces[1:-1]) + b"}"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                continue
            is_new = call["method"] == "SendStreamingMessage"
            text = call["params"]["message"]["parts"][0]["text"] if is_new else "wait"
            writer.write(_STREAM_HEAD + _chunk([_event(b"n")]))
            async for lines in _ask(url, text):
                writer.write(_chunk(map(_event, lines.splitlines())))
                await writer.drain()
            writer.write(_chunk([_event(b"e")]) + b"0\r\n\r\n")
            break
        writer.close()

    return serve


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


_TASK = b'"taskId":"abcdefgh-0123456789abcdef","contextId":"0b8e7c9e-5f4f-4ad0-9a9a-2f9a1a4c7d11"'
_EVENT_PREFIX = b'id: 123.0\ndata: {"jsonrpc":"2.0","id":1,"result":'
_OTHER_EVENTS = {
    b"n": b'{"task":{"id":"abcdefgh-0123456789abcdef","status":{"state":"TASK_STATE_WORKING"}}}',
    b"e": b'{"statusUpdate":{%s,"status":{"state":"TASK_STATE_COMPLETED"}}}' % _TASK,
}


def _event(line: bytes) -> bytes:
    """Return one line as a server-sent event."""
    body = _OTHER_EVENTS.get(line[:1])
    return _EVENT_PREFIX + (_body(line[1:]) if body is None else body) + b"}\n\n"


def _body(text: bytes) -> bytes:
    return (
        b'{"artifactUpdate":{' + _TASK + b',"artifact":{"artifactId":"artifact-1",'
        b'"name":"streaming_result","parts":[{"text":"' + text + b'"}]},"append":true}}'
    )


def _chunk(events: Iterable[bytes]) -> bytes:
    body = b"".join(events)
    return b"%x\r\n" % len(body) + body + b"\r\n"


async def _serve(role: str, *peers: str) -> None:
    if role == "agent":
        handler = _handle_lines(_agent)
    elif role == "middle":
        handler = _handle_lines(_middle(peers[0]))
    else:
        agent, middle = peers
        handler = _handle_http({"/agents/workload": agent, "/agents/echo": agent, "/": middle})
    server = await asyncio.start_server(handler, "127.0.0.1", 0, backlog=2048)
    print(f"ready url=http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the event loop factory of Trunkline's own processes: uvloop if installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(*sys.argv[1:]))
