"""Builds SymPy objects from the tree, node by node and function by function; no text gets here."""

import math
from collections.abc import Callable
from typing import Any

import sympy

from trunkline.tools.servers.math.syntax import (
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
from trunkline.tools.servers.math.tokens import refuse

# SymPy has no types of its own.
Value = Any

_CONSTANTS: dict[str, Value] = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}


def _modulo(dividend: Value, divisor: Value) -> Value:
    if divisor.is_zero:
        refuse("It divides by zero: mod(…, 0) is not defined.")
    return sympy.Mod(dividend, divisor)


def _of_whole_numbers(function: Callable[..., int], *arguments: Value) -> Value:
    if not all(argument.is_Integer for argument in arguments):
        refuse("gcd and lcm take whole numbers.")
    return sympy.Integer(function(*map(int, arguments)))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
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


def build(node: Node) -> Value:
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
            return sympy.Add(*map(build, terms))
        case Negation(operand=operand):
            return -build(operand)
        case Product(factors=factors):
            return sympy.Mul(*map(build, factors))
        case Reciprocal(operand=operand):
            return _divided(build(operand))
        case Power(base=base, exponent=exponent):
            return _raised(build(base), build(exponent))
        case Call(function=function, arguments=arguments):
            return _called(function, [build(argument) for argument in arguments])


def _divided(divisor: Value) -> Value:
    if divisor.is_zero:
        refuse("It divides by zero, which is not defined.")
    return 1 / divisor


def _raised(base: Value, exponent: Value) -> Value:
    if base.is_zero and (exponent.is_negative or exponent.is_zero):
        refuse("Zero to the power of zero, or of a negative number, is not defined.")
    return base**exponent


def _called(function: str, arguments: list[Value]) -> Value:
    try:
        return _FUNCTIONS[function](*arguments)
    except (ValueError, TypeError, ZeroDivisionError):
        # SymPy says so in its own terms; the function's name is what the reader knows.
        refuse(f"{function} is not defined for what it is given here.")
