"""Limits the size of an expression's numbers before anything is computed."""

import math
from dataclasses import dataclass
from fractions import Fraction

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
    children,
)

# Python prints at most 4,300 digits.
MAX_DIGITS = 4_000

_LOG10_2 = math.log10(2)
_LOG10_E = math.log10(math.e)


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds on the absolute value and on the denominator, as decimal logarithms.

    A variable counts as one, so that the bounds also hold for the coefficients of a polynomial.
    """

    magnitude: float
    denominator: float

    @property
    def digits(self) -> float:
        """Most digits that numerator and denominator have together."""
        return max(self.magnitude, 0.0) + self.denominator


_ONE = Size(0.0, 0.0)


def check_size(node: Node) -> None:
    """Check that no part of an expression has a value of more than MAX_DIGITS digits.

    The bound is an estimate from above: it also rejects some expressions that cancel out.

    Raises:
        InvalidArgumentError: a part of the expression could be too large.
    """
    _size(node)


def _size(node: Node) -> Size:
    match node:
        case Number(value=value):
            size = _number_size(value)
        case Constant() | Variable():
            size = Size(0.5, 0.0) if isinstance(node, Constant) else _ONE
        case Negation(operand=operand):
            size = _size(operand)
        case Reciprocal(operand=operand):
            size = _reciprocal_size(operand)
        case Sum(terms=terms):
            size = _sum_size([_size(term) for term in terms])
        case Product(factors=factors):
            sizes = [_size(factor) for factor in factors]
            size = Size(sum(x.magnitude for x in sizes), sum(x.denominator for x in sizes))
        case Power(base=base, exponent=exponent):
            size = _power_size(_size(base), _size(exponent), exponent)
        case FunctionCall():
            size = _call_size(node)
    if size.digits > MAX_DIGITS:
        reject(f"The numbers in it would have more than {MAX_DIGITS:,} digits: that is too large.")
    return size


def _number_size(value: Fraction) -> Size:
    if value == 0:
        return _ONE
    below = _log10(value.denominator)
    return Size(_log10(abs(value.numerator)) - below, below)


def _log10(number: int) -> float:
    return number.bit_length() * _LOG10_2 if number >= 10**15 else math.log10(number)


def _reciprocal_size(operand: Node) -> Size:
    size = _size(operand)
    # Only a number's value is known. Any other operand has a numerator of at least 1.
    magnitude = -size.magnitude if isinstance(operand, Number) else size.denominator
    return Size(magnitude, size.digits)


def _sum_size(sizes: list[Size]) -> Size:
    # The common denominator may be the product of all denominators.
    return Size(
        max(size.magnitude for size in sizes) + math.log10(len(sizes)),
        sum(size.denominator for size in sizes),
    )


def _power_size(base: Size, exponent: Size, written: Node) -> Size:
    times = _ten_to_the(exponent.magnitude)
    if isinstance(written, Number):
        return Size(max(base.magnitude, 0.0) * times, base.denominator * times)
    # A negative exponent swaps numerator and denominator.
    return Size(base.digits * times, base.digits * times)


def _call_size(call: FunctionCall) -> Size:
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
    # Larger values are rejected anyway, and a float ends at 1e308.
    return math.pow(10.0, min(magnitude, 300.0))
