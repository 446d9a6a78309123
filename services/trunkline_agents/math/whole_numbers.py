"""Whole numbers as answers, worked out without SymPy, which takes a third of a second to load."""

from fractions import Fraction

from trunkline_agents.math.syntax import (
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
)


def compute_whole_number(node: Node) -> int | None:
    """Return the exact value of an expression, or None if SymPy has to compute it.

    SymPy has to compute a value that is no whole number or is not defined. It also computes
    expressions with more than numbers, the four operations and powers with whole exponents. The
    size of the expression must have been checked: then its numbers have few digits, and this takes
    less than a millisecond.
    """
    value = _compute(node)
    return value.numerator if value is not None and value.denominator == 1 else None


def _compute(node: Node) -> Fraction | None:
    match node:
        case Number(value=value):
            return value
        case Sum(terms=terms):
            values = _compute_all(terms)
            return None if values is None else sum(values, Fraction(0))
        case Product(factors=factors):
            values = _compute_all(factors)
            return None if values is None else _multiply(values)
        case Negation(operand=operand):
            positive = _compute(operand)
            return None if positive is None else -positive
        case Reciprocal(operand=operand):
            divisor = _compute(operand)
            # A division by zero has no value.
            return 1 / divisor if divisor else None
        case Power(base=base, exponent=exponent):
            return _raise(_compute(base), _compute(exponent))
        case _:
            return None


def _compute_all(nodes: tuple[Node, ...]) -> list[Fraction] | None:
    values = [_compute(node) for node in nodes]
    defined = [value for value in values if value is not None]
    return defined if len(defined) == len(values) else None


def _multiply(values: list[Fraction]) -> Fraction:
    product = Fraction(1)
    for value in values:
        product *= value
    return product


def _raise(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    if not base or exponent is None or exponent.denominator != 1:
        return None
    return base**exponent.numerator
