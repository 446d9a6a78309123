"""Tools that the code of agents calls itself, from a real MCP server."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from trunkline import InvalidArgumentError, TaskContext, TaskState, agent, from_langgraph, get_task
from trunkline.errors import UnsupportedOperationError
from trunkline.testing import Mesh, mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[3]


@agent(name="teller")
async def teller(task: TaskContext) -> str:
    """Calls tools that need no approval."""
    known = await task.call_tool("stock/in_stock", {"item": "pears"})
    price = await task.call_tool("stock/price", {"item": "pears"})
    failed = await task.call_tool("stock/burn", {"item": "water"})
    assert not known.is_error
    assert price.data == json.loads(price.text) == {"cents": 50}
    assert failed.data is None
    assert failed.is_error
    return f"{known.data} {[part.text for part in known.parts]} {failed.text}"


@agent(name="guesser")
async def guesser(task: TaskContext) -> str:
    """Calls tools that do not exist."""
    problems = []
    for name in ("stock/inn_stock", "stok/in_stock", "in_stock"):
        with pytest.raises(InvalidArgumentError) as caught:
            await task.call_tool(name)
        problems.append(str(caught.value))
    no_object: Any = ["pears"]
    with pytest.raises(InvalidArgumentError, match=r"arguments: .* list, not a JSON object"):
        await task.call_tool("stock/in_stock", no_object)
    return "\n".join(problems)


@agent(name="buyer")
async def buyer(task: TaskContext) -> str:
    """Reserves twice, one after the other."""
    texts = []
    for item in ("pears", "plums"):
        reserved = await task.call_tool("stock/reserve", {"item": item, "n": 2})
        texts.append(f"{reserved.text}{' (error)' if reserved.is_error else ''}")
    return f"{task.text}: {' '.join(texts)}"


@agent(name="narrator")
async def narrator(task: TaskContext) -> AsyncGenerator[str, None]:
    """Yields before and after a call that needs an approval."""
    yield "We reserve. "
    reserved = await task.call_tool("stock/reserve", {"item": "dates", "n": 3})
    yield reserved.text


@agent(name="twin")
async def twin(task: TaskContext) -> str:
    """Reserves the same twice, at once."""
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(task.call_tool("stock/reserve", {"item": "figs", "n": 1}))
            for _ in range(2)
        ]
    return " ".join(call.result().text for call in calls)


@agent(name="delegate")
async def delegate(task: TaskContext) -> str:
    """Asks the buyer."""
    return (await task.ask("buyer", task.text)).text


def build_graph_agent() -> Any:
    async def look(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        task = get_task(config)
        known = await task.call_tool("stock/in_stock", {"item": "nuts"})
        assert known.data is not None
        return {"messages": [AIMessage(f"{known.data['count']} nuts")]}

    async def reserve(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        task = get_task(config)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(task.call_tool("stock/reserve", {"item": "nuts", "n": 4}))
            second = group.create_task(task.ask("delegate", "nuts"))
        seen = state["messages"][-1].text
        return {"messages": [AIMessage(f"{seen}; {first.result().text} {second.result().text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("look", look)
    graph.add_node("reserve", reserve)
    graph.add_edge(START, "look")
    graph.add_edge("look", "reserve")
    return from_langgraph(graph.compile(), name="grapher", description="Reserves in a node.")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Mesh, Path]]:
    """A mesh with an MCP server, and the file of its reservations."""
    folder = tmp_path_factory.mktemp("stock")
    server = {
        "command": sys.executable,
        "args": ["-m", "harness.mcp.stock_server"],
        "env": {"STOCK_FOLDER": str(folder), "PYTHONPATH": str(TESTS)},
    }
    mcp_file = folder / "mcp.json"
    # It never answers. Nothing here uses it, so nothing waits for it.
    silent = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
        "trunkline": {"connect_timeout_s": 600},
    }
    servers = {"stock": server, "silent": silent}
    mcp_file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    agents = (teller, guesser, buyer, narrator, twin, delegate, build_graph_agent())
    async with mesh(*agents, settings={"mcp_file": mcp_file}) as opened:
        yield opened, folder / "reserved"


def read(reserved: Path) -> list[str]:
    """Return the reservations."""
    return reserved.read_text(encoding="utf-8").splitlines() if reserved.exists() else []


@pytest.fixture
def reserved(shop: tuple[Mesh, Path]) -> Path:
    shop[1].unlink(missing_ok=True)
    return shop[1]


async def test_a_result_has_data_parts_and_an_error_flag(shop: tuple[Mesh, Path]) -> None:
    end = await shop[0].ask("go", agent="teller")
    assert end.state is TaskState.COMPLETED, end.text
    assert end.text.startswith("{'count': 5} [")
    assert "burn" in end.text
    assert end.tools == ["stock/in_stock", "stock/price", "stock/burn"]


async def test_an_unknown_tool_is_named_with_those_that_exist(shop: tuple[Mesh, Path]) -> None:
    # A wait for the silent server would take a minute.
    async with asyncio.timeout(50):
        tool, server, form = (await shop[0].ask("go", agent="guesser")).text.splitlines()
    known = "there are: stock/burn, stock/in_stock, stock/price, stock/reserve"
    assert tool == f"tool: there is no 'stock/inn_stock' for agent 'guesser'; {known}"
    assert server == f"tool: there is no 'stok/in_stock' for agent 'guesser'; {known}"
    assert form == "tool: 'in_stock' is not of the form SERVER/TOOL"


@pytest.mark.parametrize("name", ["buyer", "delegate"])
async def test_each_call_waits_for_its_approval_and_is_made_once(
    shop: tuple[Mesh, Path], reserved: Path, name: str
) -> None:
    m = shop[0]
    first = await m.ask("buy", agent=name)
    assert first.state is TaskState.INPUT_REQUIRED
    assert 'stock/reserve with {"item": "pears", "n": 2}' in first.status_text
    assert read(reserved) == []
    second = await m.ask("approve", task=first)
    assert '"plums"' in second.status_text
    assert read(reserved) == ["2 pears"]
    end = await m.ask('edit {"item": "plums", "n": 5}', task=first)
    assert (end.state, end.text) == (
        TaskState.COMPLETED,
        "buy: Reserved 2 pears. Reserved 5 plums.",
    )
    assert read(reserved) == ["2 pears", "5 plums"]


async def test_a_rejected_call_is_an_answer(shop: tuple[Mesh, Path], reserved: Path) -> None:
    m = shop[0]
    first = await m.ask("buy", agent="buyer")
    await m.ask("reject too many", task=first)
    end = await m.ask("approve", task=first)
    assert end.text == "buy: stock/reserve was rejected: too many (error) Reserved 2 plums."
    assert read(reserved) == ["2 plums"]


async def test_text_before_a_call_is_in_the_answer_once(
    shop: tuple[Mesh, Path], reserved: Path
) -> None:
    m = shop[0]
    question = await m.ask("go", agent="narrator")
    end = await m.ask("approve", task=question)
    assert [part.text for part in end.parts] == ["We reserve. Reserved 3 dates."]
    assert len(end.artifacts) == 1
    assert read(reserved) == ["3 dates"]


async def test_equal_calls_at_once_need_an_approval_each(
    shop: tuple[Mesh, Path], reserved: Path
) -> None:
    m = shop[0]
    question = await m.ask("buy", agent="twin")
    assert len(question.approvals) == 2
    end = await m.ask("approve all", task=question)
    assert end.text == "Reserved 1 figs. Reserved 1 figs."
    assert read(reserved) == ["1 figs", "1 figs"]


async def test_a_node_waits_for_approvals_of_its_own_and_of_agents(
    shop: tuple[Mesh, Path], reserved: Path
) -> None:
    m = shop[0]
    question = await m.ask("go", agent="grapher")
    assert question.state is TaskState.INPUT_REQUIRED
    assert len(question.approvals) == 2
    question = await m.ask("approve all", task=question)
    assert len(question.approvals) == 1, question.status_text
    end = await m.ask("approve", task=question)
    assert (end.state, end.text) == (
        TaskState.COMPLETED,
        "4 nuts; Reserved 4 nuts. nuts: Reserved 2 pears. Reserved 2 plums.",
    )
    assert sorted(read(reserved)) == [
        "2 pears",
        "2 plums",
        "4 nuts",
    ]
    # The first node ran once.
    assert end.tools.count("stock/in_stock") == 1


async def test_a_node_outside_of_an_agent_is_told_how_to_get_a_task() -> None:
    with pytest.raises(UnsupportedOperationError, match="from_langgraph"):
        get_task({"configurable": {}})
