"""Our MCP servers as any client uses them: real processes on stdio."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from harness.polling import wait_for
from trunkline.errors import ToolServerUnavailableError
from trunkline_agents.math.engine import EngineLimits, MathEngine

# Only the tests of limits depend on the speed of the machine.
PATIENT = EngineLimits(compute_s=30, start_s=50)
HARD = {
    "expression": "exp(x)*sin(x)^9*cos(x)^8*x^7*ln(x)/(x^9+x^4+1)",
    "variable": "x",
    "lower": None,
    "upper": None,
}


@asynccontextmanager
async def client_of(server: str, *options: str) -> AsyncIterator[Client]:
    program = f"from trunkline_agents.{server}.server import main; main()"
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-c", program, *options], env=environment
    )
    async with Client(parameters) as client:
        yield client


@asynccontextmanager
async def engine_with(limits: EngineLimits) -> AsyncIterator[MathEngine]:
    engine = MathEngine(limits)
    try:
        yield engine
    finally:
        await engine.aclose()


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def children() -> set[str]:
    """Return the ids of this process's children."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def test_the_math_tools_are_listed_with_schemas_annotations_and_matches() -> None:
    async with client_of("math") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        *("calculate", "factor", "expand", "solve", "differentiate", "integrate"),
    }
    for tool in tools.values():
        assert tool.output_schema is not None
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.annotations.idempotent_hint
        assert tool.meta is not None
        assert all(each["pattern"] for each in tool.meta["trunkline/match"])


async def test_the_math_tools_answer_with_text_that_stands_alone_and_with_data() -> None:
    async with client_of("math", "--limit-s", "30") as client:
        three = await client.call_tool("calculate", {"expression": "1+2"})
        root = await client.call_tool("calculate", {"expression": "sqrt(2)", "digits": 10})
        roots = await client.call_tool("solve", {"equation": "x^2-5x+6=0"})
        slope = await client.call_tool("differentiate", {"expression": "x^3"})
        area = await client.call_tool(
            "integrate", {"expression": "x*sin(x)", "lower": 0, "upper": "pi"}
        )
    assert [text_of(result) for result in (three, root, roots, slope)] == [
        "3",
        "1.414213562",
        "x = 2 or x = 3",
        "3*x^2",
    ]
    assert three.structured_content == {"exact": "3", "approximation": None}
    assert roots.structured_content is not None
    assert [each["exact"] for each in roots.structured_content["solutions"]] == ["2", "3"]
    assert text_of(area) == "pi ≈ 3.14159265358979"


INVALID_MATH: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("calculate", {"expression": "__import__('os').system('id')"}, "Allowed are numbers"),
    ("calculate", {"expression": "1" * 1_000_000}, "too long"),
    ("calculate", {"expression": "(" * 1_500}, "too many parts"),
    ("calculate", {"expression": "1", "digits": 10**6}, "1 to 1,000 digits"),
    ("differentiate", {"expression": "x", "order": 0}, "derivative 1 to 10"),
    ("differentiate", {"expression": "x", "variable": "sin"}, "can't be a variable"),
    ("integrate", {"expression": "x", "lower": "0"}, "both limits"),
    ("solve", {"equation": "x^x^x^x = 5"}, "needs more memory"),
)


async def test_an_invalid_math_question_gets_an_error_with_advice() -> None:
    async with client_of("math", "--limit-s", "30") as client:
        for tool, arguments, hint in INVALID_MATH:
            result = await client.call_tool(tool, arguments)
            assert result.is_error, arguments
            assert hint in text_of(result)
            assert result.meta is not None
            assert result.meta["trunkline/mendable"] is True


async def test_after_a_computation_was_stopped_the_next_question_is_answered() -> None:
    async with client_of("math") as client:
        stopped = await client.call_tool("integrate", {"expression": HARD["expression"]})
        answered = await client.call_tool("calculate", {"expression": "1+2"})
    assert stopped.is_error
    assert "takes longer than the 1.5 s allowed" in text_of(stopped)
    assert text_of(answered) == "3"


async def test_one_worker_serves_many_questions_and_ends_at_close() -> None:
    async with engine_with(PATIENT) as engine:
        await engine.compute("calculate", {"expression": "1+2", "digits": None})
        first = engine.worker_pid
        async with asyncio.TaskGroup() as group:
            questions = [
                group.create_task(
                    engine.compute("calculate", {"expression": f"{n}+1", "digits": None})
                )
                for n in range(8)
            ]
        assert [each.result().text for each in questions] == [str(n + 1) for n in range(8)]
        assert engine.worker_pid == first
    assert first is not None
    assert is_gone(first)


async def test_a_cancelled_call_kills_its_computation() -> None:
    async with engine_with(PATIENT) as engine:
        await engine.compute("calculate", {"expression": "1", "digits": None})
        pid = engine.worker_pid
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await engine.compute("integrate", HARD)
        assert engine.worker_pid is None
        assert (await engine.compute("calculate", {"expression": "2", "digits": None})).text == "2"
        assert engine.worker_pid != pid
        assert pid is not None
        assert is_gone(pid)


async def test_a_call_cancelled_while_its_worker_starts_leaves_no_process() -> None:
    """`anyio.to_process` fails here: it forgets a worker that was never ready."""
    before = children()
    async with engine_with(PATIENT) as engine:
        for wait_s in (0.001, 0.01, 0.03, 0.1, 0.3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await engine.compute("integrate", HARD)
    assert children() <= before


async def test_a_worker_that_dies_is_replaced() -> None:
    async with engine_with(PATIENT) as engine:
        await engine.compute("calculate", {"expression": "1", "digits": None})
        assert engine.worker_pid is not None
        os.kill(engine.worker_pid, signal.SIGKILL)
        assert (await engine.compute("calculate", {"expression": "2", "digits": None})).text == "2"


async def test_an_idle_worker_releases_its_memory() -> None:
    async with engine_with(EngineLimits(compute_s=30, start_s=50, idle_s=0)) as engine:
        await engine.compute("calculate", {"expression": "1", "digits": None})
        pid = engine.worker_pid
        await wait_for(lambda: engine.worker_pid is None)
        assert (await engine.compute("calculate", {"expression": "2", "digits": None})).text == "2"
        assert pid is not None
        assert is_gone(pid)


async def test_questions_beyond_the_queue_limit_are_refused() -> None:
    limits = EngineLimits(compute_s=30, start_s=50, queue_length=1)
    question = {"expression": "1", "digits": None}
    async with engine_with(limits) as engine, asyncio.TaskGroup() as group:
        first = group.create_task(engine.compute("calculate", question))
        # One iteration of the event loop, in which the first question gets its slot.
        await asyncio.sleep(0)
        with pytest.raises(ToolServerUnavailableError, match="try again soon"):
            await engine.compute("calculate", question)
        assert (await first).text == "1"


async def test_the_currency_tools_convert_and_list() -> None:
    async with client_of("currency") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        converted = await client.call_tool(
            "convert",
            {
                "amount": 100,
                "from_currency": "USD",
                "to_currency": "euros",
                "date": "2020-03-02",
            },
        )
        listed = await client.call_tool("list_currencies", {})
    assert set(tools) == {"convert", "list_currencies"}
    assert all(tool.meta and "trunkline/match" in tool.meta for tool in tools.values())
    assert text_of(converted) == "100 USD = 89.91 EUR (ECB rate of 2020-03-02)"
    assert converted.structured_content is not None
    assert converted.structured_content["result"] == "89.91"
    assert "42 currencies" in text_of(listed)
