"""The syntax tree of an expression: plain data that is never evaluated as Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number; `is_decimal` if it is written with a point, an exponent or a percent."""

    value: Fraction
    is_decimal: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: `pi`, `e`, `i` or `oo`."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A single letter."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of terms; a subtracted term is a Negation."""

    terms: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The operand with the opposite sign."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of factors; a divisor is a Reciprocal."""

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
class FunctionCall:
    """A call of a function of the grammar, with a valid number of arguments."""

    function: str
    arguments: tuple["Node", ...]


Node = Number | Constant | Variable | Sum | Negation | Product | Reciprocal | Power | FunctionCall


@dataclass(frozen=True, slots=True)
class Equation:
    """The two sides of an equation."""

    left: Node
    right: Node


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node."""
    match node:
        case Sum(terms=below) | Product(factors=below) | FunctionCall(arguments=below):
            return below
        case Negation(operand=operand) | Reciprocal(operand=operand):
            return (operand,)
        case Power(base=base, exponent=exponent):
            return (base, exponent)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield every node of the tree, in no particular order."""
    pending = [node]
    while pending:
        current = pending.pop()
        pending.extend(children(current))
        yield current


def has_decimals(node: Node) -> bool:
    """Return True if the user expects a decimal: for a decimal, a percentage, or rounding."""
    return any(
        (isinstance(child, Number) and child.is_decimal)
        or (isinstance(child, FunctionCall) and child.function == "round")
        for child in walk(node)
    )
