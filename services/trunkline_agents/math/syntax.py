"""The tree an expression is read into: plain data, nothing of it is ever evaluated as Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number; `is_decimal` when it was written with a point, an exponent or a percent."""

    value: Fraction
    is_decimal: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """One of `pi`, `e`, `i`, `oo`."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A single letter."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms that are added; a subtracted one is a Negation."""

    terms: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The operand with its sign turned."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Product:
    """Factors that are multiplied; a divisor is a Reciprocal."""

    factors: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """One divided by the operand."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Power:
    """The base raised to the exponent."""

    base: "Node"
    exponent: "Node"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the grammar's table, with as many arguments as it takes."""

    function: str
    arguments: tuple["Node", ...]


Node = Number | Constant | Variable | Sum | Negation | Product | Reciprocal | Power | Call


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides; a lone expression is read as equal to zero."""

    left: Node
    right: Node


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case Sum(terms=below) | Product(factors=below) | Call(arguments=below):
            return below
        case Negation(operand=operand) | Reciprocal(operand=operand):
            return (operand,)
        case Power(base=base, exponent=exponent):
            return (base, exponent)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, in no promised order."""
    pending = [node]
    while pending:
        current = pending.pop()
        pending.extend(children(current))
        yield current


def has_decimals(node: Node) -> bool:
    """Whether a decimal or a percentage occurs, so that a decimal is expected."""
    return any(isinstance(each, Number) and each.is_decimal for each in walk(node))
