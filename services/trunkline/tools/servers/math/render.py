"""Writes SymPy's objects the way the grammar reads them: `3*x^2`, `ln(x)`, `2*i`."""

from fractions import Fraction

import sympy
from sympy.printing.str import StrPrinter

from trunkline.tools.servers.math.build import Value

# What SymPy itself shows of a number.
DEFAULT_DIGITS = 15
# An exact form longer than this says less than its decimals.
MAX_EXACT_CHARS = 60


class _Printer(StrPrinter):  # type: ignore[misc]  # SymPy has no types
    """SymPy's own printer with our names; SymPy finds the methods by the names of its classes."""

    def _print_Exp1(self, expr: Value) -> str:  # noqa: N802
        return "e"

    def _print_ImaginaryUnit(self, expr: Value) -> str:  # noqa: N802
        return "i"

    def _print_log(self, expr: Value) -> str:
        return f"ln({self.stringify(expr.args, ', ')})"

    def _print_Abs(self, expr: Value) -> str:  # noqa: N802
        return f"abs({self._print(expr.args[0])})"


def written(value: Value) -> str:
    """The exact form, in the grammar's words."""
    return str(_Printer().doprint(value)).replace("**", "^")


def approximated(value: Value, digits: int = DEFAULT_DIGITS) -> str:
    """The value to so many significant digits."""
    number = sympy.N(value, digits)
    if number.has(sympy.I) and number.is_number:
        real, imaginary = number.as_real_imag()
        # What cancels out exactly may leave a trace in numbers.
        if abs(imaginary) < abs(real) * sympy.Float(10) ** -digits:
            number = real
    return written(number)


def number_text(value: Value, *, digits: int | None, prefers_decimals: bool) -> str:
    """A number for people: exact where that is short, and its decimals where they say more.

    `3`; `1/2 = 0.5`; `1/3 ≈ 0.333333333333333`; `sqrt(2) ≈ 1.41421356237310`. With `digits`, or
    when the question was written in decimals, the decimals alone.
    """
    exact = _exact_decimals(value)
    if exact is not None and _fits(exact, digits):
        return exact if digits or prefers_decimals or value.is_Integer else _pair(value, "=", exact)
    if digits:
        return approximated(value, digits)
    if value.has(sympy.I) and all(part.is_Rational for part in value.as_real_imag()):
        return written(value)
    return _pair(value, "≈", approximated(value))


def _pair(value: Value, relation: str, decimals: str) -> str:
    exact = written(value)
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


def _exact_decimals(value: Value) -> str | None:
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
