"""Tools that ask, and calls that become tasks, over both transports."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.mcp import asking_server
from harness.mcp.http_server import HttpTools, http_tools
from harness.mcp.scripted_servers import (
    OPEN_GATE,
    PLAIN,
    QUICK,
    asking_over_http,
    running,
    tool_request,
    wait_until,
)
from harness.polling import wait_for
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.tools.tool_call import ToolCall
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
    async with ToolAdapter(McpConfig({"asking": entry}), settings=QUICK) as tools:
        async with asyncio.timeout(TIMEOUT_S):
            while "book_table" not in tools.list_servers()[0].tools:
                await tools.wait_for_change(tools.revision)
        yield tools


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
        request = tool_request(tool, **arguments)
        if continuation is not None:
            request.continuation.CopyFrom(continuation)
        call = ToolCall(request, on_progress, on_task)
        return await tools.get_server("asking", tool).call(call, OPEN_GATE)


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
            await tools.get_server("asking", "").cancel_task(handles[0])
            canceled = await call(tools, "bake", cake="tart", continuation=continuation)
            continuation.task_handle = "nothing"
            unknown = await call(tools, "bake", cake="tart", continuation=continuation)
            await tools.get_server("asking", "").cancel_task("nothing")
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


@asynccontextmanager
async def reserving(**more: object) -> AsyncIterator[tuple[HttpTools, ToolAdapter]]:
    """Run a server of an older version, whose tools ask while their call is open."""
    async with (
        http_tools(is_older=True) as server,
        running(asking=server.config(**more)) as tools,
    ):
        await tools.wait_ready(timeout_s=TIMEOUT_S)
        yield server, tools


def continue_with(
    asked: tool_service_pb2.ToolResult, **answer: object
) -> tool_service_pb2.ToolContinuation:
    """Return the continuation of a call that asked one question, with the answer to it."""
    (key,) = json.loads(asked.question.requests)
    responses = json.dumps({key: answer} if answer else {})
    return tool_service_pb2.ToolContinuation(
        responses=responses, task_handle=asked.question.task_handle
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"action": "accept", "content": {"seats": 4, "view": "street"}}, "Rome: 4 street"),
        ({"action": "decline"}, "No table in Rome: decline"),
        ({"action": "cancel"}, "No table in Rome: cancel"),
    ],
)
async def test_an_answer_reaches_the_call_that_is_still_open(
    answer: dict[str, object], text: str
) -> None:
    handles: list[str] = []
    async with reserving() as (server, tools):
        asked = await call(tools, "reserve", city="Rome", rounds=1, handles=handles)
        (request,) = json.loads(asked.question.requests).values()
        unanswered = await call(tools, "reserve", continuation=continue_with(asked))
        done = await call(tools, "reserve", continuation=continue_with(asked, **answer))
    assert handles == [asked.question.task_handle]
    assert request["params"]["message"] == "Table 1 in Rome?"
    assert request["params"]["requestedSchema"]["properties"]["seats"]["default"] == 2
    assert unanswered.question == asked.question
    assert (done.is_error, done.content[0].text) == (False, text)
    assert server.calls == ["Rome"]


async def test_calls_that_are_open_at_once_ask_and_get_their_own_answers() -> None:
    cities = ["Rome", "Oslo", "Bern"]
    statuses: list[str] = []
    async with reserving() as (_, tools):

        async def reserve(city: str) -> str:
            result = await call(tools, "reserve", city=city, rounds=2)
            for number in (1, 2):
                (request,) = json.loads(result.question.requests).values()
                assert request["params"]["message"] == f"Table {number} in {city}?"
                content = {"seats": number, "view": city}
                result = await call(
                    tools,
                    "reserve",
                    continuation=continue_with(result, action="accept", content=content),
                    statuses=statuses,
                )
            return result.content[0].text

        async with asyncio.TaskGroup() as group:
            reserved = [group.create_task(reserve(city)) for city in cities]
    assert [each.result() for each in reserved] == [f"{c}: 1 {c}, 2 {c}" for c in cities]
    assert statuses == ["reserving"] * 6


async def test_an_open_call_that_is_canceled_cancels_its_tool() -> None:
    async with reserving() as (server, tools):
        asked = await call(tools, "reserve", city="Rome", rounds=1)
        await tools.get_server("asking", "").cancel_task(asked.question.task_handle)
        async with asyncio.timeout(TIMEOUT_S):
            await server.canceled.wait()
        late = await call(tools, "reserve", continuation=continue_with(asked))
    assert late.is_error
    assert "It is unknown whether it took effect" in late.content[0].text
    assert server.calls == ["Rome"]


async def test_a_server_is_not_idle_while_a_call_waits_for_its_answer() -> None:
    async with reserving(trunkline={"idle_s": 0.001}) as (server, tools):
        asked = await call(tools, "reserve", city="Rome", rounds=1)
        answer = {"action": "accept", "content": {}}
        done = await call(tools, "reserve", continuation=continue_with(asked, **answer))
        assert done.content[0].text == "Rome: 2 garden"
        await wait_for(lambda: server.requests[-1].method == "DELETE")


async def test_an_open_call_ends_with_its_process(tmp_path: Path) -> None:
    async with running(asking=PLAIN) as tools:
        asked = await call(tools, "reserve", city="Rome")
        answer = {"action": "accept", "content": {"name": "Ann"}}
        done = await call(tools, "reserve", continuation=continue_with(asked, **answer))
        asked = await call(tools, "reserve", city="Oslo")
        (server,) = tools.list_servers()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await wait_until(tools, lambda: not server.tools)
        assert (await call(tools, "fine")).content[0].text == "fine"
        late = await call(tools, "reserve", continuation=continue_with(asked, **answer))
    assert json.loads(done.content[0].text) == answer
    assert late.is_error
    assert "ended while its question was open" in late.content[0].text
