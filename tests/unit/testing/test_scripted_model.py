"""The scripted model of `trunkline.testing`, alone and for a reasoning agent."""

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel

from trunkline import TaskContext, TaskState, agent, from_a2a
from trunkline.core.settings import AgentSettings
from trunkline.errors import ConfigurationError
from trunkline.testing import Call, ScriptedModel, mesh


class Order(BaseModel):
    item: str
    count: int


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_replies_are_returned_in_order_and_texts_stream_by_word() -> None:
    model = ScriptedModel("one two", Call("add", {"a": 1}), AIMessage("text", id="x"))
    chunks = [chunk async for chunk in model.astream("a")]
    assert [chunk.text for chunk in chunks] == ["one ", "two", ""]
    call_message = await model.bind_tools([add]).ainvoke("b")
    assert isinstance(call_message, AIMessage)
    assert [(call["name"], call["args"]) for call in call_message.tool_calls] == [("add", {"a": 1})]
    assert not model.is_exhausted
    assert (await model.ainvoke("c")).id == "x"
    assert model.is_exhausted
    assert model.tools == ["add"]
    assert [[message.text for message in messages] for messages in model.requests] == [
        ["a"],
        ["b"],
        ["c"],
    ]


async def test_a_reply_may_be_a_function_or_an_error() -> None:
    def count(messages: Sequence[BaseMessage]) -> list[Call]:
        return [Call("add", {"a": number}) for number in range(len(messages))]

    model = ScriptedModel(count, TimeoutError("too slow"))
    reply = await model.ainvoke([HumanMessage("a"), HumanMessage("b")])
    assert len(reply.tool_calls) == 2
    with pytest.raises(TimeoutError, match="too slow"):
        await model.ainvoke("a")
    with pytest.raises(AssertionError, match="the script has 2 replies"):
        await model.ainvoke("a")


async def test_a_bundled_agent_reasons_with_a_scripted_model() -> None:
    model = ScriptedModel(Call("math__calculate", {"expression": "6*7"}), "That makes 42.")
    async with mesh(bundled=["math"], models={"math": model}) as m:
        answer = await m.ask("six times seven, please")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "That makes 42.")
    assert answer.tools == ["math/calculate"]
    assert "42" in str(model.requests[1][-1].content)


async def test_a_scripted_model_gets_the_prompt_and_the_allowed_tools() -> None:
    model = ScriptedModel("Nothing was found.")
    rights = {"agent_options": {"research": AgentSettings(deny_tools=("search_arxiv",))}}
    async with mesh(bundled=["research"], models={"research": model}, settings=rights) as m:
        await m.ask("what do the documents say")
    assert "Search before you answer" in model.requests[0][0].text
    assert "research__search_documents" in model.tools
    assert "research__search_arxiv" not in model.tools


async def test_a_function_asks_its_scripted_model_for_an_object() -> None:
    @agent(name="buyer", description="Buys.")
    async def buyer(task: TaskContext) -> str:
        order = await task.ask_model("Which fruit?", Order)
        return repr(order)

    model = ScriptedModel("no object", Order(item="pear", count=3))
    async with mesh(buyer, models={"buyer": model}) as m:
        answer = await m.ask("three pears")
    assert (answer.state, answer.text) == (TaskState.COMPLETED, "Order(item='pear', count=3)")
    assert model.is_exhausted


@pytest.mark.parametrize(
    ("name", "problem"),
    [("echo", "it reasons with no model"), ("ecko", "the mesh has no such agent")],
)
async def test_a_model_that_no_agent_uses_is_refused(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        async with mesh(
            from_a2a("http://127.0.0.1:9", name="echo"), models={name: ScriptedModel()}
        ):
            pass
