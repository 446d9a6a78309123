"""Bounds the size of what an expression would compute, before anything is computed."""

import math
from dataclasses import dataclass
from fractions import Fraction

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
    children,
)

# Below the 4,300 digits that Python itself is willing to print.
MAX_DIGITS = 4_000

_LOG10_2 = math.log10(2)
_LOG10_E = math.log10(math.e)


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds, as decimal logarithms, of the absolute value and of the denominator.

    A variable counts as one, so that the bounds hold for the coefficients of a polynomial too.
    """

    magnitude: float
    denominator: float

    @property
    def digits(self) -> float:
        """How many digits the numerator and the denominator have together, at most."""
        return max(self.magnitude, 0.0) + self.denominator


_ONE = Size(0.0, 0.0)


def check_size(node: Node) -> None:
    """Refuse an expression whose value could have more digits than anybody can use.

    The bound is generous: some expressions that would cancel out are refused as well.

    Raises:
        InvalidArgumentError: some part of the expression would be too large.
    """
    _size(node)


def _size(node: Node) -> Size:
    match node:
        case Number(value=value):
            size = _size_of_number(value)
        case Constant() | Variable():
            size = Size(0.5, 0.0) if isinstance(node, Constant) else _ONE
        case Negation(operand=operand):
            size = _size(operand)
        case Reciprocal(operand=operand):
            size = _size_of_reciprocal(operand)
        case Sum(terms=terms):
            size = _size_of_sum([_size(term) for term in terms])
        case Product(factors=factors):
            sizes = [_size(factor) for factor in factors]
            size = Size(sum(x.magnitude for x in sizes), sum(x.denominator for x in sizes))
        case Power(base=base, exponent=exponent):
            size = _size_of_power(_size(base), _size(exponent), exponent)
        case Call():
            size = _size_of_call(node)
    if size.digits > MAX_DIGITS:
        reject(f"The numbers in it would have more than {MAX_DIGITS:,} digits: that is too large.")
    return size


def _size_of_number(value: Fraction) -> Size:
    if value == 0:
        return _ONE
    below = _log10(value.denominator)
    return Size(_log10(abs(value.numerator)) - below, below)


def _log10(number: int) -> float:
    return number.bit_length() * _LOG10_2 if number >= 10**15 else math.log10(number)


def _size_of_reciprocal(operand: Node) -> Size:
    size = _size(operand)
    # Of a number the value is known; of anything else, only that its numerator is at least one.
    magnitude = -size.magnitude if isinstance(operand, Number) else size.denominator
    return Size(magnitude, size.digits)


def _size_of_sum(sizes: list[Size]) -> Size:
    # Over the common denominator the denominators of all terms may meet.
    return Size(
        max(size.magnitude for size in sizes) + math.log10(len(sizes)),
        sum(size.denominator for size in sizes),
    )


def _size_of_power(base: Size, exponent: Size, written: Node) -> Size:
    times = _ten_to_the(exponent.magnitude)
    if isinstance(written, Number):
        return Size(max(base.magnitude, 0.0) * times, base.denominator * times)
    # The exponent may be negative: numerator and denominator may change places.
    return Size(base.digits * times, base.digits * times)


def _size_of_call(call: Call) -> Size:
    arguments = [_size(argument) for argument in children(call)]
    match call.function:
        case "exp" | "sinh" | "cosh":
            return Size(_LOG10_E * _ten_to_the(arguments[0].magnitude) + 1, 0.0)
        case "factorial":
            largest = _ten_to_the(arguments[0].magnitude)
            return Size(largest * max(arguments[0].magnitude, 1.0), 0.0)
        case _:
            digits = sum(argument.digits for argument in arguments)
            return Size(digits + 1, digits)


def _ten_to_the(magnitude: float) -> float:
    # Anything above is refused anyway, and a float ends at 1e308.
    return math.pow(10.0, min(magnitude, 300.0))
