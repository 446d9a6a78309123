"""MCP servers over streamable HTTP, of both protocols."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from harness.mcp.http_server import HttpTools, http_tools, serving
from harness.mcp.scripted_servers import (
    OPEN_GATE,
    QUICK,
    READY_TIMEOUT_S,
    call,
    running,
    tool_request,
    wait_until,
)
from harness.mesh.processes import free_address
from harness.polling import wait_for
from harness.remote.certificates import self_signed
from harness.remote.socket_server import Serve, listening
from trunkline.errors import ToolNotFoundError, ToolServerUnavailableError
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import AdapterSettings, ServerConfig
from trunkline.tools.server import ToolServerState
from trunkline.tools.tool_call import ToolCall

READY = ToolServerState.TOOL_SERVER_STATE_READY
FAILED = ToolServerState.TOOL_SERVER_STATE_FAILED
NAME = "elsewhere"
# Of JSON-RPC and of the SDK, which uses two of them for conditions of its own.
ERROR_CODES = (-32000, -32001, -32601, -32602, -32603, 1)
both = pytest.mark.parametrize("is_older", [False, True], ids=["newer", "older"])


@asynccontextmanager
async def reached(
    tools: HttpTools, settings: AdapterSettings = QUICK, **more: object
) -> AsyncIterator[ToolAdapter]:
    async with running(settings, elsewhere=tools.config(**more)) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        yield adapter


async def ask(adapter: ToolAdapter, tool: str, **arguments: object) -> str:
    result = await call(adapter, tool, server=NAME, **arguments)
    assert not result.is_error, result
    return result.content[0].text


@both
async def test_tools_are_listed_and_called_with_progress_and_headers_in_every_request(
    is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSEWHERE_KEY", "s3cret")
    news: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        news.append(message)

    headers = {"Authorization": "Bearer ${ELSEWHERE_KEY}", "X-Team": "${TEAM:-none}"}
    async with http_tools(is_older=is_older) as tools:
        async with reached(tools, headers=headers) as adapter:
            assert await ask(adapter, "repeat", text="hello") == "hello"
            server = adapter.get_server(NAME, "count")
            result = await server.call(ToolCall(tool_request("count", n=3), note), OPEN_GATE)
        assert result.content[0].text == "counted to 3"
        assert news == ["step 1", "step 2", "step 3"]
        sent = {
            (request.headers.get("authorization"), request.headers.get("x-team"))
            for request in tools.requests
        }
    assert sent == {("Bearer s3cret", "none")}
    assert bool(tools.sessions()) == is_older


@both
async def test_a_call_has_the_trace_of_its_caller_in_a_header(is_older: bool) -> None:
    caller = SpanContext(trace_id=7, span_id=8, is_remote=False)
    own = {"traceparent": "00-" + "9" * 32 + "-" + "9" * 16 + "-01"}
    async with http_tools(is_older=is_older) as tools:
        for headers in ({}, own):
            async with reached(tools, headers=headers) as adapter:
                with trace.use_span(NonRecordingSpan(caller)):
                    await ask(adapter, "repeat", text="hello")
                sent = {request.headers.get("traceparent", "") for request in tools.requests}
                # Listings belong to no caller. The SDK makes a span of its own in the caller's
                # trace if the process has a tracer provider, which another test may have set.
                is_traced = any(header.startswith(f"00-{7:032x}-") for header in sent)
                assert is_traced == (headers != own)
                tools.requests.clear()


@pytest.mark.parametrize("body", [b'{"id": 1, "secret"}', b'data: {"id": 1, "secret"}\n\n'])
async def test_an_answer_that_cannot_be_decoded_is_one_line(body: bytes) -> None:
    async with http_tools() as tools, reached(tools) as adapter:
        tools.call_answers.append((200, body))
        result = await call(adapter, "repeat", server=NAME, text="hello")
        assert result.is_error
        (part,) = result.content
        assert part.text.startswith("the answer is no valid message of JSON-RPC")
        assert "\n" not in part.text
        assert await ask(adapter, "repeat", text="still here") == "still here"


async def test_a_server_that_answers_only_with_json_is_supported() -> None:
    async with http_tools(is_json=True) as tools, reached(tools) as adapter:
        assert await ask(adapter, "repeat", text="hello") == "hello"


@both
async def test_canceling_a_call_cancels_the_tool(is_older: bool) -> None:
    async with http_tools(is_older=is_older) as tools, reached(tools) as adapter:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call(adapter, "hang", server=NAME))
            await tools.began.wait()
            task.cancel()
        async with asyncio.timeout(READY_TIMEOUT_S):
            await tools.canceled.wait()
        assert await ask(adapter, "repeat", text="still here") == "still here"


@both
async def test_a_changed_list_is_read_again_and_removed_tools_are_reported(is_older: bool) -> None:
    async with http_tools(is_older=is_older) as tools, reached(tools) as adapter:
        server = adapter.list_servers()[0]
        await ask(adapter, "learn")
        await wait_until(adapter, lambda: "learned" in server.tools)
        assert await ask(adapter, "learned", text="new") == "new"
        await ask(adapter, "forget")
        await wait_until(adapter, lambda: "repeat" not in server.tools)
        with pytest.raises(ToolNotFoundError, match="no tool elsewhere/repeat"):
            await ask(adapter, "repeat", text="gone")


async def test_a_change_without_notification_is_found_by_polling() -> None:
    settings = AdapterSettings(probe_s=0.05)
    async with http_tools() as tools, reached(tools, settings) as adapter:
        server = adapter.list_servers()[0]
        tools.mcp.remove_tool("repeat")
        await wait_until(adapter, lambda: "repeat" not in server.tools)
        assert "count" in server.tools


@pytest.mark.parametrize("is_error", [False, True], ids=["HTTP 404", "error of JSON-RPC"])
async def test_after_an_expired_session_any_call_is_repeated_in_a_new_one(is_error: bool) -> None:
    async with http_tools(is_older=True) as tools, reached(tools) as adapter:
        tools.is_unknown_an_error = is_error
        assert await ask(adapter, "repeat", text="first") == "first"
        for turn in ("second", "third"):
            tools.known = set()
            async with asyncio.TaskGroup() as group:
                call = group.create_task(ask(adapter, "repeat", text=turn))
                await wait_until(adapter, lambda: adapter.list_servers()[0].state != READY)
                tools.known = None
            assert call.result() == turn
        (server,) = adapter.list_servers()
        assert server.breaker.is_closed
    assert tools.calls == ["first", "second", "third"]
    assert len(tools.sessions()) == 3


async def test_a_listing_that_finds_the_session_lost_opens_a_new_one() -> None:
    settings = AdapterSettings(restart_delay_s=0.05, probe_s=0.05)
    async with http_tools(is_older=True) as tools, reached(tools, settings) as adapter:
        tools.is_unknown_an_error, tools.known = True, set()
        (server,) = adapter.list_servers()
        await wait_until(adapter, lambda: server.state != READY)
        tools.known = None
        await wait_until(adapter, lambda: server.state == READY)
    assert len(tools.sessions()) > 1


@both
async def test_an_error_of_a_tool_is_its_answer_whatever_its_code(is_older: bool) -> None:
    async with http_tools(is_older=is_older) as tools, reached(tools) as adapter:
        for code in ERROR_CODES:
            result = await call(adapter, "object_to", server=NAME, code=code)
            assert (result.is_error, result.content[0].text) == (True, "not with this text")
        (server,) = adapter.list_servers()
        assert (server.state, server.breaker.state) == (READY, "closed")
    assert len(tools.sessions()) == is_older


async def test_status_400_also_means_an_expired_session() -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID"}}'
    async with http_tools(is_older=True) as tools, reached(tools) as adapter:
        tools.answers.append((400, body))
        assert await ask(adapter, "repeat", text="again") == "again"
    assert len(tools.sessions()) == 2


@both
async def test_a_restarted_server_is_connected_to_again(is_older: bool) -> None:
    settings = AdapterSettings(restart_delay_s=0.05, restart_delay_max_s=0.2, probe_s=0.05)
    tools = HttpTools(is_older=is_older, is_json=False)
    # A reserved port: while the server is away, no other process may get it.
    port = int(free_address().rpartition(":")[2])
    async with serving(tools, port=port):
        pass
    with pytest.raises(ToolServerUnavailableError, match="localhost can't be reached"):
        async with reached(tools, settings):
            pass
    async with running(settings, elsewhere=tools.config()) as adapter:
        (server,) = adapter.list_servers()
        for _ in range(2):
            again = HttpTools(is_older=is_older, is_json=False)
            async with serving(again, port=port):
                await wait_until(adapter, lambda: server.state == READY)
                assert await ask(adapter, "repeat", text="back") == "back"
            await wait_until(adapter, lambda: server.state == FAILED)
            assert server.error == "localhost can't be reached (ConnectError)"


async def test_a_call_whose_answer_breaks_off_says_so() -> None:
    tools = HttpTools(is_older=True, is_json=False)
    port = int(free_address().rpartition(":")[2])
    entry = ServerConfig(url=f"http://localhost:{port}/mcp")

    async def wait_in_vain(adapter: ToolAdapter) -> None:
        with pytest.raises(ToolServerUnavailableError, match=r"broke off|can't be reached"):
            await call(adapter, "hang", server=NAME)

    async with (
        running(QUICK, elsewhere=entry) as adapter,
        asyncio.TaskGroup() as group,
        serving(tools, port=port),
    ):
        (server,) = adapter.list_servers()
        await wait_until(adapter, lambda: server.state == READY)
        group.create_task(wait_in_vain(adapter))
        await tools.began.wait()


async def test_a_working_server_that_refuses_a_request_gives_the_reason_at_once() -> None:
    async with http_tools() as tools, reached(tools) as adapter:
        (server,) = adapter.list_servers()
        tools.call_answers.append((401, b"{}"))
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(ask(adapter, "repeat", text="again"))
            await wait_until(adapter, lambda: server.state != READY)
            assert server.error.endswith("(HTTP 401)")
        assert calling.result() == "again"


async def test_a_call_whose_server_fails_is_repeated_only_if_it_is_idempotent() -> None:
    async with http_tools() as tools, reached(tools) as adapter:
        tools.call_answers.append((503, b"{}"))
        assert await ask(adapter, "repeat_reading", text="read") == "read"
        tools.call_answers.append((503, b"{}"))
        with pytest.raises(ToolServerUnavailableError, match="it answers with HTTP 503"):
            await ask(adapter, "repeat", text="write")
        tools.call_answers.append((429, b"{}"))
        limited = await call(adapter, "repeat", server=NAME, text="limited")
    assert limited.is_error
    assert limited.content[0].text == "it answers with HTTP 429"
    assert tools.calls == ["read"]


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (401, "it does not accept the credentials of its entry (HTTP 401)"),
        (403, "it answers with HTTP 403"),
        (404, "it answers with HTTP 404"),
        (308, "it answers with HTTP 308"),
    ],
)
async def test_the_error_of_a_refusing_server_has_the_reason_and_no_secret(
    status: int, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ELSEWHERE_KEY", "s3cret")
    async with http_tools() as tools:
        tools.answers += [(status, b"{}")] * 4
        entry = tools.config(headers={"Authorization": "Bearer ${ELSEWHERE_KEY}"})
        secret_entry = entry.model_copy(update={"url": f"{tools.url}?key=${{ELSEWHERE_KEY}}"})
        async with running(AdapterSettings(restart_delay_s=30), elsewhere=secret_entry) as adapter:
            (server,) = adapter.list_servers()
            await wait_until(adapter, lambda: server.state == FAILED)
            assert server.error == problem
    log = [record.getMessage() + str(vars(record)) for record in caplog.records]
    assert not [line for line in log if "s3cret" in line and "trunkline" in line]
    assert "s3cret" not in repr(secret_entry)


async def test_a_certificate_is_verified(tmp_path: Path) -> None:
    tls, ca_file = self_signed(tmp_path, "localhost")
    async with http_tools(tls=tls) as tools:
        with pytest.raises(ToolServerUnavailableError, match="certificate of localhost is not tr"):
            async with reached(tools):
                pass
        async with reached(tools, trunkline={"ca_file": str(ca_file)}) as adapter:
            assert await ask(adapter, "repeat", text="safe") == "safe"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"url": "${NOT_SET}"}, "its entry needs the environment variable NOT_SET, which is not"),
        ({"url": "http://["}, "its url does not start with http"),
        ({"url": "http://localhost:1", "headers": {"x": "ö\u20ac"}}, "its headers or its ca_file"),
        (
            {"url": "https://localhost:1", "trunkline": {"ca_file": "/nowhere"}},
            "its headers or its ca_file can't be used",
        ),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "the environment variable NOT_SET"),
    ],
)
async def test_the_error_of_an_invalid_entry_names_the_problem(
    entry: dict[str, object], problem: str
) -> None:
    config = HttpTools(is_older=False, is_json=False).config(**{"url": "", **entry})
    async with running(AdapterSettings(restart_delay_s=30), elsewhere=config) as adapter:
        with pytest.raises(ToolServerUnavailableError, match=problem):
            await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)


async def test_closing_ends_the_session_on_the_server() -> None:
    async with http_tools(is_older=True) as tools:
        async with reached(tools) as adapter:
            assert await ask(adapter, "repeat", text="hello") == "hello"
        assert tools.requests[-1].method == "DELETE"


@both
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("what", ["roots", "sampling"])
async def test_a_request_for_a_client_capability_is_refused_and_the_server_continues(
    what: str, is_older: bool
) -> None:
    async with http_tools(is_older=is_older) as tools, reached(tools) as adapter:
        refused = await call(adapter, "demand", server=NAME, what=what)
        assert refused.is_error
        assert re.search("not supported|no back-channel", refused.content[0].text)
        assert await ask(adapter, "repeat", text="on") == "on"


async def test_many_calls_at_once_do_not_mix() -> None:
    async with http_tools() as tools, reached(tools) as adapter, asyncio.TaskGroup() as group:
        calls = [group.create_task(ask(adapter, "repeat", text=f"{n}")) for n in range(50)]
    assert [task.result() for task in calls] == [f"{n}" for n in range(50)]


async def test_an_idle_remote_server_is_disconnected_until_the_next_call() -> None:
    async with http_tools(is_older=True) as tools:
        async with reached(tools, trunkline={"idle_s": 0.1}) as adapter:
            await wait_for(lambda: tools.requests[-1].method == "DELETE")
            assert await ask(adapter, "repeat", text="awake") == "awake"
        assert len(tools.sessions()) == 2


async def _send_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _send_no_http(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")


def _pour(head: bytes) -> Serve:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + head)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 1_000_000)
                await writer.drain()

    return pour


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (_send_nothing, "it did not answer within 1 s"),
        (_send_no_http, r"^the connection broke off \(\w+Error\)$"),
        (_pour(b"application/json\r\n\r\n"), "it answers with more than 16777216 bytes"),
        (_pour(b"text/event-stream\r\n\r\ndata: "), "it answers with more than 16777216 bytes"),
        (
            _pour(b"application/json\r\ncontent-encoding: gzip\r\n\r\n"),
            "it answers with compressed content",
        ),
    ],
    ids=["silence", "no-http", "endless-json", "endless-event", "compressed"],
)
async def test_a_server_that_is_not_mcp_is_reported_in_one_line(
    handler: Serve, problem: str
) -> None:
    async with listening(handler) as port:
        entry = ServerConfig(url=f"http://127.0.0.1:{port}/mcp")
        limit_s = 1 if handler is _send_nothing else READY_TIMEOUT_S
        settings = AdapterSettings(connect_timeout_s=limit_s, restart_delay_s=30)
        async with running(settings, elsewhere=entry) as adapter:
            (there,) = adapter.list_servers()
            await wait_until(adapter, lambda: there.state == FAILED)
            assert re.search(problem, there.error), there.error
