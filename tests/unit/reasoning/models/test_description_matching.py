"""Tools without patterns, found by their descriptions, and called by their schemas."""

from dataclasses import dataclass
from typing import Any

import pytest

from trunkline.phrasing.plain_values import find_values
from trunkline.phrasing.schema_arguments import describe_type, take_arguments
from trunkline.reasoning.models.description_matching import match_descriptions
from trunkline.reasoning.toolbox import ToolSpec, build_tool_spec

LOOP = {"$ref": "#/$defs/b"}
UNIT = {"type": "string", "enum": ["metres", "feet", "square-miles"]}


def tool(
    name: str, title: str, description: str, required: dict[str, Any], **optional: Any
) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "$defs": {"Unit": UNIT},
    }
    return {**build_tool_spec(name, description, schema), "metadata": {"title": title}}


TOOLS = [
    tool(
        "shop__convert_length", "Convert a length", "Convert a length from one unit to another.",
        {"value": {"type": "number"}, "from_unit": UNIT, "to_unit": {"$ref": "#/$defs/Unit"}},
    ),
    tool("shop__count_words", "", "Count the words of a text.", {"text": {"type": "string"}}),
    tool(
        "shop__order", "Order", "Order a number of an item.",
        {"count": {"type": "integer"}, "item": {"type": "string"}},
    ),
    tool("shop__refuse", "Refuse", "Refuse to do anything.", {}),
    tool(
        "rooms__book_room", "Book a room", "Book a room for a meeting.",
        {
            "day": {"type": "string", "format": "date"},
            "seats": {"anyOf": [{"type": "integer", "maximum": 50}, {"type": "null"}]},
        },
        projector={"type": "boolean"},
        city={"type": ["string", "null"]},
    ),
    tool("web__fetchPage", "", "Fetches a page of the web.", {"url": {"type": "string"}}),
    tool(
        "git__list_issues", "", "List the issues of the project.", {},
        state={"enum": ["open", "closed"]},
    ),
    tool("git__create_issue", "", "Create an issue.", {"title": {"type": "string"}}),
    tool("git__merge", "", "Merge a change.", {"change": {"type": "object"}}),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    question: str
    tool: str
    arguments: dict[str, Any]


@pytest.mark.parametrize(
    "case",
    [
        Case(
            "convert 3 feet to metres",
            "shop__convert_length",
            {"value": 3, "from_unit": "feet", "to_unit": "metres"},
        ),
        Case(
            "please convert to square miles from 1,200.5 metres!",
            "shop__convert_length",
            {"value": 1200.5, "from_unit": "metres", "to_unit": "square-miles"},
        ),
        Case("how many words are in 'to be or'?", "shop__count_words", {"text": "to be or"}),
        Case('order 3 "pears"', "shop__order", {"count": 3, "item": "pears"}),
        Case("order item: two pears, count: 2", "shop__order", {"count": 2, "item": "two pears"}),
        Case("refuse to do anything", "shop__refuse", {}),
        Case(
            "could you book a room for 4 seats on 2026-07-28 with a projector",
            "rooms__book_room",
            {"day": "2026-07-28", "seats": 4, "projector": True},
        ),
        Case(
            "book a room, day: 2026-07-28, seats 3, no projector, city: New York.",
            "rooms__book_room",
            {"day": "2026-07-28", "seats": 3, "projector": False, "city": "New York"},
        ),
        Case("fetch the page https://a.example/b?c=1.", "web__fetchPage",
             {"url": "https://a.example/b?c=1"}),
        Case("list the issues", "git__list_issues", {}),
        Case("list the closed issues", "git__list_issues", {"state": "closed"}),
        Case('create an issue "It is broken"', "git__create_issue", {"title": "It is broken"}),
    ],
    ids=lambda case: case.question,
)  # fmt: skip
def test_a_tool_is_called_when_its_arguments_are_in_the_question(case: Case) -> None:
    match = match_descriptions(case.question, TOOLS)
    assert match is not None
    assert (match.problem, match.tool, match.arguments) == ("", case.tool, case.arguments)


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("convert 3 feet", "Please add to_unit (one of metres, feet, square-miles)."),
        ("order 3 pears", "Please add item (a text in quotation marks)."),
        ("order", "Please add count (a whole number), item (a text in quotation marks)."),
        ("order 2.5 'pears'", "Please add count (a whole number)"),
        (
            "book a room on 2026-07-28 with 99 seats",
            "seats can't be 99. Please add seats (a whole number up to 50).",
        ),
        ("please fetch a page", "Please add url (a URL)."),
        ("merge the change", "Please add change (JSON, by `trunkline tools call`)."),
        ('count the words of "a b" and "c"', "can't tell what this is for: c."),
    ],
)
def test_what_is_missing_is_named(question: str, says: str) -> None:
    match = match_descriptions(question, TOOLS)
    assert match is not None
    assert says in match.problem


@pytest.mark.parametrize(
    "question",
    [
        "", "hello", "what can you do", "what is the capital of France", "what is 1+2",
        "convert 100 USD to EUR", "3 feet in metres", "who ordered the pizza?",
        "what's the weather", "tell me how long 3 feet are in metres", "x" * 2000,
    ],
)  # fmt: skip
def test_a_question_that_names_no_tool_fits_none(question: str) -> None:
    assert match_descriptions(question, TOOLS) is None


def test_tools_that_fit_alike_are_not_guessed() -> None:
    twins = [
        tool(f"{name}__count_words", "", "Count words.", {"text": {"type": "string"}})
        for name in ("first", "second")
    ]
    match = match_descriptions("count the words of 'a b'", twins)
    assert match is not None
    assert match.problem.startswith("Several of my tools fit that: first__count_words, second__")
    # The order of the tools decides nothing.
    assert match_descriptions("count the words of 'a b'", twins[::-1]) == match


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"a": True, "b": LOOP}, "$defs": {"b": LOOP}},
        {"properties": {"a": {"enum": [None, {}, "x" * 9999]}}, "required": ["a"]},
        {"properties": {"": {"type": "integer"}}, "required": [""]},
        {"properties": {f"p{n}": {"type": "number"} for n in range(1000)}},
    ],
)  # fmt: skip
def test_any_schema_is_read(schema: dict[str, Any]) -> None:
    taken = take_arguments("a: 1, b is 1e999 and 'c' on 2026-07-28", schema)
    assert len(taken.arguments) <= 1


def test_values_do_not_overlap() -> None:
    found = find_values("at 09:30 on 2026-07-28T09:30:00Z, '5 pm', a@b.example, 3km, -2e3, 1.2.3")
    assert [(value.kind, value.text) for value in found] == [
        ("time", "09:30"),
        ("datetime", "2026-07-28T09:30:00Z"),
        ("text", "5 pm"),
        ("email", "a@b.example"),
        ("number", "-2e3"),
    ]


def test_a_value_of_another_kind_is_a_text_behind_the_argument_s_name() -> None:
    text = {"type": "string"}
    schema = {"properties": {"zone": text, "time": text, "hours": {"type": "integer"}},
              "required": ["zone", "time"]}  # fmt: skip
    taken = take_arguments('the time 16:30 in zone "Berlin" for hours 3', schema)
    assert taken.arguments == {"zone": "Berlin", "time": "16:30", "hours": 3}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"$ref": "#/$defs/Unit"}, "metres | feet"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "integer or string"),
        ({"type": ["number", "null", "boolean"]}, "number or boolean"),
        ({"type": "array", "items": {"$ref": "#/$defs/Unit"}}, "array of metres | feet"),
        ({"$ref": "#/$defs/Box"}, "object"),
        (LOOP, "any"),
        ({"$ref": "#/$defs/Json"}, "integer or array"),
        ({}, "any"),
        (True, "any"),
    ],
    ids=str,
)
def test_a_schema_is_described_as_a_type(schema: object, name: str) -> None:
    definitions = {
        "Unit": {"enum": ["metres", "feet"]},
        "Box": {"type": "object"},
        "b": LOOP,
        "Json": {
            "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/Json"}}]
        },
    }
    assert describe_type(schema, {"$defs": definitions}) == name
