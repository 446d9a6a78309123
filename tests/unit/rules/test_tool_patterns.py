import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.logs import find_logged
from trunkline.core.patterns import PatternMatch, compile_pattern
from trunkline.rules import tool_patterns
from trunkline.rules.tool_patterns import (
    QUESTION_LIMIT_CHARS,
    ToolMatch,
    fill_answer,
    match_tools,
)

CLOCK: dict[str, Any] = {
    "pattern": r"what time is it in (?P<city>[\w ]+?)\??$",
    "arguments": {"timezone": {"from": "{city}", "map": {"tokyo": "Asia/Tokyo"}}},
    "answer": "It is {datetime} in {timezone}.",
}


def match_tool(question: str, declarations: Mapping[str, Sequence[Any]]) -> ToolMatch | None:
    return next(iter(match_tools(question, declarations)), None)


def match_arguments(question: str, **rule: Any) -> dict[str, Any]:
    match = match_tool(question, {"t": [rule]})
    assert match is not None
    return match.arguments


def test_a_value_missing_from_a_map_is_passed_unchanged() -> None:
    match = match_tool("what time is it in Atlantis", {"clock": [CLOCK]})
    assert match is not None
    assert match.arguments == {"timezone": "Atlantis"}


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
        ("find a; then find b, find c", ["a", "b", "c"]),
        # A part without a full match is not a separate question.
        ("find salt and pepper", ["salt"]),
        (" and ".join(["find a"] * 8), ["a"] * 8),
        (" and ".join(["find a"] * 9), ["a"]),
    ],
)
def test_joined_questions_are_matched_separately(question: str, expected: list[str]) -> None:
    declared = {
        "find": [
            {
                "pattern": "(?:then )?find (?P<x>[a-z]+)",
                "arguments": {"x": "{x}"},
            },
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
        {"pattern": "(" * 1900},
        {"pattern": "a{1001}"},
        {"pattern": 7},
        {"pattern": "a" * 5000},
        {"pattern": "a(?=b)"},
        {"pattern": "((a?){100}){30}"},
        {"pattern": "(a?)" * 51},
        {"pattern": "a", "require": {"missing": "a"}},
        {"pattern": "a", "require": {"0": "("}},
        {"pattern": "a", "arguments": {"x": "y" * 5000}},
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
    for question in ("a", "a "):
        # The log entry is written once for each tool, so each case has its own tool.
        declared = {request.node.name: [rule, {"pattern": "a", "arguments": {"n": 1}}]}
        match = match_tool(question, declared)
        assert match is not None
        assert match.arguments == {"n": 1}
    assert [record.message for record in find_logged(caplog)] == [
        "matching.declaration_passed_over"
    ]


def test_a_question_over_the_limit_matches_nothing() -> None:
    rules = {"t": [{"pattern": "a+"}]}
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


class Case(NamedTuple):
    pattern: str
    question: str


@pytest.mark.parametrize(
    "case",
    [
        Case("(a+)+b", "a" * QUESTION_LIMIT_CHARS),
        Case("(a|a)*b", "a" * QUESTION_LIMIT_CHARS),
        Case("(.*)*(.*)*(.*)*x", "y" * QUESTION_LIMIT_CHARS),
        Case("((a?){60}){10}b", "a" * QUESTION_LIMIT_CHARS),
    ],
)
def test_a_hostile_pattern_takes_linear_time(case: Case) -> None:
    # A backtracking engine takes years.
    assert match_tool(case.question, {"t": [{"pattern": case.pattern}]}) is None


@dataclass
class Meter:
    """Counts RE2's steps and compiled patterns."""

    steps: int = 0
    patterns: set[str] = field(default_factory=set)

    def compile(self, pattern: str) -> "MeteredPattern":
        self.patterns.add(pattern)
        return MeteredPattern(pattern, self)


class MeteredPattern:
    def __init__(self, pattern: str, meter: Meter) -> None:
        self._compiled = compile_pattern(pattern)
        self._meter = meter
        self.programsize = self._compiled.programsize
        self.groups = self._compiled.groups

    def search(self, text: str) -> PatternMatch | None:
        self._meter.steps += self.programsize * len(text.encode())
        return self._compiled.search(text)

    def fullmatch(self, text: str) -> PatternMatch | None:
        self._meter.steps += self.programsize * len(text.encode())
        return self._compiled.fullmatch(text)


STEP_LIMIT = 10_000_000
HOSTILE: list[Any] = [{"pattern": f"((a?){{60}}){{10}}{number}"} for number in range(100)]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Count the steps, with a limit that tests reach soon."""
    meter = Meter()
    monkeypatch.setattr(tool_patterns, "compile_pattern", meter.compile)
    monkeypatch.setattr(tool_patterns, "_STEP_LIMIT", STEP_LIMIT)
    return meter


def test_a_hostile_tool_spends_its_share_and_silences_no_other_tool(
    meter: Meter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hostile = "hostile"
    declared = {hostile: HOSTILE, "good": [{"pattern": "a+"}], "other": [{"pattern": "b"}]}
    match = match_tool("a" * 500, declared)
    assert match is not None
    assert match.tool == "good"
    assert [record.__dict__["tool"] for record in find_logged(caplog)] == [hostile]
    assert len(meter.patterns & {rule["pattern"] for rule in HOSTILE}) > 1
    assert meter.steps <= STEP_LIMIT


@pytest.mark.parametrize("letter", ["a", "\N{GREEK SMALL LETTER ALPHA}"])
def test_all_parts_of_a_question_share_the_steps(letter: str, meter: Meter) -> None:
    question = " and find ".join([letter * 200] * 8)
    assert match_tools(question, {"t": HOSTILE}) == []
    # The parts have one limit, and the whole question has another.
    assert 0 < meter.steps <= 2 * STEP_LIMIT


def test_groups_cost_steps(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_patterns, "_COMPILE_STEPS", 0)
    grouped, plain = "(a?)" * 40, "(?:a?)" * 40
    limit = compile_pattern(grouped).programsize * 41 * 2
    monkeypatch.setattr(tool_patterns, "_STEP_LIMIT", limit)
    assert match_tool("a" * 40, {"t": [{"pattern": plain}]}) is not None
    assert match_tool("a" * 40, {"t": [{"pattern": grouped}]}) is None


def test_compiled_patterns_cost_steps(meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [{"pattern": f"x{number}"} for number in range(600)]
    assert match_tool("x7", {"t": rules}) is not None
    assert match_tool("z", {"t": rules}) is None
    assert len(meter.patterns) == 600
    meter.patterns.clear()
    monkeypatch.setattr(tool_patterns, "_STEP_LIMIT", 1_000_000)
    assert match_tool("z", {"t": rules}) is None
    assert 100 < len(meter.patterns) < 500


def test_a_group_has_to_contain_what_the_rule_requires() -> None:
    rule = {"pattern": "solve (?P<x>.+)", "require": {"x": r"\d"}, "arguments": {"x": "{x}"}}
    assert match_arguments("solve 2x", **rule) == {"x": "2x"}
    assert match_tool("solve hunger", {"t": [rule]}) is None


def test_a_fallback_loses_against_any_match() -> None:
    rules: dict[str, list[Any]] = {
        "all": [{"pattern": "(?s).+", "fallback": True}],
        "one": [{"pattern": "abc"}],
    }
    matches = [match_tool(question, rules) for question in ("abc", "xyz")]
    assert [match.tool for match in matches if match] == ["one", "all"]


def test_the_arguments_of_a_call_are_limited_together() -> None:
    rule = {"pattern": "(a+)", "arguments": {"x": ["{1}"] * 1000}}
    assert match_tool("a" * 1000, {"t": [rule]}) is not None
    assert match_tool("a" * 1001, {"t": [rule]}) is None


def test_a_template_over_the_limit_is_not_filled() -> None:
    assert fill_answer("{x}" * 2000, {"x": "y"}) is None
