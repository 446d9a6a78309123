"""The operations of the math tools, run in the worker: from text to an answer."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import solving
from trunkline_agents.math.amount_rendering import write_amount
from trunkline_agents.math.number_names import name_number, write_roman
from trunkline_agents.math.parser import parse_equation, parse_expression, reject
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.sympy_conversion import (
    SympyValue,
    render_decimals,
    render_exact,
    render_number,
    to_sympy,
)
from trunkline_agents.math.syntax import (
    Node,
    Variable,
    has_decimals,
    has_variables,
    replace_variable,
)

MAX_ANSWER_CHARS = 10_000
# Simplifying a larger number rarely shortens it and may take long.
_MAX_OPERATIONS_TO_SIMPLIFY = 50
_MAX_EXPANDED_POWER = 200
# With more divisors, only the primes are listed.
_MAX_DIVISORS = 32
# A larger number may take long to factor, without being asked for.
_MAX_FACTORED = 10**18
_PROPERTIES: dict[str, Callable[[int], object]] = {
    "prime": sympy.isprime,
    "even": lambda number: number % 2 == 0,
    "odd": lambda number: number % 2 == 1,
    "composite": lambda number: number > 1 and not sympy.isprime(number),
    "square": lambda number: _is_square(number),
    "cube": lambda number: sympy.integer_nthroot(abs(number), 3)[1],
    "leap year": lambda year: year % 4 == 0 and (year % 100 != 0 or year % 400 == 0),
    "triangular": lambda number: number >= 0 and _is_square(8 * number + 1),
    "fibonacci": lambda number: (
        number >= 0 and (_is_square(5 * number**2 + 4) or _is_square(5 * number**2 - 4))
    ),
    "palindrome": lambda number: str(number) == str(number)[::-1],
}
_PROPERTY_PHRASES = {
    **{name: name for name in ("prime", "even", "odd", "composite")},
    "square": "a perfect square",
    "cube": "a perfect cube",
    "leap year": "a leap year",
    "triangular": "a triangular number",
    "fibonacci": "a Fibonacci number",
    "palindrome": "a palindrome",
}
_OPPOSITES = {"even": "odd", "odd": "even"}
# The signs of the difference for which each relation holds.
_RELATIONS = {"<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">": (1,)}
_ORDER_PHRASES = {-1: "less than", 0: "equal to", 1: "greater than"}

_WRITTEN_NUMBER = re.compile(r"(?P<sign>-)?(?P<whole>\d{1,40})(?:\.(?P<decimals>\d{1,30}))?")
_FORM_NAMES = {"words": "words", "roman": "Roman numerals"}


@dataclass(frozen=True)
class OperationAnswer:
    """An answer as a sentence or formula, and as data of the tool's output schema."""

    text: str
    data: dict[str, Any]


def calculate(
    *,
    expression: str,
    digits: int | None,
    form: str | None = None,
    where: str | None = None,
    other_reading: str | None = None,
    other_meaning: str | None = None,
) -> OperationAnswer:
    """Compute a number, or simplify an expression with variables.

    `where` gives a variable a value: "x = 9". `other_reading` is the formula of another meaning,
    and the answer has both values: "900 minus a third". `other_meaning` says when it is meant.

    `form` asks for a fraction, a mixed number or a ratio of whole numbers, for words, Roman
    numerals or a percentage, or for an amount: decimals, rounded to two places if they don't end.
    """
    node = substitute(parse_expression(expression), where)
    value = _check_finite(_build(node))
    if value.free_symbols:
        text = exact = render_exact(sympy.simplify(value))
        return OperationAnswer(text, {"exact": exact, "approximation": None})
    if form is not None and form != "amount":
        return _write_in_form(value, form)
    if not value.is_Rational and value.count_ops() <= _MAX_OPERATIONS_TO_SIMPLIFY:
        value = _check_finite(sympy.simplify(value))
    is_amount = form == "amount"
    text = _write_result(value, digits, prefers_decimals=has_decimals(node), is_amount=is_amount)
    if other_reading is not None:
        other = _build_real(other_reading)
        number = _write_result(other, digits, prefers_decimals=True, is_amount=is_amount)
        if number != text:
            text = _write_both(number, text, expression, other_meaning)
            value = other
    return OperationAnswer(
        text, {"exact": render_exact(value), "approximation": _render_approximation(value, digits)}
    )


def _write_in_form(value: SympyValue, form: str) -> OperationAnswer:
    """Return a number in words, in Roman numerals, as a percentage or as a quotient."""
    if form in {"words", "roman"}:
        return _write_number(value, form)
    if form == "percent":
        return _write_percent(value)
    if not value.is_Rational:
        reject(f"{render_exact(value)} is no {form} of whole numbers.")
    text = _write_quotient(value.p, value.q, form)
    return OperationAnswer(text, {"exact": text, "approximation": _render_approximation(value)})


def _write_result(
    value: SympyValue, digits: int | None, *, prefers_decimals: bool, is_amount: bool
) -> str:
    """Return a number; as an amount, rounded to two places if its decimals don't end."""
    if is_amount and value.is_Rational:
        return write_amount(Fraction(int(value.p), int(value.q)))
    return render_number(value, digits=digits, prefers_decimals=prefers_decimals)


def _write_both(number: str, text: str, expression: str, meaning: str | None) -> str:
    """Return the answer of a sum with two meanings. `meaning` tells the first from the second."""
    if meaning is not None:
        return f"{number} {meaning}, and {text} with it"
    return f"{number}, if a part of the number is meant ({expression} = {text})"


def _write_percent(value: SympyValue) -> OperationAnswer:
    """Return a number as a percentage, rounded to four decimals if it has more."""
    if not value.is_Rational:
        reject(f"{render_exact(value)} is no percentage of whole numbers.")
    share = Fraction(int(value.p), int(value.q)) * 100
    text = f"{write_amount(share)}%"
    return OperationAnswer(
        text, {"exact": render_exact(value), "approximation": _render_approximation(value)}
    )


def _write_quotient(above: int, below: int, form: str) -> str:
    """Return a quotient in lowest terms as a ratio, a mixed number or a fraction."""
    if form == "ratio":
        return f"{above}:{below}"
    if below == 1:
        return str(above)
    whole, rest = divmod(abs(above), below)
    if form == "mixed number" and whole:
        return f"{'-' if above < 0 else ''}{whole} {rest}/{below}"
    return f"{above}/{below}"


def substitute(node: Node, where: str | None) -> Node:
    """Return an expression with the value of a variable in its place.

    Raises:
        InvalidArgumentError: `where` is no such equation, or the result is too large.
    """
    if where is None:
        return node
    sides = parse_equation(where)
    if not isinstance(sides.left, Variable) or has_variables(sides.right):
        reject("Write a variable and its value, such as x = 9.")
    replaced = replace_variable(node, sides.left.name, sides.right)
    check_size(replaced)
    return replaced


def _write_number(value: SympyValue, form: str) -> OperationAnswer:
    """Write a number in words or in Roman numerals."""
    exact = render_number(value, digits=None, prefers_decimals=True)
    written = _WRITTEN_NUMBER.fullmatch(exact)
    if written is None:
        reject(f"{exact} can't be written in {_FORM_NAMES[form]}.")
    whole, decimals = int(written["whole"]), written["decimals"] or ""
    if form == "roman":
        if decimals:
            reject(f"{exact} can't be written in {_FORM_NAMES[form]}.")
        text = write_roman(whole if not written["sign"] else -whole)
    else:
        text = f"{'minus ' if written['sign'] else ''}{name_number(whole, decimals)}"
    return OperationAnswer(text, {"exact": text, "approximation": None})


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
    """Integrate: between the limits, or without limits if one is missing."""
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


def check(
    *, number: str, relation: str, other: str | None, second: str | None = None
) -> OperationAnswer:
    """Answer a yes-or-no question about one number, two, or one and the ends of a range."""
    value = _build_real(number)
    if relation in _PROPERTIES:
        whole = _check_whole(value)
        holds, phrase = bool(_PROPERTIES[relation](whole)), _PROPERTY_PHRASES[relation]
        text = f"{render_exact(value)} is {'' if holds else 'not '}{phrase}"
        if not holds and relation in _OPPOSITES:
            text = f"{render_exact(value)} is {_OPPOSITES[relation]}"
        if relation == "prime" and not holds and whole > 1 and whole < _MAX_FACTORED:
            text += f": it is {factor(expression=str(whole)).data['factors']}"
    elif relation == "integer":
        holds = bool(value.is_integer)
        text = f"{render_exact(value)} is {'' if holds else 'not '}a whole number"
    elif relation == "between":
        holds, text = _check_between(value, _build_real(other or ""), _build_real(second or ""))
    else:
        holds, text = _check_pair(value, relation, _build_real(other or ""))
    return OperationAnswer(f"{'Yes' if holds else 'No'}, {text}.", {"holds": holds, "fact": text})


def _check_pair(value: SympyValue, relation: str, other: SympyValue) -> tuple[bool, str]:
    if relation == "coprime with":
        return _check_coprime(_check_whole(value), _check_whole(other))
    if relation == "power of":
        return _check_power(_check_whole(value), _check_whole(other))
    return _compare(value, relation, other)


def _check_between(value: SympyValue, first: SympyValue, second: SympyValue) -> tuple[bool, str]:
    """Return whether a number is in a range, whose ends may be in either order."""
    name, ends = render_exact(value), f"{render_exact(first)} and {render_exact(second)}"
    signs = {int(sympy.sign(sympy.simplify(value - end))) for end in (first, second)}
    if 0 in signs:
        return True, f"{name} is between {ends} if the ends count: it is one of them"
    holds = signs == {-1, 1}
    return holds, f"{name} is {'' if holds else 'not '}between {ends}"


def _compare(value: SympyValue, relation: str, second: SympyValue) -> tuple[bool, str]:
    names = [render_exact(value), render_exact(second)]
    if relation == "divisible by":
        divisor = _check_whole(second)
        if divisor == 0:
            reject("Nothing is divisible by zero.")
        whole = _check_whole(value)
        rest = whole % abs(divisor)
        fact = f"{names[0]} is {'not ' if rest else ''}divisible by {names[1]}"
        return not rest, f"{fact}: the remainder is {rest}" if rest else fact
    order = int(sympy.sign(sympy.simplify(value - second)))
    fact = f"{names[0]} is {_ORDER_PHRASES[order]} {names[1]}"
    return order in _RELATIONS[relation], fact


def _is_square(number: int) -> bool:
    return number >= 0 and math.isqrt(number) ** 2 == number


def _check_power(number: int, base: int) -> tuple[bool, str]:
    if number < 1 or base < 2:
        reject("Only powers of 2 and of larger whole numbers can be checked.")
    exponent, rest = 0, number
    while rest % base == 0:
        exponent, rest = exponent + 1, rest // base
    if rest == 1:
        return True, f"{number} is a power of {base}: it is {base}^{exponent}"
    return False, f"{number} is not a power of {base}"


def _check_coprime(number: int, other: int) -> tuple[bool, str]:
    divisor = math.gcd(number, other)
    if divisor == 1:
        return True, f"{number} and {other} are coprime"
    return False, f"{number} and {other} are not coprime: both are divisible by {divisor}"


def _build_real(text: str) -> SympyValue:
    value = _check_finite(_build(parse_expression(text)))
    if value.free_symbols or value.is_real is not True:
        reject("Only real numbers can be checked and compared.")
    return value


def _check_whole(value: SympyValue) -> int:
    if not value.is_Integer:
        reject(f"{render_exact(value)} is not a whole number.")
    return int(value)


OPERATIONS: dict[str, Callable[..., OperationAnswer]] = {
    "calculate": calculate,
    "solve": solve,
    "differentiate": differentiate,
    "integrate": integrate,
    "factor": factor,
    "expand": expand,
    "check": check,
}
# SymPy loads and compiles much on first use, which must not count as time of a question.
WARM_UP_ARGUMENTS: dict[str, dict[str, Any]] = {
    "calculate": {"expression": "sqrt(2)/(1+sqrt(3))", "digits": None},
    "solve": {"equation": "x^2-5x+6=0", "variable": None},
    "differentiate": {"expression": "x*sin(x)", "variable": None, "order": 1},
    "integrate": {"expression": "x*sin(x)", "variable": None, "lower": None, "upper": None},
    "factor": {"expression": "x^2-5x+6"},
    "expand": {"expression": "(x+1)^3"},
    "check": {"number": "97", "relation": "prime", "other": None},
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
    """Return the named variable, else the only one, else x; None if there is none."""
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
