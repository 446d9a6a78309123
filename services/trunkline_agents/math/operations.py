"""The operations of the math tools, run in the worker: from text to an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import solving
from trunkline_agents.math.parser import parse_equation, parse_expression, reject
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.sympy_conversion import (
    SympyValue,
    render_decimals,
    render_exact,
    render_number,
    to_sympy,
)
from trunkline_agents.math.syntax import Node, has_decimals

MAX_ANSWER_CHARS = 10_000
# Simplifying a larger number rarely shortens it and may take long.
_MAX_OPERATIONS_TO_SIMPLIFY = 50
_MAX_EXPANDED_POWER = 200
# With more divisors, only the primes are listed.
_MAX_DIVISORS = 32


@dataclass(frozen=True)
class OperationAnswer:
    """An answer as a sentence or formula, and as data of the tool's output schema."""

    text: str
    data: dict[str, Any]


def calculate(*, expression: str, digits: int | None) -> OperationAnswer:
    """Compute a number, or simplify an expression with variables."""
    node = parse_expression(expression)
    value = _check_finite(_build(node))
    if value.free_symbols:
        text = exact = render_exact(sympy.simplify(value))
        return OperationAnswer(text, {"exact": exact, "approximation": None})
    if not value.is_Rational and value.count_ops() <= _MAX_OPERATIONS_TO_SIMPLIFY:
        value = _check_finite(sympy.simplify(value))
    text = render_number(value, digits=digits, prefers_decimals=has_decimals(node))
    return OperationAnswer(
        text, {"exact": render_exact(value), "approximation": _render_approximation(value, digits)}
    )


def solve(*, equation: str, variable: str | None) -> OperationAnswer:
    """Solve an equation for one variable."""
    sides = parse_equation(equation)
    left, right = _check_finite(_build(sides.left)), _check_finite(_build(sides.right))
    unknown = _choose_variable(left.free_symbols | right.free_symbols, variable)
    if unknown is None:
        reject("There is no variable to solve for. Write for example x^2-5x+6=0.")
    solutions = solving.solve_equation(left - right, unknown)
    if solutions is None:
        reject("No way to solve this was found, neither exactly nor numerically.")
    return OperationAnswer(
        _render_solutions(solutions, unknown.name),
        {
            "variable": unknown.name,
            "solutions": [
                {"exact": each.exact, "approximation": each.approximation}
                for each in solutions.roots
            ],
            "is_complete": solutions.is_complete,
        },
    )


def differentiate(*, expression: str, variable: str | None, order: int) -> OperationAnswer:
    """Differentiate."""
    value = _check_finite(_build(parse_expression(expression)))
    by = _choose_variable(value.free_symbols, variable) or sympy.Symbol("x")
    derivative = render_exact(sympy.diff(value, by, order))
    return OperationAnswer(
        derivative, {"variable": by.name, "order": order, "derivative": derivative}
    )


def integrate(
    *, expression: str, variable: str | None, lower: str | None, upper: str | None
) -> OperationAnswer:
    """Integrate between the limits, or without limits if a limit is missing."""
    value = _check_finite(_build(parse_expression(expression)))
    by = _choose_variable(value.free_symbols, variable) or sympy.Symbol("x")
    if lower is None or upper is None:
        antiderivative = sympy.integrate(value, by)
        if antiderivative.has(sympy.Integral):
            reject("No antiderivative in known functions was found. With limits, a number may be.")
        exact = render_exact(antiderivative)
        data = {"variable": by.name, "lower": None, "upper": None, "exact": exact}
        return OperationAnswer(f"{exact} + C", {**data, "approximation": None})
    limits = [_build(parse_expression(text)) for text in (lower, upper)]
    area = sympy.integrate(value, (by, *limits))
    return _render_area(area, by=by, limits=limits)


def factor(*, expression: str) -> OperationAnswer:
    """Write a whole number as a product of primes, or an expression as a product of factors."""
    value = _check_finite(_build(parse_expression(expression)))
    if value.is_Integer and abs(value) > 1:
        factors = sympy.factorint(value)
        exact = "*".join(str(prime) if n == 1 else f"{prime}^{n}" for prime, n in factors.items())
        is_prime = len(factors) == 1 and sum(factors.values()) == 1 and value > 1
        text = f"{value} is prime" if is_prime else f"{value} = {exact}"
        if not is_prime and sympy.divisor_count(value) <= _MAX_DIVISORS:
            divisors = ", ".join(map(str, sympy.divisors(value)))
            text += f"; its divisors are {divisors}"
    else:
        text = exact = render_exact(sympy.factor(value))
    return OperationAnswer(text, {"factors": exact})


def expand(*, expression: str) -> OperationAnswer:
    """Multiply all products and powers out."""
    value = _check_finite(_build(parse_expression(expression)))
    # A power of a sum has as many terms as its exponent, or many times more.
    for power in value.atoms(sympy.Pow):
        if power.exp.is_Integer and abs(power.exp) > _MAX_EXPANDED_POWER and power.base.is_Add:
            reject(f"It would have too many terms: expand powers up to {_MAX_EXPANDED_POWER}.")
    exact = render_exact(sympy.expand(value))
    return OperationAnswer(exact, {"expanded": exact})


OPERATIONS: dict[str, Callable[..., OperationAnswer]] = {
    "calculate": calculate,
    "solve": solve,
    "differentiate": differentiate,
    "integrate": integrate,
    "factor": factor,
    "expand": expand,
}
# SymPy loads and compiles much on first use, which must not count as time of a question.
WARM_UP_ARGUMENTS: dict[str, dict[str, Any]] = {
    "calculate": {"expression": "sqrt(2)/(1+sqrt(3))", "digits": None},
    "solve": {"equation": "x^2-5x+6=0", "variable": None},
    "differentiate": {"expression": "x*sin(x)", "variable": None, "order": 1},
    "integrate": {"expression": "x*sin(x)", "variable": None, "lower": None, "upper": None},
    "factor": {"expression": "x^2-5x+6"},
    "expand": {"expression": "(x+1)^3"},
}


def run_operation(operation: str, arguments: dict[str, Any]) -> OperationAnswer:
    """Run one operation of the table.

    Raises:
        InvalidArgumentError: the question has no answer; the text says why.
    """
    answer = OPERATIONS[operation](**arguments)
    if len(answer.text) > MAX_ANSWER_CHARS:
        reject(f"The answer would be longer than {MAX_ANSWER_CHARS:,} characters.")
    return answer


def _build(node: Node) -> SympyValue:
    check_size(node)
    return to_sympy(node)


def _check_finite(value: SympyValue) -> SympyValue:
    if value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        reject("It has no finite value: a part of it divides by zero or is infinite.")
    return value


def _render_approximation(value: SympyValue, digits: int | None = None) -> str | None:
    if value.is_Integer or value.free_symbols:
        return None
    return render_decimals(value, digits) if digits else render_decimals(value)


def _choose_variable(symbols: set[SympyValue], name: str | None) -> SympyValue | None:
    """Return the named variable, or the only variable, or x, or None without variables."""
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


def _render_solutions(solutions: solving.RootSet, variable: str) -> str:
    if solutions.is_identity:
        return f"Every value of {variable} is a solution."
    if not solutions.roots:
        return "There is no solution."
    text = " or ".join(solution.render(variable) for solution in solutions.roots)
    if solutions.parameter:
        text += f", for every integer {solutions.parameter}"
    return text if solutions.is_complete else f"{text} (found numerically; there may be more)"


def _render_area(area: SympyValue, *, by: SympyValue, limits: list[SympyValue]) -> OperationAnswer:
    if area.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        reject("The integral has no finite value between these limits.")
    data: dict[str, Any] = {"variable": by.name}
    data |= dict(zip(("lower", "upper"), map(render_exact, limits), strict=True))
    if area.has(sympy.Integral):
        number = sympy.N(area)
        if number.has(sympy.Integral):
            reject("Neither a formula nor a number was found for this integral.")
        text = render_exact(number)
        return OperationAnswer(f"≈ {text}", {**data, "exact": None, "approximation": text})
    data |= {"exact": render_exact(area), "approximation": _render_approximation(area)}
    if area.free_symbols:
        return OperationAnswer(render_exact(area), data)
    return OperationAnswer(render_number(area, digits=None, prefers_decimals=False), data)
