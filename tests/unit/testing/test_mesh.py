"""`trunkline.testing.mesh` as tests of agents use it."""

import asyncio
import doctest
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from harness.mesh.processes import free_address
from trunkline import Message, Part, TaskContext, TaskState, agent, from_a2a, testing
from trunkline.core.json_values import update_struct
from trunkline.errors import AgentNotFoundError, ConfigurationError
from trunkline.testing import Answer, Mesh, async_test, mesh


class Location(BaseModel):
    city: str = "nowhere"


@agent(name="hello", description="Greets.", direct_replies=True)
async def hello(task: TaskContext) -> str | Message | None:
    match task.text:
        case "direct":
            return Message(parts=[Part(text="directly")])
        case "who":
            await task.require_input("who are you?")
            return None
        case "wait":
            await task.working("waiting")
            await asyncio.Event().wait()
        case "tool":
            async with task.tool("clock", {"zone": "UTC"}):
                pass
            data = Part(media_type="application/json")
            update_struct(data.data.struct_value, {"hour": 7})
            await task.artifact("time").append(data, last=True)
            return None
    return f"Hello, {task.text}!"


@agent(name="count", description="Counts.")
async def count(task: TaskContext) -> AsyncIterator[str]:
    for number in range(3):
        yield f"{number} "


@agent(name="placed", description="Is somewhere.", settings=Location)
async def located(task: TaskContext[Location]) -> str:
    return f"in {task.settings.city}"


async def test_an_answer_has_its_text_state_tools_and_data() -> None:
    async with mesh(hello) as m:
        answer = await m.ask("Ada")
        direct = await m.ask("direct")
        tool = await m.ask(Part(text="tool"))
    assert (answer.state, answer.text, answer.status_text) == (
        TaskState.COMPLETED,
        "Hello, Ada!",
        "",
    )
    assert answer.snapshot is not None
    assert (direct.snapshot, direct.text, direct.task_id) == (None, "directly", "")
    assert (tool.tools, tool.data, tool.artifacts[0].name) == (["clock"], [{"hour": 7}], "time")


async def test_a_waiting_task_and_a_conversation_are_continued() -> None:
    async with mesh(count, hello) as m:
        waiting = await m.ask("who", agent="hello")
        assert (waiting.state, waiting.status_text) == (TaskState.INPUT_REQUIRED, "who are you?")
        final = await m.ask("Ada", task=waiting)
        other = await m.ask("Bob", agent="hello", context=waiting)
    assert (final.task_id, final.text) == (waiting.task_id, "Hello, Ada!")
    assert other.task_id != waiting.task_id
    assert other.context_id == waiting.context_id


async def test_a_stream_begins_with_the_first_event_of_its_turn() -> None:
    async with mesh(count, hello) as m:
        async with m.stream("go") as stream:
            kinds = [event.WhichOneof("event") async for event in stream]
        async with m.stream("go") as stream:
            pieces = [piece async for piece in stream.text_chunks()]
        waiting = await m.ask("who", agent="hello")
        async with m.stream("Ada", task=waiting) as stream:
            resumed_kinds = [event.WhichOneof("event") async for event in stream]
        async with m.stream("direct", agent="hello") as stream:
            assert stream.task.text == "directly"
            assert [event async for event in stream] == []
    assert kinds[:2] == ["created", "status"]
    assert kinds[-1] == "status"
    assert pieces == ["0 ", "1 ", "2 "]
    assert resumed_kinds[0] == "turn_started"
    assert resumed_kinds[-1] == "status"


async def test_a_task_is_canceled_and_a_running_one_is_stopped_at_the_end() -> None:
    async with mesh(hello) as m:
        submitted = await m.submit("wait")
        working = await m.wait_until(submitted, lambda answer: answer.status_text == "waiting")
        assert working.state is TaskState.WORKING
        assert (await m.cancel(submitted)).state is TaskState.CANCELED
        assert (await m.get(submitted)).state is TaskState.CANCELED
        await m.submit("wait")


async def test_waits_time_out() -> None:
    async with mesh(hello) as m:
        submitted = await m.submit("Ada")
        # A mesh opened with this short timeout might fail elsewhere.
        impatient = Mesh(m.directory, default_agent="hello", timeout_s=0.1)
        with pytest.raises(TimeoutError):
            await impatient.ask("wait")
        with pytest.raises(TimeoutError):
            await impatient.wait_until(submitted, lambda answer: answer.state is TaskState.FAILED)
    assert isinstance(submitted, Answer)


async def test_an_unreachable_remote_agent_is_named() -> None:
    url = f"http://{free_address()}"
    with pytest.raises(TimeoutError, match=r"^not on the mesh after 0\.2 s: far; "):
        async with mesh(from_a2a(url, name="far"), timeout_s=0.2):
            pass


async def test_settings_of_an_agent_are_a_table_or_an_object() -> None:
    async with mesh(located, options={"placed": {"city": "Oslo"}}) as m:
        assert (await m.ask("where")).text == "in Oslo"
    async with mesh(located.with_settings(Location(city="Bergen"))) as m:
        assert (await m.ask("where")).text == "in Bergen"
    with pytest.raises(ConfigurationError, match=r"\[agent.placed.options\] town"):
        async with mesh(located, options={"placed": {"town": "Oslo"}}):
            pass


async def test_tasks_survive_in_the_data_directory(tmp_path: Path) -> None:
    async with mesh(hello, data_dir=tmp_path) as m:
        waiting = await m.ask("who")
    async with mesh(hello, data_dir=tmp_path) as m:
        assert (await m.ask("Ada", task=waiting)).text == "Hello, Ada!"


async def test_inline_and_stored_files_are_read() -> None:
    content = bytes(range(256)) * 400

    @agent(name="copy", description="Copies a file.", input_modes=["*/*"])
    async def copy(task: TaskContext) -> None:
        raw = await task.read(task.message.parts[0])
        await task.artifact("copy").append(Part(raw=raw, filename="a.bin"), last=True)

    async with mesh(copy) as m:
        big = await m.ask(Part(raw=content, filename="a.bin"))
        small = await m.ask(Part(raw=b"few", filename="a.bin"))
        assert big.parts[0].url.startswith("trunkline:")
        assert await m.read(big.parts[0]) == content
        assert await m.read(small.parts[0]) == b"few"


async def test_a_data_part_is_read_as_json() -> None:
    part = Part()
    update_struct(part.data.struct_value, {"é": [5, 0.5]})
    async with mesh(hello) as m:
        assert await m.read(part) == '{"é": [5, 0.5]}'.encode()


async def test_the_bundled_supervisor_calls_the_agents() -> None:
    async with mesh(hello, bundled=["supervisor"]) as m:
        answer = await m.ask("hello Ada", agent="supervisor")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "Hello, hello Ada!")
    assert answer.metadata["trunkline/route"]["agent"] == "hello"


async def test_a_refused_request_raises_an_error_of_the_project() -> None:
    with pytest.raises(ConfigurationError):
        async with mesh():
            pass
    async with mesh(hello) as m:
        with pytest.raises(AgentNotFoundError):
            await m.ask("Ada", agent="unknown")


async def test_an_exception_of_the_test_is_raised_unchanged() -> None:
    async def fail() -> None:
        async with mesh(hello) as m:
            await m.submit("wait")
            raise AssertionError("of the test")

    with pytest.raises(AssertionError, match="of the test"):
        await fail()


@async_test
async def test_async_tests_need_no_plugin_and_get_fixtures(tmp_path: Path) -> None:
    async with mesh(hello, data_dir=tmp_path) as m:
        assert (await m.ask("Ada")).text == "Hello, Ada!"


def test_importing_the_package_loads_neither_langgraph_nor_mcp() -> None:
    script = (
        "import sys; from trunkline.testing import mesh, async_test, Answer; "
        "print([m for m in ('langgraph', 'langchain_core', 'mcp', 'sympy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert loaded.stdout.strip() == b"[]"


def test_the_package_example_runs_and_every_export_is_documented() -> None:
    assert doctest.testmod(testing) == (0, 7)
    documentation = testing.__doc__ or ""
    assert [name for name in testing.__all__ if name not in documentation] == []
    assert all(getattr(testing, name).__doc__ for name in testing.__all__)
