"""Arguments of tools from words: number words, and values that an argument can't have."""

import json
from typing import Any

import pytest

from trunkline.phrasing.plain_values import find_values_and_words
from trunkline.phrasing.schema_arguments import describe_argument, take_arguments, take_one

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "hours": {"type": "number"},
        "zone": {"enum": ["inner", "outer"], "default": "inner"},
        "level": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
        "covered": {"type": "boolean", "default": False},
        "day": {"type": "string", "format": "date"},
        "size": {"enum": ["S", "M", "L"]},
        "note": {"type": "string", "maxLength": 9},
        "extras": {"type": "array", "items": {"enum": ["wash", "wax"]}},
        "plates": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["hours"],
}
TOOL_WORDS = frozenset(("park", "fe"))


@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        ("zone: middle", "zone", "middle"),
        ("zone=middle", "zone", "middle"),
        ("zone = middle", "zone", "middle"),
        ("in zone middle", "zone", "middle"),
        ("in zone middle please", "zone", "middle"),
        ("zone middle", "zone", "middle"),
        ("zone is middle", "zone", "middle"),
        ("in zone “middle”", "zone", "middle"),
        ("zone: any", "zone", "any"),
        ("zone: far away, thanks", "zone", "far away"),
        ("zone: inner, zone: middle", "zone", "middle"),
        ("zone: middle, by the outer road", "zone", "middle"),
        ("size XL", "size", "XL"),
        ("extras: polish", "extras", "polish"),
        ("level: 9", "level", "9"),
        ("on level 9", "level", "9"),
        ("level nine", "level", "9"),
        ("level high", "level", "high"),
        ("level=2.5", "level", "2.5"),
        ("covered: maybe", "covered", "maybe"),
        ("covered perhaps", "covered", "perhaps"),
        ("day: tomorrow", "day", "tomorrow"),
        ("note: much too long", "note", "much too long"),
        ("plates: A1", "plates", "A1"),
    ],
)
def test_a_named_value_that_an_optional_argument_can_t_have_is_rejected(
    words: str, name: str, said: str
) -> None:
    for question in (f"parking fee for 3 hours, {words}", f"3 hours {words}"):
        taken = take_arguments(question, SCHEMA, TOOL_WORDS)
        assert (taken.arguments, taken.rejected) == ({"hours": 3}, {name: said})
        assert [wanted.partition(" ")[0] for wanted in taken.missing] == [name]
        assert not taken.unused


@pytest.mark.parametrize(
    "words",
    [
        "in the outskirts",
        "whatever the zone",
        "what is the zone for that",
        "in my favourite zone as always",
        "the zone map shows it",
        'and the note "the zone is full"',
        "note: zone full",
        "of the parking level",
        "level parking fee",
        "at a level place",
        "in the covered hall",
    ],
)
def test_a_name_without_a_value_leaves_the_default(words: str) -> None:
    taken = take_arguments(f"parking fee for 3 hours {words}", SCHEMA, TOOL_WORDS)
    assert (taken.rejected, taken.missing, taken.arguments["hours"]) == ({}, [], 3)
    assert not {"zone", "level"} & taken.arguments.keys()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("zone: the outer one", "zone", "outer"),
        ("in zone outer", "zone", "outer"),
        ("zone: middle\nouter", "zone", "outer"),
        ("zone: middle, no, zone: outer", "zone", "outer"),
        ("size L", "size", "L"),
        ("extras: wash and wax", "extras", ["wash", "wax"]),
        ("level: 9\n2", "level", 2),
        ("level nine\nlevel two", "level", 2),
        ("covered: maybe\nyes", "covered", True),
        ("day: tomorrow\n2026-07-28", "day", "2026-07-28"),
        ("day: 28 July 2026", "day", "2026-07-28"),
        ("on the day 28 July 2026", "day", "2026-07-28"),
    ],
)
def test_allowed_values_and_corrections_are_taken(words: str, name: str, value: object) -> None:
    taken = take_arguments(f"3 hours, {words}", SCHEMA, TOOL_WORDS)
    assert taken.arguments == {"hours": 3, name: value}
    assert not any([taken.rejected, taken.missing, taken.unused])


@pytest.mark.parametrize(
    ("words", "hours"),
    [
        ("two hours", 2),
        ("one hour", 1),
        ("hours: twelve", 12),
        ("twenty-four hours", 24),
        ("two and a half hours", 2.5),
        ("an hour and a half", 1.5),
        ("half an hour", 0.5),
        ("3 hours and a half", 3.5),
        ("2 thousand hours", 2000),
        ("the two of us for 3 hours", 3),
        ("which one costs most in 3 hours", 3),
        ("two cars, 3 hours", 3),
    ],
)
def test_numbers_in_words_are_arguments(words: str, hours: float) -> None:
    for schema in (SCHEMA, {**SCHEMA, "required": []}):
        taken = take_arguments(f"parking fee for {words}", schema, TOOL_WORDS)
        assert (taken.arguments, taken.missing) == ({"hours": hours}, [])


@pytest.mark.parametrize("words", ["which one", "one of them", "these two", "the third"])
def test_numbers_in_words_that_count_nothing_are_no_arguments(words: str) -> None:
    assert not take_arguments(f"parking fee for {words}", SCHEMA, TOOL_WORDS).arguments


def test_a_number_in_words_beside_another_that_is_used_is_not_ignored() -> None:
    taken = take_arguments("parking fee for two hours and three cars", SCHEMA, TOOL_WORDS)
    assert ([value.text for value in taken.unused], taken.arguments) == (["3"], {"hours": 2})


def test_choices_that_are_called_like_numbers_are_choices() -> None:
    schema = {"properties": {"count": {"type": "integer"}, "gate": {"enum": ["one", "two"]}},
              "required": ["count", "gate"]}  # fmt: skip
    assert take_arguments("gate two", schema).arguments == {"gate": "two"}
    assert take_one("three", "count", schema) == 3


@pytest.mark.parametrize(
    "schema", [{"enum": [1.0, 2.0, 12.0]}, {"oneOf": [{"const": 2.0}, {"const": 12.0}]}], ids=str
)
def test_choices_may_be_numbers(schema: dict[str, Any]) -> None:
    for words, value in (("level 2", 2), ("level: 12", 12), ("level two", 2)):
        taken = take_arguments(words, {"properties": {"level": schema}})
        assert (json.dumps(taken.arguments), taken.unused) == (f'{{"level": {value}}}', [])
    assert take_arguments("level 3", {"properties": {"level": schema}}).rejected == {"level": "3"}


def test_words_and_digits_of_one_value_are_one_value() -> None:
    values, words = find_values_and_words("2 million on 28 July 2026, “two” and three, 1 May")
    assert [(value.kind, value.text) for value in values] == [
        ("number", "2000000"), ("date", "2026-07-28"), ("text", "two"), ("number", "1"),
    ]  # fmt: skip
    assert [word.text for word in words] == ["3"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "number"}, "n (a number), optional"),
        ({"type": "integer", "minimum": 1, "maximum": 5},
         "n (a whole number from 1 to 5), optional"),
        ({"type": "integer", "maximum": 5.0}, "n (a whole number up to 5), optional"),
        ({"enum": [1.0, 2.5]}, "n (one of 1, 2.5), optional"),
        ({"type": "number", "exclusiveMinimum": 0}, "n (a number above 0), optional"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1},
         "n (a number from 0 below 1), optional"),
    ],
)  # fmt: skip
def test_the_limits_of_a_number_are_named(schema: dict[str, Any], text: str) -> None:
    assert describe_argument("n", {"properties": {"n": schema}}) == text


@pytest.mark.parametrize(
    "words",
    ["item: pear n: 3", "n: 3 item: pear", "item=pear n=3", "item: pear, n: 3", "item: pear\nn: 3"],
)
def test_a_text_ends_before_the_name_of_the_next_argument(words: str) -> None:
    schema = {"properties": {"item": {"type": "string"}, "n": {"type": "integer"}}}
    assert take_arguments(words, schema).arguments == {"item": "pear", "n": 3}
