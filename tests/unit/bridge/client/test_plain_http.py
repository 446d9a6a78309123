"""Unary HTTP/1.1 requests to this machine."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from harness.mesh.processes import free_address
from harness.polling import wait_for
from trunkline.errors import PeerProtocolError, PeerTimeoutError, TrunklineError
from trunkline_bridge.client.errors import ConnectionLostError, NotProcessedError
from trunkline_bridge.client.plain_http import PlainHttp, PlainResponse

HEAD = b"POST /a HTTP/1.1\r\nHost: a\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMIT_BYTES = 8


@dataclass
class Server:
    """Sends one prepared answer for each request, and closes the connection where there is none."""

    answers: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: int = 0
    """The connections that have ended."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(2))
                answer = self.answers.pop(0)
                writer.write(answer)
                if answer is not OK:
                    break
            if self.requests and not self.requests[-1].startswith(b"POST /silent"):
                writer.close()
            else:
                await reader.read()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            self.ended += 1


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[Server, PlainHttp]]:
    server = Server(list(answers))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    http = PlainHttp("a", "127.0.0.1", port, connect_s=30, keepalive_s=30)
    try:
        yield server, http
    finally:
        http.close()
        listening.close()
        await listening.wait_closed()


async def post(http: PlainHttp, head: bytes = HEAD, *, timeout_s: float = 60) -> PlainResponse:
    return await http.request(head, b"hi", timeout_s=timeout_s, max_body_bytes=LIMIT_BYTES)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 503\r\nContent-Length: 0\r\n\r\n", 503, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200 OK\r\n\r\nto the", 200, b"to the"),
        (b"HTTP/1.0 200 OK\r\nA: 1\r\na:2\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: 1\r\n\r\n",
            200,
            b"abcd",
        ),
    ],
)
async def test_a_body_has_a_length_or_chunks_or_ends_with_its_connection(
    answer: bytes, status: int, body: bytes
) -> None:
    async with serving(answer) as (server, http):
        response = await post(http)
    assert (response.status, response.body) == (status, body)
    assert server.requests == [HEAD + b"Content-Length: 2\r\n\r\nhi"]
    if b"A: 1" in answer:
        assert response.headers["a"] == "1, 2"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\n", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: a\r\n\r\nok", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no", ConnectionLostError),
        (b"nonsense\r\n\r\n", ConnectionLostError),
        (b"A" * 100_000, ConnectionLostError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + b"a" * 9, PeerProtocolError),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 9, PeerProtocolError),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\naaaaaaaa\r\n1\r\na",
            PeerProtocolError,
        ),
    ],
    ids=str,
)
async def test_what_is_no_response_or_too_large_is_an_error(
    answer: bytes, error: type[TrunklineError]
) -> None:
    async with serving(answer) as (_, http):
        with pytest.raises(error):
            await post(http)


async def test_a_connection_is_used_again_until_a_side_closes_it() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serving(OK, OK, closing, OK) as (server, http):
        for connections in (1, 1, 1, 2):
            assert (await post(http)).body == b"ok"
            assert server.connections == connections
        # The server has nothing more to send and closes the connection.
        await wait_for(lambda: server.ended == 2)
        server.answers.append(OK)
        with suppress(ConnectionLostError):  # The end may not have arrived yet.
            await post(http)
        if server.answers:
            await post(http)
        assert server.connections == 3


async def test_concurrent_requests_have_connections_of_their_own() -> None:
    answers: Sequence[bytes] = [OK] * 5
    async with serving(*answers) as (server, http), asyncio.TaskGroup() as group:
        tasks = [group.create_task(post(http)) for _ in answers]
    assert {task.result().body for task in tasks} == {b"ok"}
    assert 1 < server.connections <= len(answers)


async def test_a_silent_server_and_an_address_of_nobody() -> None:
    async with serving(b"") as (_, http):
        with pytest.raises(PeerTimeoutError):
            await post(http, HEAD.replace(b"/a", b"/silent"), timeout_s=0.01)
    host, _, port = free_address().partition(":")
    with pytest.raises(NotProcessedError):
        await post(PlainHttp("a", host, int(port), connect_s=30, keepalive_s=30))
