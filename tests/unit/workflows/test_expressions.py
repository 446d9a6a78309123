"""Expressions: what they read, which are refused, and that large values are bounded."""

import sys
from typing import Any

import pytest

from trunkline.errors import ConfigurationError
from trunkline.workflows.expressions import (
    Expression,
    ExpressionError,
    Template,
    parse_each,
    parse_template,
)

VALUES: dict[str, Any] = {
    "input": {"numbers": list(range(150)), "text": "x" * 40_000, "big": "y" * 3_000_000},
    "nodes": {"a": {"text": "A", "data": {"score": 3}}, "b": {"text": "B"}},
    "last": {"text": "L"},
    "data": {},
    "steps": 4,
}


@pytest.mark.parametrize(
    ("source", "references"),
    [
        ("nodes.a.text == last.text", {("nodes", "a", "text"), ("last", "text")}),
        ("nodes['a'].data.score > 1", {("nodes", "a", "data", "score")}),
        (
            'nodes["a-b"].data["c.d"] == last . text',
            {("nodes", "a-b", "data", "c.d"), ("last", "text")},
        ),
        ("nodes['1'].text.contains('nodes.a')", {("nodes", "1", "text")}),
        ("size(nodes) > 1", {("nodes",)}),
        ("data.x.contains('nodes.q')", {("data", "x")}),
        ("input.items.exists(item, item.nodes > 1)", {("input", "items")}),
        ("has(nodes.a) ? nodes.a.text : ''", {("nodes", "a"), ("nodes", "a", "text")}),
    ],
)
def test_references_are_the_names_that_are_read(
    source: str, references: set[tuple[str, ...]]
) -> None:
    assert set(Expression.parse(source).references) == references


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("nodes.a.data.score + 1", 4),
        ("has(nodes.c)", False),
        ("size(nodes)", 2),
        ("input.numbers.filter(x, x > 147)", [148, 149]),
        ("input.numbers.exists(x, x == 3) && steps == 4", True),
        ("size(input.big)", 3_000_000),
        ("nodes['b'].text", "B"),
    ],
)
def test_values(source: str, value: object) -> None:
    assert Expression.parse(source).evaluate(VALUES) == value


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "is not CEL"),
        ("a ==", "column 5: it ends too early"),
        ("__import__('os')", "unknown function"),
        ("input.a.map(x, input.b.map(y, 1))", "a loop within a loop"),
        ("(" * 1500 + "1" + ")" * 1500, "is not CEL"),
        ("1+" * 3000, "longer than 4,000 characters"),
        ("\ud800", "is not CEL|surrogates"),
    ],
)
def test_wrong_expressions_are_refused(source: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        Expression.parse(source)


@pytest.mark.parametrize(
    "source",
    [
        "input.many.map(x, x * 2)",
        "input.many.exists(x, x == -1)",
        "input.big + input.big + input.big",
        "input.text.matches('(x{1,100}){1,100}y')",
        "input.numbers.map(x, input.big)",
    ],
)
def test_large_values_are_refused(source: str) -> None:
    values = {**VALUES, "input": {**VALUES["input"], "many": list(range(100_000))}}
    with pytest.raises(ExpressionError, match="use a function"):
        Expression.parse(source).evaluate(values)


def test_integers_are_exact_or_refused_where_the_library_rounds() -> None:
    values = {"input": {"id": 2**53 + 1, "huge": 2**64 + 1}}
    assert Expression.parse("input.id + 1").evaluate(values) == 2**53 + 2
    assert Expression.parse("input.huge").evaluate(values) == 2**64 + 1
    with pytest.raises(ExpressionError, match="more than 64 bits"):
        Expression.parse("input.huge > 1").evaluate(values)


def test_large_values_within_the_limits_are_computed() -> None:
    copies = Expression.parse("size(input.numbers.map(x, input.text))").evaluate(VALUES)
    assert copies == 150


def test_templates_keep_types_and_text() -> None:
    assert parse_template("${steps}").render(VALUES) == 4
    assert parse_template("n=${steps} $${x} ${'}'}").render(VALUES) == "n=4 ${x} }"
    assert isinstance(parse_template("${last.text}"), Template)
    errors = [
        each for each in parse_each("${a ==} ${steps} ${lst}") if isinstance(each, ValueError)
    ]
    assert len(errors) == 2


def test_a_missing_extra_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel", None)
    with pytest.raises(ConfigurationError, match=r"install .*trunkline\[workflows\]"):
        Expression.parse("1 + 1")
