import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.reasoning.models.tool_matching import (
    QUESTION_LIMIT_CHARS,
    fill_answer,
    match_tool,
    match_tools,
)

CLOCK: dict[str, Any] = {
    "pattern": r"what time is it in (?P<city>[\w ]+?)\??$",
    "arguments": {"timezone": {"from": "{city}", "map": {"tokyo": "Asia/Tokyo"}}},
    "answer": "It is {datetime} in {timezone}.",
}


def match_arguments(question: str, **rule: Any) -> dict[str, Any]:
    match = match_tool(question, {"t": [rule]})
    assert match is not None
    return match.arguments


def test_a_question_is_matched_to_a_tool_and_arguments() -> None:
    match = match_tool("  What time is it in Tokyo? ", {"other": [], "clock": [CLOCK]})
    assert match is not None
    assert (match.tool, match.arguments) == ("clock", {"timezone": "Asia/Tokyo"})
    assert match.answer == "It is {datetime} in {timezone}."


def test_a_value_missing_from_a_map_is_passed_unchanged() -> None:
    match = match_tool("what time is it in Atlantis", {"clock": [CLOCK]})
    assert match is not None
    assert match.arguments == {"timezone": "Atlantis"}


def test_an_undeclared_question_matches_nothing() -> None:
    assert match_tool("who wrote Hamlet", {"clock": [CLOCK], "silent": []}) is None
    assert match_tool("", {"clock": [CLOCK]}) is None


def test_the_longest_matched_text_wins_between_tools() -> None:
    tools = {
        "short": [{"pattern": "convert"}],
        "long": [{"pattern": r"convert \d+ usd"}],
        "middle": [{"pattern": r"convert \d+"}],
    }
    match = match_tool("convert 5 USD", tools)
    assert match is not None
    assert match.tool == "long"


def test_the_first_pattern_wins_within_a_tool() -> None:
    rules = [{"pattern": "a", "arguments": {"n": 1}}, {"pattern": "ab", "arguments": {"n": 2}}]
    match = match_tool("ab", {"t": rules})
    assert match is not None
    assert match.arguments == {"n": 1}


def test_groups_fill_arguments_by_number_and_by_name() -> None:
    arguments = match_arguments(
        "ab cd", pattern=r"(\w+) (?P<b>\w+)", arguments={"x": "{1}-{b}", "y": "{2}"}
    )
    assert arguments == {"x": "ab-cd", "y": "cd"}


def test_a_value_without_a_template_is_passed_literally() -> None:
    arguments = match_arguments(
        "a", pattern="a", arguments={"x": "word", "n": 2, "b": True, "l": [1]}
    )
    assert arguments == {"x": "word", "n": 2, "b": True, "l": [1]}


def test_a_list_is_filled_element_by_element_or_omitted() -> None:
    rule = {
        "pattern": r"(\d) (\d)(?P<c>c)?",
        "arguments": {"l": ["{1}", {"from": "{2}", "type": "integer"}, ["{2}"]], "m": ["{c}"]},
    }
    assert match_arguments("1 2", **rule) == {"l": ["1", 2, ["2"]]}
    assert match_arguments("1 2c", **rule)["m"] == ["c"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("find a and find b", ["a", "b"]),
        ("find a, and then get time", ["a", "time"]),
        ("find a; then find b. And find c?", ["a", "b", "c"]),
        ("find salt and pepper", ["salt and pepper"]),
        # A part without a full match is not a separate question.
        ("find a and find the b", ["a and find the b"]),
        ("get a and find b", []),
        (" and ".join(["find a"] * 8), ["a"] * 8),
        (" and ".join(["find a"] * 9), [" and ".join(["a", *["find a"] * 8])]),
    ],
)
def test_joined_questions_are_matched_separately(question: str, expected: list[str]) -> None:
    declared = {
        "find": [
            {"pattern": "^find (?!the )(?P<x>[^?]+)[?]?$", "arguments": {"x": "{x}"}},
        ],
        "clock": [{"pattern": "^get (time)$", "arguments": {"x": "{1}"}}],
    }
    assert [call.arguments["x"] for call in match_tools(question, declared)] == expected


def test_an_argument_of_an_unmatched_group_is_omitted_or_has_its_default() -> None:
    rule = {
        "pattern": "a(?P<b>b)?",
        "arguments": {
            "left": "{b}",
            "unknown": "{c}",
            "filled": {"from": "{b}", "default": 7},
            "fixed": {"default": 8},
        },
    }
    assert match_arguments("a", **rule) == {"filled": 7, "fixed": 8}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "12", "12"),
        ("integer", "1,200", 1200),
        ("number", "12", 12),
        ("number", "1.5", 1.5),
        ("number", "1e400", None),
        ("integer", "1.5", None),
        ("boolean", "Yes", True),
        ("boolean", "no", False),
    ],
)
def test_texts_are_converted_to_the_declared_type_or_omitted(
    kind: str, text: str, value: object
) -> None:
    arguments = match_arguments(
        text, pattern="(.+)", arguments={"x": {"from": "{1}", "type": kind}}
    )
    assert arguments == ({} if value is None else {"x": value})
    assert type(arguments.get("x")) is type(value)


@pytest.mark.parametrize(
    "rule",
    [
        {"pattern": "("},
        {"pattern": "(" * 1900 + ")" * 1900},
        {"pattern": "a{99999999999999}"},
        {"pattern": 7},
        {"pattern": "a" * 5000},
        {},
        "no object",
        None,
        {"pattern": "a", "arguments": ["x"]},
        {"pattern": "a", "arguments": {"x": {"odd": 1}}},
        {"pattern": "(a)", "arguments": {"x": {"from": "{1}", "map": 3}}},
    ],
)
def test_an_invalid_declaration_is_skipped_and_logged_once(
    rule: object, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    caplog.set_level(logging.WARNING)
    for question in ("a", "a again"):
        # The log entry is written once for each tool, so each case has its own tool.
        declared = {request.node.name: [rule, {"pattern": "a", "arguments": {"n": 1}}]}
        match = match_tool(question, declared)
        assert match is not None
        assert match.arguments == {"n": 1}
    assert [record.message for record in caplog.records] == ["matching.declaration_passed_over"]


def test_a_question_over_the_limit_matches_nothing() -> None:
    rules = {"t": [{"pattern": "a"}]}
    assert match_tool("a" * QUESTION_LIMIT_CHARS, rules) is not None
    assert match_tool("a" * (QUESTION_LIMIT_CHARS + 1), rules) is None


def test_answers_are_filled_from_the_structured_result() -> None:
    structured = {"a": 5.0, "b": {"c": "deep"}, "d": 1.5}
    assert fill_answer("{a} {b.c} {d} {not a field}", structured) == "5 deep 1.5 {not a field}"


@pytest.mark.parametrize("template", ["{x}", "{b}", "{b.c.d}", "{l}"])
def test_an_answer_that_cannot_be_filled_is_none(template: str) -> None:
    assert fill_answer(template, {"b": {"c": 1}, "l": [1]}) is None


@given(question=st.text(max_size=200), rules=st.lists(st.dictionaries(st.text(), st.text())))
def test_no_question_and_no_declaration_breaks_the_matcher(
    question: str, rules: list[dict[str, str]]
) -> None:
    match = match_tool(question, {"t": rules, "clock": [CLOCK]})
    assert match is None or match.tool in {"t", "clock"}
