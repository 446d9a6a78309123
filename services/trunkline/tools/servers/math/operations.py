"""What the math tools do, inside the worker: text in, an answer for people and for programs out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from trunkline.errors import InvalidArgumentError
from trunkline.tools.servers.math import solving
from trunkline.tools.servers.math.bounds import check_size
from trunkline.tools.servers.math.build import Value, build
from trunkline.tools.servers.math.grammar import parse_equation, parse_expression
from trunkline.tools.servers.math.render import approximated, number_text, written
from trunkline.tools.servers.math.syntax import Node, is_written_in_decimals
from trunkline.tools.servers.math.tokens import refuse

MAX_ANSWER_CHARS = 10_000
# Simplifying a large number rarely makes it shorter and may take long.
_MAX_OPERATIONS_TO_SIMPLIFY = 50


@dataclass(frozen=True)
class Answer:
    """The answer as a sentence or formula, and as data."""

    text: str
    data: dict[str, Any]


def calculate(*, expression: str, digits: int | None) -> Answer:
    """Work out a number, or simplify an expression with variables."""
    node = parse_expression(expression)
    value = _defined(_built(node))
    if value.free_symbols:
        text = exact = written(sympy.simplify(value))
        return Answer(text, {"exact": exact, "approximation": None})
    if not value.is_Rational and value.count_ops() <= _MAX_OPERATIONS_TO_SIMPLIFY:
        value = _defined(sympy.simplify(value))
    text = number_text(value, digits=digits, prefers_decimals=is_written_in_decimals(node))
    return Answer(text, {"exact": written(value), "approximation": _approximation(value, digits)})


def solve(*, equation: str, variable: str | None) -> Answer:
    """Solve an equation for one variable."""
    sides = parse_equation(equation)
    left, right = _defined(_built(sides.left)), _defined(_built(sides.right))
    unknown = _variable(left.free_symbols | right.free_symbols, variable)
    if unknown is None:
        refuse("There is no variable to solve for. Write for example x^2-5x+6=0.")
    solutions = solving.solutions_of(left - right, unknown)
    if solutions is None:
        refuse("No way to solve this was found, neither exactly nor numerically.")
    return Answer(
        _solutions_text(solutions, unknown.name),
        {
            "variable": unknown.name,
            "solutions": [
                {"exact": each.exact, "approximation": each.approximation}
                for each in solutions.found
            ],
            "is_complete": solutions.is_complete,
        },
    )


def differentiate(*, expression: str, variable: str | None, order: int) -> Answer:
    """Take a derivative."""
    value = _defined(_built(parse_expression(expression)))
    by = _variable(value.free_symbols, variable) or sympy.Symbol("x")
    derivative = written(sympy.diff(value, by, order))
    return Answer(derivative, {"variable": by.name, "order": order, "derivative": derivative})


def integrate(
    *, expression: str, variable: str | None, lower: str | None, upper: str | None
) -> Answer:
    """Integrate, between limits if both are given."""
    value = _defined(_built(parse_expression(expression)))
    by = _variable(value.free_symbols, variable) or sympy.Symbol("x")
    if lower is None or upper is None:
        antiderivative = sympy.integrate(value, by)
        if antiderivative.has(sympy.Integral):
            refuse("No antiderivative in known functions was found. With limits, a number may be.")
        exact = written(antiderivative)
        data = {"variable": by.name, "lower": None, "upper": None, "exact": exact}
        return Answer(f"{exact} + C", {**data, "approximation": None})
    limits = [_built(parse_expression(text)) for text in (lower, upper)]
    area = sympy.integrate(value, (by, *limits))
    return _area_answer(area, by=by, limits=limits)


OPERATIONS: dict[str, Callable[..., Answer]] = {
    "calculate": calculate,
    "solve": solve,
    "differentiate": differentiate,
    "integrate": integrate,
}
# SymPy loads and compiles much on first use; that is not part of anybody's question.
WARM_UPS: dict[str, dict[str, Any]] = {
    "calculate": {"expression": "sqrt(2)/(1+sqrt(3))", "digits": None},
    "solve": {"equation": "x^2-5x+6=0", "variable": None},
    "differentiate": {"expression": "x*sin(x)", "variable": None, "order": 1},
    "integrate": {"expression": "x*sin(x)", "variable": None, "lower": None, "upper": None},
}


def perform(operation: str, arguments: dict[str, Any]) -> Answer:
    """Run one operation of the table.

    Raises:
        InvalidArgumentError: the question is not one that can be answered, and why.
    """
    answer = OPERATIONS[operation](**arguments)
    if len(answer.text) > MAX_ANSWER_CHARS:
        refuse(f"The answer would be longer than {MAX_ANSWER_CHARS:,} characters.")
    return answer


def _built(node: Node) -> Value:
    check_size(node)
    return build(node)


def _defined(value: Value) -> Value:
    if value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        refuse("It has no finite value: somewhere it divides by zero or leaves the numbers.")
    return value


def _approximation(value: Value, digits: int | None = None) -> str | None:
    if value.is_Integer or value.free_symbols:
        return None
    return approximated(value, digits) if digits else approximated(value)


def _variable(symbols: set[Value], name: str | None) -> Value | None:
    """The variable to work with: the one that was named, the only one, or x."""
    if name is not None:
        return sympy.Symbol(name)
    present = sorted(symbol.name for symbol in symbols)
    if not present:
        return None
    if len(present) == 1 or "x" in present:
        return sympy.Symbol("x" if "x" in present else present[0])
    raise InvalidArgumentError(
        field="variable", problem=f"Which variable is meant: {' or '.join(present)}?"
    )


def _solutions_text(solutions: solving.Solutions, variable: str) -> str:
    if solutions.is_identity:
        return f"Every value of {variable} is a solution."
    if not solutions.found:
        return "There is no solution."
    text = " or ".join(solution.shown(variable) for solution in solutions.found)
    if solutions.parameter:
        text += f", for every integer {solutions.parameter}"
    return text if solutions.is_complete else f"{text} (found numerically; there may be more)"


def _area_answer(area: Value, *, by: Value, limits: list[Value]) -> Answer:
    if area.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        refuse("The integral has no finite value between these limits.")
    data: dict[str, Any] = {"variable": by.name}
    data |= dict(zip(("lower", "upper"), map(written, limits), strict=True))
    if area.has(sympy.Integral):
        number = sympy.N(area)
        if number.has(sympy.Integral):
            refuse("Neither a formula nor a number was found for this integral.")
        text = written(number)
        return Answer(f"≈ {text}", {**data, "exact": None, "approximation": text})
    data |= {"exact": written(area), "approximation": _approximation(area)}
    if area.free_symbols:
        return Answer(written(area), data)
    return Answer(number_text(area, digits=None, prefers_decimals=False), data)
