"""Builds SymPy objects from the tree, node by node and function by function; no text gets here."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from trunkline_agents.math.parser import reject
from trunkline_agents.math.syntax import (
    Call,
    Constant,
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
    Variable,
)

# SymPy has no types of its own.
SympyValue = Any

_CONSTANTS: dict[str, SympyValue] = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}


def _modulo(dividend: SympyValue, divisor: SympyValue) -> SympyValue:
    if divisor.is_zero:
        reject("It divides by zero: mod(…, 0) is not defined.")
    return sympy.Mod(dividend, divisor)


def _of_whole_numbers(function: Callable[..., int], *arguments: SympyValue) -> SympyValue:
    if not all(argument.is_Integer for argument in arguments):
        reject("gcd and lcm take whole numbers.")
    return sympy.Integer(function(*map(int, arguments)))


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
    "gcd": lambda *numbers: _of_whole_numbers(math.gcd, *numbers),
    "lcm": lambda *numbers: _of_whole_numbers(math.lcm, *numbers),
    "min": sympy.Min,
    "max": sympy.Max,
    "mod": _modulo,
}


def to_sympy(node: Node) -> SympyValue:
    """Build the SymPy expression that the tree says.

    Raises:
        InvalidArgumentError: it divides by zero, or a function is not defined for its arguments.
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
            return _divided(to_sympy(operand))
        case Power(base=base, exponent=exponent):
            return _raised(to_sympy(base), to_sympy(exponent))
        case Call(function=function, arguments=arguments):
            return _called(function, [to_sympy(argument) for argument in arguments])


def _divided(divisor: SympyValue) -> SympyValue:
    if divisor.is_zero:
        reject("It divides by zero, which is not defined.")
    return 1 / divisor


def _raised(base: SympyValue, exponent: SympyValue) -> SympyValue:
    if base.is_zero and (exponent.is_negative or exponent.is_zero):
        reject("Zero to the power of zero, or of a negative number, is not defined.")
    return base**exponent


def _called(function: str, arguments: list[SympyValue]) -> SympyValue:
    try:
        return _FUNCTIONS[function](*arguments)
    except (ValueError, TypeError, ZeroDivisionError):
        # SymPy says so in its own terms; the function's name is what the reader knows.
        reject(f"{function} is not defined for what it is given here.")


# What SymPy itself shows of a number.
DEFAULT_DIGITS = 15
# An exact form longer than this says less than its decimals.
MAX_EXACT_CHARS = 60


class _Printer(StrPrinter):  # type: ignore[misc]  # SymPy has no types
    """SymPy's own printer with our names; SymPy finds the methods by the names of its classes."""

    def _print_Exp1(self, expr: SympyValue) -> str:  # noqa: N802
        return "e"

    def _print_ImaginaryUnit(self, expr: SympyValue) -> str:  # noqa: N802
        return "i"

    def _print_log(self, expr: SympyValue) -> str:
        return f"ln({self.stringify(expr.args, ', ')})"

    def _print_Abs(self, expr: SympyValue) -> str:  # noqa: N802
        return f"abs({self._print(expr.args[0])})"


def render_exact(value: SympyValue) -> str:
    """The exact form, in the grammar's words."""
    return str(_Printer().doprint(value)).replace("**", "^")


def render_decimals(value: SympyValue, digits: int = DEFAULT_DIGITS) -> str:
    """The value to so many significant digits."""
    number = sympy.N(value, digits)
    if number.has(sympy.I) and number.is_number:
        real, imaginary = number.as_real_imag()
        # What cancels out exactly may leave a trace in numbers.
        if abs(imaginary) < abs(real) * sympy.Float(10) ** -digits:
            number = real
    return render_exact(number)


def render_number(value: SympyValue, *, digits: int | None, prefers_decimals: bool) -> str:
    """A number for people: exact where that is short, and its decimals where they say more.

    `3`; `1/2 = 0.5`; `1/3 ≈ 0.333333333333333`; `sqrt(2) ≈ 1.41421356237310`. With `digits`, or
    when the question was written in decimals, the decimals alone.
    """
    exact = _exact_decimals(value)
    if exact is not None and _fits(exact, digits):
        return exact if digits or prefers_decimals or value.is_Integer else _pair(value, "=", exact)
    if digits:
        return render_decimals(value, digits)
    if value.has(sympy.I) and all(part.is_Rational for part in value.as_real_imag()):
        return render_exact(value)
    return _pair(value, "≈", render_decimals(value))


def _pair(value: SympyValue, relation: str, decimals: str) -> str:
    exact = render_exact(value)
    if exact == decimals:
        return exact
    if len(exact) > MAX_EXACT_CHARS:
        return f"{relation} {decimals}"
    return f"{exact} {relation} {decimals}"


def _fits(decimals: str, digits: int | None) -> bool:
    significant = sum(character.isdigit() for character in decimals.lstrip("-0."))
    # A whole number is shown whole unless fewer digits were asked for.
    limit = digits or (significant if "." not in decimals else DEFAULT_DIGITS)
    return significant <= limit


def _exact_decimals(value: SympyValue) -> str | None:
    """The decimals of a rational number that has finitely many, without trailing zeros."""
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
