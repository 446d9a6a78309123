"""Converts syntax trees to SymPy objects, and SymPy objects to text.

No text is ever passed to SymPy. Results are written in the grammar of `parser`: `3*x^2`, `ln(x)`,
`2*i`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from trunkline_agents.math.parser import reject
from trunkline_agents.math.syntax import (
    Constant,
    FunctionCall,
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
    Variable,
)

# SymPy has no type hints.
SympyValue = Any

_CONSTANTS: dict[str, SympyValue] = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
# SymPy's own default.
DEFAULT_DIGITS = 15
# Decimals are shown instead of an exact form longer than this.
MAX_EXACT_CHARS = 60


def _modulo(dividend: SympyValue, divisor: SympyValue) -> SympyValue:
    if divisor.is_zero:
        reject("It divides by zero: mod(…, 0) is not defined.")
    return sympy.Mod(dividend, divisor)


def _apply_to_integers(function: Callable[..., int], *arguments: SympyValue) -> SympyValue:
    if not all(argument.is_Integer for argument in arguments):
        reject("gcd and lcm take whole numbers.")
    return sympy.Integer(function(*map(int, arguments)))


def _median(*numbers: SympyValue) -> SympyValue:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _round(number: SympyValue, places: SympyValue = sympy.S.Zero) -> SympyValue:
    """Round half away from zero, as people do."""
    scale = sympy.Integer(10) ** places
    rounded = sympy.floor(sympy.Abs(number) * scale + sympy.Rational(1, 2)) / scale
    return rounded * sympy.sign(number)


_FUNCTIONS: dict[str, Callable[..., SympyValue]] = {
    "sqrt": sympy.sqrt,
    "cbrt": lambda x: sympy.real_root(x, 3),
    "root": lambda x, n: sympy.root(x, n),
    "abs": sympy.Abs,
    "exp": sympy.exp,
    "ln": sympy.log,
    "log": sympy.log,
    "log10": lambda x: sympy.log(x, 10),
    "log2": lambda x: sympy.log(x, 2),
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "cot": sympy.cot,
    "sec": sympy.sec,
    "csc": sympy.csc,
    "asin": sympy.asin,
    "acos": sympy.acos,
    "atan": sympy.atan,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "asinh": sympy.asinh,
    "acosh": sympy.acosh,
    "atanh": sympy.atanh,
    "factorial": sympy.factorial,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
    "gcd": lambda *numbers: _apply_to_integers(math.gcd, *numbers),
    "lcm": lambda *numbers: _apply_to_integers(math.lcm, *numbers),
    "min": sympy.Min,
    "max": sympy.Max,
    "mod": _modulo,
    "mean": lambda *numbers: sympy.Add(*numbers) / len(numbers),
    "median": _median,
    "sum": sympy.Add,
    "product": sympy.Mul,
    "round": _round,
}


def to_sympy(node: Node) -> SympyValue:
    """Return the SymPy expression of a tree.

    Raises:
        InvalidArgumentError: it divides by zero, or a function is not defined at its arguments.
    """
    match node:
        case Number(value=value):
            return sympy.Rational(value.numerator, value.denominator)
        case Constant(name=name):
            return _CONSTANTS[name]
        case Variable(name=name):
            return sympy.Symbol(name)
        case Sum(terms=terms):
            return sympy.Add(*map(to_sympy, terms))
        case Negation(operand=operand):
            return -to_sympy(operand)
        case Product(factors=factors):
            return sympy.Mul(*map(to_sympy, factors))
        case Reciprocal(operand=operand):
            return _divide(to_sympy(operand))
        case Power(base=base, exponent=exponent):
            return _raise(to_sympy(base), to_sympy(exponent))
        case FunctionCall(function=function, arguments=arguments):
            return _call(function, [to_sympy(argument) for argument in arguments])


def _divide(divisor: SympyValue) -> SympyValue:
    if divisor.is_zero:
        reject("It divides by zero, which is not defined.")
    return 1 / divisor


def _raise(base: SympyValue, exponent: SympyValue) -> SympyValue:
    if base.is_zero and (exponent.is_negative or exponent.is_zero):
        reject("Zero to the power of zero, or of a negative number, is not defined.")
    return base**exponent


def _call(function: str, arguments: list[SympyValue]) -> SympyValue:
    try:
        return _FUNCTIONS[function](*arguments)
    except (ValueError, TypeError, ZeroDivisionError):
        # SymPy's text names its classes, which the user does not know.
        reject(f"{function} is not defined for these arguments.")


class _Printer(StrPrinter):  # type: ignore[misc]  # SymPy has no types
    """SymPy's printer with our names. SymPy calls a method by the name of the object's class."""

    def _print_Exp1(self, expr: SympyValue) -> str:  # noqa: N802
        return "e"

    def _print_ImaginaryUnit(self, expr: SympyValue) -> str:  # noqa: N802
        return "i"

    def _print_log(self, expr: SympyValue) -> str:
        return f"ln({self.stringify(expr.args, ', ')})"

    def _print_Abs(self, expr: SympyValue) -> str:  # noqa: N802
        return f"abs({self._print(expr.args[0])})"


def render_exact(value: SympyValue) -> str:
    """Return the exact form."""
    return str(_Printer().doprint(value)).replace("**", "^")


def render_decimals(value: SympyValue, digits: int = DEFAULT_DIGITS) -> str:
    """Return the value to a number of significant digits."""
    number = sympy.N(value, digits)
    if number.has(sympy.I) and number.is_number:
        real, imaginary = number.as_real_imag()
        # An imaginary part that cancels out exactly may leave a rounding error.
        if abs(imaginary) < abs(real) * sympy.Float(10) ** -digits:
            number = real
    return render_exact(number)


def render_number(value: SympyValue, *, digits: int | None, prefers_decimals: bool) -> str:
    """Return a number for people: its exact form if that is short, and its decimals.

    Examples are `3`, `1/2 = 0.5`, `1/3 ≈ 0.333333333333333` and `sqrt(2) ≈ 1.41421356237310`. With
    `digits`, or for a question in decimals, the result has only the decimals.
    """
    exact = _finite_decimals(value)
    if exact is not None and _fits(exact, digits):
        return (
            exact
            if digits or prefers_decimals or value.is_Integer
            else _render_both(value, "=", exact)
        )
    if digits:
        return render_decimals(value, digits)
    if value.has(sympy.I) and all(part.is_Rational for part in value.as_real_imag()):
        return render_exact(value)
    return _render_both(value, "≈", render_decimals(value))


def _render_both(value: SympyValue, relation: str, decimals: str) -> str:
    exact = render_exact(value)
    if exact == decimals:
        return exact
    if len(exact) > MAX_EXACT_CHARS:
        return f"{relation} {decimals}"
    return f"{exact} {relation} {decimals}"


def _fits(decimals: str, digits: int | None) -> bool:
    significant = sum(character.isdigit() for character in decimals.lstrip("-0."))
    # A whole number is shown in full unless the question wants fewer digits.
    limit = digits or (significant if "." not in decimals else DEFAULT_DIGITS)
    return significant <= limit


def _finite_decimals(value: SympyValue) -> str | None:
    """Return the decimals of a rational number if they are finite, without trailing zeros."""
    if not value.is_Rational:
        return None
    number = Fraction(int(value.p), int(value.q))
    places = _decimal_places(number.denominator)
    if places is None:
        return None
    scaled = abs(number.numerator) * 10**places // number.denominator
    whole = str(scaled).rjust(places + 1, "0")
    text = f"{whole[:-places]}.{whole[-places:]}" if places else whole
    return f"-{text}" if number < 0 else text


def _decimal_places(denominator: int) -> int | None:
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    return max(twos, fives) if denominator == 1 else None
