"""Clients that are slow, too many, or flood the bridge, with either parser of HTTP."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
import pytest_asyncio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.hostile.http_probe import Answer, HttpProbe, read_answer
from harness.mesh.small_mesh import PATIENCE_S
from harness.polling import poll, wait_for
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo
from trunkline_bridge.http import server as serving
from trunkline_bridge.http.connection_limits import MAX_HEAD_BYTES, ConnectionLimits
from trunkline_bridge.http.server import serve_http

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 20
TIMEOUT_S = 0.5
# The interval of the checks of timeouts.
TICK_S = 0.05
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", request_timeout_s=TIMEOUT_S)
    async with open_bridged_mesh(tmp_path_factory.mktemp("mesh"), settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["h11", "httptools"])
async def probe(bridged: BridgedMesh, request: pytest.FixtureRequest) -> AsyncIterator[HttpProbe]:
    """A bridge with low limits."""
    bounds = ConnectionLimits(max_connections=LIMIT, request_timeout_s=TIMEOUT_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_PARSER", request.param)
        patch.setattr(serving, "_TICK_S", TICK_S)
        patch.setattr(serving, "KEEP_ALIVE_S", 1)
        async with serve_http(
            bridged.bridge.http, host="127.0.0.1", port=0, grace_s=0, limits=bounds
        ) as url:
            yield HttpProbe(url)


def valid(request_id: int = 1) -> bytes:
    call = {"jsonrpc": "2.0", "id": request_id, "method": "ListTasks", "params": {}}
    return json.dumps(call).encode()


def post(body: bytes, head: bytes = b"") -> bytes:
    return (
        b"POST / HTTP/1.1\r\nHost: localhost\r\n"
        + head
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


async def send_pieces(probe: HttpProbe, *pieces: bytes) -> Answer:
    """Send pieces and read one answer, however the connection ends."""
    reader, writer = await asyncio.open_connection(*probe.place)
    try:
        for piece in pieces:
            writer.write(piece)
        return await read_answer(reader)
    finally:
        writer.transport.abort()


async def trickled(probe: HttpProbe, request: bytes, size: int) -> Answer:
    """Send a request up to a byte, then one byte at each chance, and never its end."""
    reader, writer = await asyncio.open_connection(*probe.place)

    async def trickle() -> None:
        for byte in request[size:-1]:
            await probe.is_served()
            writer.write(bytes((byte,)))

    async with asyncio.TaskGroup() as group:
        writer.write(request[:size])
        slow = group.create_task(trickle())
        answer = await read_answer(reader)
        slow.cancel()
    writer.transport.abort()
    return answer


async def test_a_head_sent_byte_by_byte_is_disconnected(probe: HttpProbe) -> None:
    answer = await trickled(probe, post(valid(), b"X-Long: " + b"x" * 30_000 + b"\r\n"), 30)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert json.loads(answer.body)["error"]["code"] == 408


async def test_a_body_sent_byte_by_byte_gets_an_error_in_the_caller_s_protocol(
    probe: HttpProbe,
) -> None:
    request = post(b" " * 30_000 + valid())
    answer = await trickled(probe, request, len(request) - 30_000)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    error = json.loads(answer.body)
    assert (error["jsonrpc"], error["error"]["code"]) == ("2.0", -32600)
    rest_request = request.replace(b"POST / ", b"POST /message:send ")
    answer = await trickled(probe, rest_request, len(rest_request) - 30_000)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (408, 408)


@pytest.mark.parametrize("sent", [b"\r\n", post(valid())])
async def test_an_idle_connection_is_closed(probe: HttpProbe, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(*probe.place)
    writer.write(sent)
    await reader.read()
    assert reader.at_eof()
    writer.close()
    await probe.is_served()


async def test_a_head_of_ten_megabytes_is_refused(probe: HttpProbe) -> None:
    line = b"X-Long: " + b"x" * 1000 + b"\r\n"
    for head in (
        line * 10_000,
        b"X-Long: " + b"x" * 10 * 1024 * 1024,
        line * (3 * MAX_HEAD_BYTES // 1000),
    ):
        answer = await send_pieces(probe, post(valid(), head))
        # h11 has one status for everything that it rejects.
        assert answer.status in (400, 431)
        assert json.loads(answer.body)["error"]["code"] == answer.status
        await probe.is_served()
    assert (await send_pieces(probe, post(valid(), line * 50))).status == 200


async def test_bytes_that_are_not_http_get_an_error_in_json(probe: HttpProbe) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"hello there\r\n\r\n"):
        answer = await send_pieces(probe, garbage, b"x" * 100)
        assert (answer.status, json.loads(answer.body)["error"]["status"]) == (
            400,
            "INVALID_ARGUMENT",
        )


async def test_too_many_connections_are_refused_with_retry_after(bridged: BridgedMesh) -> None:
    # The default timeouts end no idle connection during this test.
    bounds = ConnectionLimits(max_connections=LIMIT)
    async with serve_http(
        bridged.bridge.http, host="127.0.0.1", port=0, grace_s=0, limits=bounds
    ) as url:
        probe = HttpProbe(url)
        with ExitStack() as open_ones:
            for _ in range(LIMIT):
                await hold_connection(probe, open_ones)
            reader, writer = await asyncio.open_connection(*probe.place)
            answer = await read_answer(reader)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert json.loads(answer.body)["error"]["status"] == "RESOURCE_EXHAUSTED"
            writer.close()
        await expect_service(probe)


async def test_idle_connections_are_closed_to_make_room(probe: HttpProbe) -> None:
    with ExitStack() as open_ones:
        for number in range(LIMIT):
            writer = await hold_connection(probe, open_ones)
            writer.write(post(valid())[: number * 5])
        await expect_service(probe)


async def large_or_small(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer GET with more than the system's buffers take."""
    body = b"x" * 16_000_000 if scope["method"] == "GET" else b"{}"
    await Response(body)(scope, receive, send)


@pytest.mark.parametrize("requests", [1, 3], ids=["one", "pipelined"])
@pytest.mark.parametrize("parser", ["h11", "httptools"])
async def test_a_response_that_is_not_read_ends(parser: str, requests: int) -> None:
    bounds = ConnectionLimits(max_connections=2, response_timeout_s=0.1)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(serving, "_PARSER", parser)
        patch.setattr(serving, "_TICK_S", TICK_S)
        server = serve_http(large_or_small, host="127.0.0.1", port=0, grace_s=0, limits=bounds)
        async with server as url, asyncio.timeout(PATIENCE_S):
            probe = HttpProbe(url)
            for _ in range(2):
                stalled = stack.enter_context(socket.socket())
                stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stalled.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(stalled, probe.place)
                get = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
                await loop.sock_sendall(stalled, get * requests)
            await expect_service(probe)


async def repeat_header(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(dict(scope["headers"])[b"mcp-name"])(scope, receive, send)


@pytest.mark.parametrize("parser", ["h11", "httptools"])
async def test_white_space_around_the_value_of_a_header_is_dropped(
    parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_PARSER", parser)
    async with serve_http(repeat_header, host="127.0.0.1", port=0, grace_s=0) as url:
        answer = await send_pieces(HttpProbe(url), post(b"", b"Mcp-Name: \t echo \t \r\n"))
    assert answer.body == b"echo"


async def hold_connection(probe: HttpProbe, stack: ExitStack) -> asyncio.StreamWriter:
    """Hold a connection until the stack closes."""
    _, writer = await asyncio.open_connection(*probe.place)

    def abort() -> None:
        # The writer stays referenced, too: an unreferenced one closes its connection.
        writer.transport.abort()

    stack.callback(abort)
    return writer


async def expect_service(probe: HttpProbe) -> None:
    async def is_served() -> bool:
        try:
            return (await send_pieces(probe, post(valid()))).status == 200
        except (ConnectionError, asyncio.IncompleteReadError):
            return False

    await poll(is_served)


async def test_an_offer_of_another_protocol_is_ignored(probe: HttpProbe) -> None:
    reader, writer = await asyncio.open_connection(*probe.place)
    for number, offer in enumerate((OFFER, b"", OFFER.lower(), b"")):
        writer.write(post(valid(number), offer))
        answer = json.loads((await read_answer(reader)).body)
        assert answer["id"] == number
        assert "result" in answer
    writer.close()


async def test_pipelined_requests_are_answered_in_order_up_to_a_limit(probe: HttpProbe) -> None:
    reader, writer = await asyncio.open_connection(*probe.place)
    writer.write(b"".join(post(valid(number)) for number in range(50)))
    for number in range(50):
        assert json.loads((await read_answer(reader)).body)["id"] == number
    writer.write(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000
        + post(valid(), b"Connection: close\r\n")
    )
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    writer.close()
    await probe.is_served()


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
async def test_a_compressed_body_is_refused_unread(probe: HttpProbe, encoding: str) -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    header = b"Content-Encoding: %s\r\n" % encoding.encode()
    answer = await send_pieces(probe, post(bomb, header))
    assert answer.status == 415
    assert encoding in json.loads(answer.body)["error"]["message"]
    identity = await send_pieces(probe, post(valid(), b"Content-Encoding: identity\r\n"))
    assert "result" in json.loads(identity.body)


async def test_a_client_that_leaves_within_pipelined_requests_leaves_nothing_open(
    bridged: BridgedMesh, probe: HttpProbe
) -> None:
    # The first one opens what stays open, such as the connection to the host.
    await leave_within_pipelined_requests(bridged, probe)
    before = len(asyncio.all_tasks())
    for _ in range(3):
        await leave_within_pipelined_requests(bridged, probe)
    await wait_for(lambda: len(asyncio.all_tasks()) <= before)
    assert bridged.bridge.in_flight_count == 0


async def leave_within_pipelined_requests(bridged: BridgedMesh, probe: HttpProbe) -> None:
    wait = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait 3600"}]}}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": wait}).encode()
    _, writer = await asyncio.open_connection(*probe.place)
    writer.write(post(call) + post(valid()) * 3)
    await wait_for(lambda: bridged.bridge.in_flight_count > 0)
    writer.transport.abort()
    await wait_for(lambda: not bridged.bridge.in_flight_count)
    listed = await bridged.at("/").call("ListTasks", {"status": "TASK_STATE_WORKING"})
    for task in listed["tasks"]:
        await bridged.at("/").call("CancelTask", {"id": task["id"]})
