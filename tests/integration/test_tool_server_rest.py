"""An idle server is stopped to free memory, and its users do not notice."""

import asyncio
from pathlib import Path

from harness.mcp.scripted_servers import (
    READY_TIMEOUT_S,
    awkward,
    call,
    running,
    wait_for_file,
    wait_until,
)
from trunkline.tools.server import ToolServerState

IDLE = {"idle_s": 0.2}


async def test_a_server_that_may_rest_starts_at_its_first_use() -> None:
    async with running(lazy=awkward(trunkline=IDLE), eager=awkward()) as adapter:
        await adapter.wait_ready(["eager"], timeout_s=READY_TIMEOUT_S)
        (lazy,) = adapter.list_servers(["lazy"])
        assert (lazy.state, lazy.pid) == (ToolServerState.TOOL_SERVER_STATE_STARTING, None)
        await adapter.wait_ready(["lazy"], timeout_s=READY_TIMEOUT_S)
        assert "repeat" in lazy.tools


async def test_an_idle_server_stops_and_the_next_call_starts_it() -> None:
    async with running(awkward=awkward(trunkline=IDLE)) as adapter:
        (server,) = adapter.list_servers()
        assert (await call(adapter, "repeat", text="one")).content[0].text == "one"
        await wait_until(adapter, lambda: server.pid is None)
        assert server.state == ToolServerState.TOOL_SERVER_STATE_READY
        assert "repeat" in server.tools
        results = []
        async with asyncio.TaskGroup() as group:
            results = [group.create_task(call(adapter, "repeat", text="two")) for _ in range(5)]
        assert {result.result().content[0].text for result in results} == {"two"}
        await wait_until(adapter, lambda: server.pid is None)
        assert (await call(adapter, "repeat", text="three")).content[0].text == "three"


async def test_a_server_with_a_running_call_is_not_idle(tmp_path: Path) -> None:
    async with running(awkward=awkward(trunkline=IDLE)) as adapter:
        (server,) = adapter.list_servers()
        async with asyncio.TaskGroup() as group:
            hanging = group.create_task(call(adapter, "hang", marks=str(tmp_path)))
            await wait_for_file(tmp_path / "began")
            first = server.pid
            # Far longer than the idle timeout.
            await asyncio.sleep(4 * IDLE["idle_s"])
            assert server.pid == first is not None
            hanging.cancel()
        await wait_until(adapter, lambda: server.pid is None)


async def test_a_server_without_an_idle_timeout_never_stops() -> None:
    async with running(awkward=awkward()) as adapter:
        (server,) = adapter.list_servers()
        await call(adapter, "repeat", text="one")
        assert server.state == ToolServerState.TOOL_SERVER_STATE_READY
        assert server.pid is not None
