"""MCP servers that crash, hang, answer garbage or read nothing, and the waits of their callers."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable
from pathlib import Path

import pytest

from harness.mcp.scripted_servers import (
    AWKWARD,
    OPEN_GATE,
    PLAIN,
    READY_TIMEOUT_S,
    awkward,
    call,
    running,
    script,
    tool_request,
    wait_for_file,
    wait_until,
)
from harness.polling import wait_for
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    ToolServerUnavailableError,
)
from trunkline.mesh.client import BreakerSettings
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import AdapterSettings, ServerConfig
from trunkline.tools.server import ToolServer, ToolServerState
from trunkline.tools.server_process import ServerProcess
from trunkline.tools.tool_call import ToolCall


def breaker_settings(*, failures: int = 3, open_s: float = 600.0) -> AdapterSettings:
    """Settings of a breaker that opens after so many failures, for so long."""
    return AdapterSettings(
        restart_delay_s=0.01,
        restart_delay_max_s=0.01,
        grace_s=0.5,
        breaker=BreakerSettings(failures=failures, open_s=open_s),
    )


def broken_while(sign: Path) -> ServerConfig:
    """The awkward server, which fails to start while a file exists."""
    return script(
        f"import os, sys\nif os.path.exists({str(sign)!r}): sys.exit(7)\n"
        f"os.execv(sys.executable, [sys.executable, {AWKWARD!r}])"
    )


def only_server(adapter: ToolAdapter) -> ToolServer:
    (server,) = adapter.list_servers()
    return server


async def test_after_failed_starts_the_breaker_opens_and_calls_fail_with_the_reason(
    tmp_path: Path,
) -> None:
    sign = tmp_path / "broken"
    sign.touch()
    async with running(breaker_settings(), broken=broken_while(sign), fine=awkward()) as adapter:
        (server,) = adapter.list_servers(["broken"])
        await wait_until(adapter, lambda: server.breaker.state == "open")
        assert server.state == ToolServerState.TOOL_SERVER_STATE_FAILED
        for _ in range(3):
            with pytest.raises(ToolServerUnavailableError) as refused:
                await call(adapter, "repeat", server="broken", text="hello")
        assert refused.value.problem.startswith(
            "it kept failing, at last: it exited with code 7 before it was ready; "
            "it is tried again in "
        )
        assert (await call(adapter, "repeat", server="fine", text="hi")).content[0].text == "hi"


async def test_a_start_of_the_repaired_server_half_opens_the_breaker_and_a_call_closes_it(
    tmp_path: Path,
) -> None:
    sign = tmp_path / "broken"
    sign.touch()
    async with running(breaker_settings(open_s=0.2), broken=broken_while(sign)) as adapter:
        server = only_server(adapter)
        await wait_until(adapter, lambda: server.breaker.state == "open")
        sign.unlink()
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_READY)
        assert server.breaker.state == "half-open"
        result = await call(adapter, "repeat", server="broken", text="back")
        assert result.content[0].text == "back"
        assert server.breaker.is_closed


async def test_hanging_tools_open_the_breaker(tmp_path: Path) -> None:
    slow = awkward(trunkline={"call_timeout_s": 1})
    async with running(breaker_settings(), slow=slow) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        for _ in range(3):
            with pytest.raises(PeerTimeoutError):
                await call(adapter, "hang", server="slow", marks=str(tmp_path))
        with pytest.raises(ToolServerUnavailableError, match="hang took more than 1 s"):
            await call(adapter, "repeat", server="slow", text="hello")


async def test_a_caller_s_own_deadline_is_no_failure_of_the_server(tmp_path: Path) -> None:
    async with running(breaker_settings(failures=1), awkward=awkward()) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        server = only_server(adapter)
        for _ in range(2):
            with pytest.raises(PeerTimeoutError):
                async with asyncio.timeout(READY_TIMEOUT_S):
                    await server.call(
                        ToolCall(tool_request("hang", marks=str(tmp_path)), _ignore, timeout_s=0.2),
                        OPEN_GATE,
                    )
        assert server.breaker.state == "closed"


async def test_invalid_answers_open_the_breaker() -> None:
    async with running(breaker_settings(), plain=PLAIN) as adapter:
        for _ in range(3):
            with pytest.raises(PeerProtocolError):
                await call(adapter, "nonsense", server="plain")
        with pytest.raises(ToolServerUnavailableError, match="it kept failing, at last: the res"):
            await call(adapter, "fine", server="plain")


async def test_failing_or_unknown_tools_are_no_failure_of_the_server() -> None:
    async with running(breaker_settings(failures=1), awkward=awkward()) as adapter:
        assert (await call(adapter, "refuse")).is_error
        with pytest.raises(Exception, match="no tool awkward/nothing"):
            await call(adapter, "nothing")
        assert only_server(adapter).breaker.state == "closed"


async def test_a_failed_probe_opens_the_breaker_again() -> None:
    async with running(breaker_settings(failures=1, open_s=0.2), plain=PLAIN) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        server = only_server(adapter)
        for _ in range(2):
            with pytest.raises(PeerProtocolError):
                await call(adapter, "nonsense", server="plain")
            await wait_for(lambda: server.breaker.state == "half-open")
        for _ in range(2):
            await call(adapter, "fine", server="plain")
        assert server.breaker.state == "closed"


async def test_the_end_of_a_server_is_one_failure_for_any_number_of_calls(tmp_path: Path) -> None:
    async with running(breaker_settings(failures=2), awkward=awkward()) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(_failing(call(adapter, "hang", marks=str(tmp_path))))
                for _ in range(8)
            ]
            await wait_for_file(tmp_path / "began")
            calls.append(group.create_task(_failing(call(adapter, "die", code=3))))
        assert only_server(adapter).breaker.state == "closed"
        assert (await call(adapter, "repeat", text="back")).content[0].text == "back"


@pytest.mark.parametrize("tool", ["fall_reading", "fall_repeatable"])
async def test_an_idempotent_call_is_repeated_once_when_the_server_ends(
    tool: str, tmp_path: Path
) -> None:
    async with running(awkward=awkward()) as adapter:
        result = await call(adapter, tool, marks=str(tmp_path))
        assert result.content[0].text == "second time lucky"
    assert (tmp_path / "calls").read_text() == "xx"


async def test_a_call_that_may_change_something_is_never_repeated(tmp_path: Path) -> None:
    async with running(awkward=awkward()) as adapter:
        with pytest.raises(ToolServerUnavailableError, match="exited with code 9 during the call"):
            await call(adapter, "fall", marks=str(tmp_path))
        assert (await call(adapter, "repeat", text="back")).content[0].text == "back"
    assert (tmp_path / "calls").read_text() == "x"


async def test_a_canceled_call_ends_although_the_tool_continues(tmp_path: Path) -> None:
    async with running(awkward=awkward()) as adapter:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call(adapter, "insist", marks=str(tmp_path)))
            await wait_for_file(tmp_path / "began")
            task.cancel()
        assert task.cancelled()
        assert (await call(adapter, "repeat", text="still here")).content[0].text == "still here"


async def test_a_canceled_call_does_not_wait_for_a_server_that_reads_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="mcp")
    async with running(awkward=awkward()) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        pid = only_server(adapter).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.TaskGroup() as group:
                # More than a pipe and its buffer hold.
                task = group.create_task(call(adapter, "repeat", text="x" * 500_000))
                await asyncio.sleep(0)
                await wait_for(lambda: _is_full(adapter))
                task.cancel()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await call(adapter, "repeat", text="awake")).content[0].text == "awake"
    # The SDK logs a warning if it had to wait.
    assert [record.message for record in caplog.records if "gave up" in record.message] == []


def _is_full(adapter: ToolAdapter) -> bool:
    session = only_server(adapter)._session
    assert session is not None
    connection = session._connection
    assert isinstance(connection, ServerProcess)
    return connection._stdin.transport.get_write_buffer_size() > 0


async def _failing(calling: Awaitable[object]) -> None:
    with pytest.raises(ToolServerUnavailableError):
        await calling


async def _ignore(progress: float, total: float | None, message: str | None) -> None:
    pass
