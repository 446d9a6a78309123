"""An expression whose types validation accepts does not fail by its types when it runs."""

import random

from trunkline.workflows.expression_types import ExpressionTypes, build_samples
from trunkline.workflows.expressions import Expression, ExpressionError, ExpressionTypeError

TYPES = {"n": "integer", "m": "integer", "s": "string", "t": "string", "b": "boolean"}
SCHEMA = {"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}}
# Without operators that leave out a side: what did not run has no type yet.
FORMS = (
    *("({} + {})", "({} * {})", "({} - {})", "({} / {})", "({} > {})", "({} == {})"),
    *("size({})", "{}.startsWith({})", "(!{})", "(-{})", "int({})", "string({})", "[{}, {}]"),
)


def write(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*(f"input.{name}" for name in TYPES), "1", "'x'", "true", "steps"])
    form = rng.choice(FORMS)
    return form.format(*(write(rng, depth - 1) for _ in range(form.count("{}"))))


def draw(rng: random.Random, kind: str) -> object:
    values = {"integer": (-7, 0, 3), "string": ("", "12", "two words"), "boolean": (True, False)}
    return rng.choice(values[kind])


def test_what_is_right_for_the_samples_is_right_for_other_values() -> None:
    rng = random.Random(20261124)
    types = ExpressionTypes(SCHEMA, {})
    right = wrong = 0
    for _ in range(600):
        expression = Expression.parse(write(rng, 3))
        outcome = types.check(expression)
        values = {name: draw(rng, kind) for name, kind in TYPES.items()}
        variables = {"input": values, "steps": 5}
        if outcome.problem:
            wrong += 1
            try:
                expression.evaluate(variables)
            except ExpressionError:
                continue
            raise AssertionError((expression.source, values, outcome.problem))
        if outcome.values is None:
            continue
        right += 1
        try:
            result = expression.evaluate(variables)
        except ExpressionTypeError as error:
            raise AssertionError((expression.source, values)) from error
        except ExpressionError:
            continue
        assert type(result) in {type(value) for value in outcome.values}, expression.source
    assert min(right, wrong) > 60


def test_samples_have_each_form_of_a_type_that_is_known() -> None:
    assert build_samples({"type": ["string", "null"]}) == ["text", None]
    assert build_samples({"enum": [1, 2, "x"]}) == (2, "x")
    assert build_samples({"const": 7}) == (7,)
    assert build_samples({"type": "array", "items": {"type": "integer"}}) == [[1]]
    nested = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}
    assert build_samples(nested) == [{"a": 1, "b": "text"}, {"a": 1.5, "b": "text"}]
    for unknown in ({}, True, {"type": "string", "anyOf": []}, {"type": ["string", "any"]}):
        assert build_samples(unknown) is None
    many = {"type": "object", "properties": {f"n{i}": {"type": "boolean"} for i in range(7)}}
    assert build_samples(many) is None
