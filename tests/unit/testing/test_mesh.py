"""The mesh for tests of agents, as such a test uses it."""

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
from trunkline.errors import AgentNotFoundError, ConfigurationError
from trunkline.testing import Answer, Mesh, async_test, mesh


class Place(BaseModel):
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
            data.data.struct_value.update({"hour": 7})
            await task.artifact("time").append(data, last=True)
            return None
    return f"Hello, {task.text}!"


@agent(name="count", description="Counts.")
async def count(task: TaskContext) -> AsyncIterator[str]:
    for number in range(3):
        yield f"{number} "


@agent(name="placed", description="Is somewhere.", settings=Place)
async def placed(task: TaskContext[Place]) -> str:
    return f"in {task.settings.city}"


async def test_an_agent_is_asked_and_its_answer_looked_at() -> None:
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


async def test_a_task_that_asks_is_gone_on_with_and_a_conversation_too() -> None:
    async with mesh(count, hello) as m:
        asked = await m.ask("who", agent="hello")
        assert (asked.state, asked.status_text) == (TaskState.INPUT_REQUIRED, "who are you?")
        answered = await m.ask("Ada", task=asked)
        other = await m.ask("Bob", agent="hello", context=asked)
    assert (answered.task_id, answered.text) == (asked.task_id, "Hello, Ada!")
    assert other.task_id != asked.task_id
    assert other.context_id == asked.context_id


async def test_a_turn_is_followed_from_its_first_event_on() -> None:
    async with mesh(count, hello) as m:
        async with m.stream("go") as stream:
            kinds = [event.WhichOneof("event") async for event in stream]
        async with m.stream("go") as stream:
            pieces = [piece async for piece in stream.text_chunks()]
        asked = await m.ask("who", agent="hello")
        async with m.stream("Ada", task=asked) as stream:
            again = [event.WhichOneof("event") async for event in stream]
        async with m.stream("direct", agent="hello") as stream:
            assert stream.task.text == "directly"
            assert [event async for event in stream] == []
    assert kinds[:2] == ["created", "status"]
    assert kinds[-1] == "status"
    assert pieces == ["0 ", "1 ", "2 "]
    assert again[0] == "turn_started"
    assert again[-1] == "status"


async def test_a_task_is_canceled_and_one_that_is_left_is_stopped() -> None:
    async with mesh(hello) as m:
        begun = await m.submit("wait")
        working = await m.wait_until(begun, lambda answer: answer.status_text == "waiting")
        assert working.state is TaskState.WORKING
        assert (await m.cancel(begun)).state is TaskState.CANCELED
        assert (await m.get(begun)).state is TaskState.CANCELED
        await m.submit("wait")


async def test_waits_have_an_end() -> None:
    async with mesh(hello) as m:
        begun = await m.submit("Ada")
        # One that was opened with less patience would have to be quick with all else, too.
        hasty = Mesh(m.directory, default_agent="hello", timeout_s=0.1)
        with pytest.raises(TimeoutError):
            await hasty.ask("wait")
        with pytest.raises(TimeoutError):
            await hasty.wait_until(begun, lambda answer: answer.state is TaskState.FAILED)
    assert isinstance(begun, Answer)


async def test_an_agent_of_another_place_that_is_away_is_named() -> None:
    url = f"http://{free_address()}"
    with pytest.raises(TimeoutError, match=r"^not on the mesh after 0\.2 s: far; "):
        async with mesh(from_a2a(url, name="far"), timeout_s=0.2):
            pass


async def test_agents_settings_are_given_as_their_table_or_as_an_object() -> None:
    async with mesh(placed, options={"placed": {"city": "Oslo"}}) as m:
        assert (await m.ask("where")).text == "in Oslo"
    async with mesh(placed.with_settings(Place(city="Bergen"))) as m:
        assert (await m.ask("where")).text == "in Bergen"
    with pytest.raises(ConfigurationError, match=r"\[agent.placed.options\] town"):
        async with mesh(placed, options={"placed": {"town": "Oslo"}}):
            pass


async def test_tasks_are_still_there_for_the_next_mesh_of_a_folder(tmp_path: Path) -> None:
    async with mesh(hello, data_dir=tmp_path) as m:
        asked = await m.ask("who")
    async with mesh(hello, data_dir=tmp_path) as m:
        assert (await m.ask("Ada", task=asked)).text == "Hello, Ada!"


async def test_files_are_read_wherever_they_lie() -> None:
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


async def test_agents_are_asked_by_a_supervisor_that_ships() -> None:
    async with mesh(hello, bundled=["supervisor"]) as m:
        answer = await m.ask("hello Ada", agent="supervisor")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "Hello, hello Ada!")
    assert answer.metadata["trunkline/route"]["agent"] == "hello"


async def test_what_is_refused_is_an_error_of_ours() -> None:
    with pytest.raises(ConfigurationError):
        async with mesh():
            pass
    async with mesh(hello) as m:
        with pytest.raises(AgentNotFoundError):
            await m.ask("Ada", agent="nobody")


async def test_what_a_test_raises_comes_out_as_it_is() -> None:
    async def fail() -> None:
        async with mesh(hello) as m:
            await m.submit("wait")
            raise AssertionError("of the test")

    with pytest.raises(AssertionError, match="of the test"):
        await fail()


@async_test
async def test_no_plugin_is_needed_and_fixtures_are_given(tmp_path: Path) -> None:
    async with mesh(hello, data_dir=tmp_path) as m:
        assert (await m.ask("Ada")).text == "Hello, Ada!"


def test_it_loads_neither_langgraph_nor_mcp_for_those_who_use_neither() -> None:
    script = (
        "import sys; from trunkline.testing import mesh, async_test, Answer; "
        "print([m for m in ('langgraph', 'langchain_core', 'mcp', 'sympy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert loaded.stdout.strip() == b"[]"


def test_the_example_of_the_door_runs_and_all_behind_it_is_named() -> None:
    assert doctest.testmod(testing) == (0, 7)
    said = testing.__doc__ or ""
    assert [name for name in testing.__all__ if name not in said] == []
    assert all(getattr(testing, name).__doc__ for name in testing.__all__)
