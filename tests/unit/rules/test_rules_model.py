from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)

from trunkline.agents.reasoning.turn_result import STATUS_KEY
from trunkline.rules.model import RulesModel

REPEAT: dict[str, Any] = {
    "type": "function",
    "function": {"name": "s__repeat", "description": "", "parameters": {}},
    "metadata": {
        "title": "Repeat",
        "trunkline/match": [
            {"pattern": "^repeat (.+)$", "arguments": {"text": "{1}"}, "answer": "It said {said}."}
        ],
    },
}


async def ask_model(
    *messages: BaseMessage, tools: Sequence[Any] = (REPEAT,), examples: Sequence[str] = ()
) -> tuple[list[str], AIMessageChunk]:
    """Call the model as the loop does; return the pieces of text and the whole reply."""
    model = RulesModel(examples=tuple(examples)).bind_tools(list(tools))
    chunks = [chunk async for chunk in model.astream(list(messages))]
    whole = chunks[0]
    assert isinstance(whole, AIMessageChunk)
    for chunk in chunks[1:]:
        assert isinstance(chunk, AIMessageChunk)
        whole += chunk
    return [chunk.text for chunk in chunks if chunk.text], whole


def result(text: str, **more: Any) -> ToolMessage:
    return ToolMessage(content=text, tool_call_id="rules-1", **more)


async def test_an_answer_template_is_filled_from_the_structured_result() -> None:
    matching = result("raw", artifact={"structured": {"said": "x"}})
    assert (await ask_model(HumanMessage("repeat x"), matching))[1].text == "It said x."
    not_matching = result("raw", artifact={"structured": {"other": "x"}})
    assert (await ask_model(HumanMessage("repeat x"), not_matching))[1].text == "raw"


async def test_joined_questions_become_one_call_each_and_one_answer() -> None:
    find_tool = {
        "type": "function",
        "function": {"name": "s__find", "description": "", "parameters": {}},
        "metadata": {"trunkline/match": [{"pattern": "^find (.+)$", "arguments": {"x": "{1}"}}]},
    }
    say = {"pattern": r"say (\w+)", "arguments": {"text": "{1}"}, "answer": "It said {said}."}
    tools = ({**REPEAT, "metadata": {"trunkline/match": [say]}}, find_tool)
    question = HumanMessage("say it and find more")
    _, reply = await ask_model(question, tools=tools)
    assert [(call["name"], call["args"]) for call in reply.tool_calls] == [
        ("s__repeat", {"text": "it"}),
        ("s__find", {"x": "more"}),
    ]
    call_message = AIMessage("", tool_calls=reply.tool_calls)
    ids = [call["id"] for call in reply.tool_calls]
    assert len(set(ids)) == 2
    results = [
        ToolMessage("raw", tool_call_id=ids[0], artifact={"structured": {"said": "it"}}),
        ToolMessage("found", tool_call_id=ids[1], artifact={"structured": {"said": "no"}}),
    ]
    _, answer = await ask_model(question, call_message, *results, tools=tools)
    assert answer.text == "It said it.\nfound"


async def test_a_long_answer_streams_whole_in_a_bounded_number_of_pieces() -> None:
    text = "".join(f"word{n} " for n in range(20_000)) + "x" * 10_000 + " " * 1000
    pieces, reply = await ask_model(HumanMessage("repeat x"), result(text))
    assert reply.text == text
    assert len(pieces) <= 501


async def test_a_fixable_failure_requires_input() -> None:
    failure = result("try less", status="error", artifact={"is_mendable": True})
    _, reply = await ask_model(HumanMessage("repeat x"), failure)
    assert (reply.text, reply.response_metadata[STATUS_KEY]) == ("try less", "input_required")


async def test_any_other_failure_is_an_error() -> None:
    failure = result("broken", status="error", artifact={"is_mendable": False})
    _, reply = await ask_model(HumanMessage("repeat x"), failure)
    assert (reply.text, reply.response_metadata[STATUS_KEY]) == ("broken", "error")


async def test_an_unknown_question_is_told_what_works_and_how_to_set_a_model() -> None:
    _, reply = await ask_model(HumanMessage("who wrote Hamlet"), examples=["repeat hello"])
    assert reply.text.startswith("I am the built-in rules model, and can't read this.")
    assert '"repeat hello"; "Repeat"' in reply.text
    assert 'set a model: `model = "provider:name"`' in reply.text
    assert "\n" not in reply.text
    assert reply.response_metadata[STATUS_KEY] == "input_required"
    _, by_nothing = await ask_model(HumanMessage("who wrote Hamlet"), tools=[])
    assert "I have no tools" in by_nothing.text


async def test_a_question_that_is_too_long_is_refused() -> None:
    _, reply = await ask_model(HumanMessage("repeat " + "9" * 1_000_000))
    assert reply.text.startswith("The question has 1000007 characters, and at most 2000 are read.")
    assert reply.response_metadata[STATUS_KEY] == "input_required"


async def test_only_the_latest_question_counts() -> None:
    _, reply = await ask_model(
        HumanMessage("repeat old"), result("old"), AIMessage("old"), HumanMessage("repeat new")
    )
    assert reply.tool_calls[0]["args"] == {"text": "new"}


def test_without_streaming_the_reply_is_the_same() -> None:
    model = RulesModel().bind_tools([REPEAT])
    assert model.invoke([HumanMessage("repeat x")]).tool_calls[0]["args"] == {"text": "x"}
    assert model.invoke([HumanMessage("repeat x"), result("x")]).text == "x"


CONVERT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "s__repeat_number",
        "description": "Repeat a number.",
        "parameters": {"properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
    "metadata": {"title": "Repeat a number"},
}


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("repeat number number: 5", 5),
        ("Repeat a number: number = 6", 6),
        ("s/repeat_number 7", 7),
        ("repeat_number: 8.", 8),
    ],
)
async def test_a_tool_is_called_by_its_name_and_its_arguments_by_theirs(
    question: str, number: int
) -> None:
    _, reply = await ask_model(HumanMessage(question), tools=[CONVERT])
    (call,) = reply.tool_calls
    assert (call["name"], call["args"]) == ("s__repeat_number", {"number": number})


async def test_an_empty_list_of_patterns_opts_out() -> None:
    silent = {**CONVERT, "metadata": {"title": "Repeat a number", "trunkline/match": []}}
    _, reply = await ask_model(HumanMessage("repeat number 5"), tools=[silent])
    assert not reply.tool_calls


@pytest.mark.parametrize("question", ["repeat a number", "repeat a number number: many"])
async def test_a_missing_or_wrong_argument_is_named(question: str) -> None:
    _, reply = await ask_model(HumanMessage(question), tools=[CONVERT])
    needed = 'Repeat a number needs number (a whole number): write "Repeat a number number: …".'
    assert reply.text == needed
    assert reply.response_metadata[STATUS_KEY] == "input_required"
