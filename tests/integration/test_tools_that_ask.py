"""Tools of MCP 2026-07-28 that ask, and calls that become tasks, over both transports."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.mcp import asking_server
from harness.mcp.scripted_servers import QUICK, asking_over_http
from harness.polling import wait_for
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.v1 import tool_service_pb2

TIMEOUT_S = 300.0
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])
SCRIPT = str(asking_server.__file__)


@asynccontextmanager
async def asking(folder: Path, transport: str) -> AsyncIterator[ServerConfig]:
    """Run the server, unless the adapter does; yield its entry."""
    if transport == "stdio":
        environment = {"ASKING_FOLDER": str(folder)}
        yield ServerConfig(command=sys.executable, args=[SCRIPT], env=environment)
        return
    async with asking_over_http(folder) as url:
        yield ServerConfig(url=url)


@asynccontextmanager
async def adapter(entry: ServerConfig) -> AsyncIterator[ToolAdapter]:
    async with ToolAdapter(McpConfig({"asking": entry}), settings=QUICK) as running:
        async with asyncio.timeout(TIMEOUT_S):
            while "book_table" not in running.list_servers()[0].tools:
                await running.wait_for_change(running.revision)
        yield running


async def call(
    tools: ToolAdapter,
    tool: str,
    *,
    continuation: tool_service_pb2.ToolContinuation | None = None,
    handles: list[str] | None = None,
    statuses: list[str] | None = None,
    **arguments: object,
) -> tool_service_pb2.ToolResult:
    async def on_task(handle: str) -> None:
        if handles is not None:
            handles.append(handle)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if statuses is not None:
            statuses.append(message or "")

    async with asyncio.timeout(TIMEOUT_S):
        return await tools.call(
            "asking",
            tool,
            arguments,
            timeout_s=None,
            on_progress=on_progress,
            continuation=continuation,
            on_task=on_task,
        )


def read_log(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


@TRANSPORTS
async def test_a_question_is_answered_in_a_later_session_with_the_unchanged_state(
    tmp_path: Path, transport: str
) -> None:
    async with asking(tmp_path, transport) as entry:
        async with adapter(entry) as tools:
            asked = await call(tools, "book_table", city="Rome")
        question = asked.question
        assert asked.is_error
        requests = json.loads(question.requests)
        assert requests["table"]["params"]["message"] == "A table in Rome?"
        assert requests["table"]["params"]["requestedSchema"]["required"] == ["seats", "view"]
        answer = {"table": {"action": "accept", "content": {"seats": 4, "view": "garden"}}}
        continuation = tool_service_pb2.ToolContinuation(
            responses=json.dumps(answer), request_state=question.request_state
        )
        async with adapter(entry) as tools:
            done = await call(tools, "book_table", city="Rome", continuation=continuation)
            changed = tool_service_pb2.ToolContinuation(
                responses=json.dumps(answer), request_state=question.request_state[:-2] + b"xy"
            )
            refused = await call(tools, "book_table", city="Rome", continuation=changed)
    assert (done.is_error, done.content[0].text) == (False, "A table in Rome for 4.")
    assert not done.HasField("question")
    assert refused.is_error
    assert read_log(tmp_path) == [
        "asked for Rome",
        'accept {"seats": 4, "view": "garden"} with state of Rome',
    ]


@TRANSPORTS
async def test_a_call_that_becomes_a_task_is_followed_to_its_result(
    tmp_path: Path, transport: str
) -> None:
    handles: list[str] = []
    statuses: list[str] = []
    async with asking(tmp_path, transport) as entry, adapter(entry) as tools:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(
                call(tools, "bake", cake="tart", handles=handles, statuses=statuses)
            )
            await wait_for(lambda: bool(statuses))
            assert not following.done()
            (tmp_path / "done").touch()
        result = following.result()
    assert (result.is_error, result.content[0].text) == (False, "a plain tart")
    assert statuses == ["in the oven"]
    assert read_log(tmp_path) == [f"bake {handles[0]}"]


@TRANSPORTS
async def test_a_task_is_followed_by_its_handle_in_a_later_session_and_can_be_canceled(
    tmp_path: Path, transport: str
) -> None:
    handles: list[str] = []
    async with asking(tmp_path, transport) as entry:
        async with adapter(entry) as tools, asyncio.TaskGroup() as group:
            following = group.create_task(call(tools, "bake", cake="tart", handles=handles))
            await wait_for(lambda: bool(handles))
            following.cancel()
        continuation = tool_service_pb2.ToolContinuation(task_handle=handles[0])
        async with adapter(entry) as tools:
            (tmp_path / "done").touch()
            done = await call(tools, "bake", cake="tart", continuation=continuation)
            await tools.cancel_task("asking", handles[0])
            canceled = await call(tools, "bake", cake="tart", continuation=continuation)
            continuation.task_handle = "nothing"
            unknown = await call(tools, "bake", cake="tart", continuation=continuation)
            await tools.cancel_task("asking", "nothing")
    assert done.content[0].text == "a plain tart"
    assert (canceled.is_error, unknown.is_error) == (True, True)
    assert unknown.content[0].text == "Task not found"
    # The end of the call alone does not cancel the task.
    assert read_log(tmp_path) == [f"bake {handles[0]}", f"canceled {handles[0]}"]


@TRANSPORTS
async def test_a_call_that_ends_before_its_task_is_named_cancels_that_task(
    tmp_path: Path, transport: str
) -> None:
    (tmp_path / "slow").touch()
    async with asking(tmp_path, transport) as entry, adapter(entry) as tools:
        handles: list[str] = []
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(call(tools, "bake", cake="pie", handles=handles))
            await wait_for(lambda: len(read_log(tmp_path)) == 1)
            calling.cancel()
            # One pass of the loop: the cancellation arrives before the answer.
            await asyncio.sleep(0)
            (tmp_path / "slow").unlink()
    assert calling.cancelled()
    task_id = read_log(tmp_path)[0].removeprefix("bake ")
    assert read_log(tmp_path) == [f"bake {task_id}", f"canceled {task_id}"]
    assert handles == []


@TRANSPORTS
async def test_a_task_asks_and_takes_the_answer_once(tmp_path: Path, transport: str) -> None:
    (tmp_path / "done").touch()
    handles: list[str] = []
    async with asking(tmp_path, transport) as entry, adapter(entry) as tools:
        asked = await call(tools, "bake_to_taste", cake="tart", handles=handles)
        assert asked.question.task_handle == handles[0]
        assert json.loads(asked.question.requests)["taste"]["params"]["message"] == "Sweet?"
        answer = {"taste": {"action": "accept", "content": {"sugar": True}}}
        continuation = tool_service_pb2.ToolContinuation(
            responses=json.dumps(answer), task_handle=handles[0]
        )
        done = await call(tools, "bake_to_taste", cake="tart", continuation=continuation)
    assert (done.is_error, done.content[0].text) == (False, "a sweet tart")
    assert read_log(tmp_path) == [f"bake {handles[0]}", f"answered {handles[0]}"]
