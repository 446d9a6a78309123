"""Finds what solves an equation: exactly where SymPy can, else some solutions numerically."""

from dataclasses import dataclass

import sympy
from sympy.sets import FiniteSet, ImageSet, Union

from trunkline.tools.servers.math.build import Value
from trunkline.tools.servers.math.render import DEFAULT_DIGITS, approximated, written
from trunkline.tools.servers.math.tokens import refuse

MAX_DEGREE = 100

_STARTS = (0, 1, -1, 2, -2, 5, -5, 10, -10)
_DIGITS_COMPARED = 10
_NEGLIGIBLE = 1e-12
_MAX_SHOWN_CHARS = 40


@dataclass(frozen=True)
class Solution:
    """One solution, or one family of them: `exact` may hold an integer parameter."""

    exact: str
    approximation: str | None
    is_numeric: bool = False

    def shown(self, variable: str) -> str:
        """`x = 2`, or `x ≈ 0.739085133215161` where there is no short exact form."""
        is_long = self.approximation is not None and len(self.exact) > _MAX_SHOWN_CHARS
        if self.is_numeric or is_long:
            return f"{variable} ≈ {self.approximation}"
        return f"{variable} = {self.exact}"


@dataclass(frozen=True)
class Solutions:
    """What was found; `parameter` is the letter that stands for every integer, if one is used."""

    found: tuple[Solution, ...]
    is_complete: bool = True
    is_identity: bool = False
    parameter: str | None = None


def solutions_of(difference: Value, variable: Value) -> Solutions | None:
    """Solve `difference = 0`: over the complex numbers if it is rational, else the real ones.

    None when nothing was found although there may be solutions.

    Raises:
        InvalidArgumentError: the degree is too high to work with.
    """
    if difference.is_rational_function(variable):
        return _of_rational(difference, variable)
    try:
        exact = sympy.solveset(difference, variable, sympy.S.Reals)
    except (NotImplementedError, ValueError):
        exact = None
    if exact == sympy.S.Reals:
        return Solutions((), is_identity=True)
    parameter = sympy.Symbol("n" if variable.name != "n" else "k", integer=True)
    values = _values(exact, parameter)
    if values is None:
        return _numeric(difference, variable)
    is_family = any(parameter in value.free_symbols for value in values)
    return Solutions(_ordered(values), parameter=parameter.name if is_family else None)


def _of_rational(difference: Value, variable: Value) -> Solutions:
    """The roots of the numerator that are not roots of the denominator."""
    _check_degree(difference, variable)
    above, below = sympy.fraction(sympy.together(difference))
    polynomial = sympy.Poly(above, variable)
    if polynomial.is_zero:
        return Solutions((), is_identity=True)
    found = sympy.roots(polynomial)
    if sum(found.values()) == polynomial.degree():
        roots = [root for root in found if sympy.simplify(below.subs(variable, root)) != 0]
        return Solutions(_ordered(roots))
    if polynomial.free_symbols_in_domain:
        refuse("There is no general formula for this equation. Put numbers for some letters.")
    # Past degree four there is no formula in general, but all the roots are known as numbers.
    texts = [approximated(root) for root in polynomial.nroots(n=DEFAULT_DIGITS, maxsteps=200)]
    return Solutions(tuple(Solution(text, text, is_numeric=True) for text in texts))


def _check_degree(difference: Value, variable: Value) -> None:
    for power in difference.atoms(sympy.Pow):
        exponent = power.exp
        if power.has(variable) and exponent.is_number and abs(exponent) > MAX_DEGREE:
            refuse(f"The degree is too high: at most {MAX_DEGREE} is allowed.")


def _ordered(values: list[Value]) -> tuple[Solution, ...]:
    return tuple(map(_solution, sorted(values, key=_order)))


def _values(found: Value, parameter: Value) -> list[Value] | None:
    """The members of a set as expressions; None for a set that can't be listed so."""
    if isinstance(found, FiniteSet):
        return list(found)
    if found is sympy.S.EmptySet:
        return []
    if isinstance(found, ImageSet) and found.base_sets == (sympy.S.Integers,):
        return [found.lamda(parameter)]
    if isinstance(found, Union):
        parts = [_values(part, parameter) for part in found.args]
        return None if None in parts else [value for part in parts for value in part or ()]
    return None


def _order(value: Value) -> tuple[bool, float, float, str]:
    if value.free_symbols:
        return (False, 0.0, 0.0, written(value))
    number = complex(sympy.N(value))
    return (abs(number.imag) > _NEGLIGIBLE, number.real, number.imag, written(value))


def _solution(value: Value) -> Solution:
    if value.free_symbols:
        return Solution(written(value), None)
    return Solution(written(value), approximated(value))


def _numeric(difference: Value, variable: Value) -> Solutions | None:
    if difference.free_symbols - {variable}:
        return None
    found: dict[str, Value] = {}
    for start in _STARTS:
        try:
            value = sympy.nsolve(difference, variable, start)
        except (ValueError, ZeroDivisionError, TypeError, NotImplementedError):
            continue
        if value.is_real:
            found.setdefault(approximated(value, _DIGITS_COMPARED), value)
    if not found:
        return None
    values = sorted(found.values())
    texts = [approximated(value) for value in values]
    return Solutions(
        tuple(Solution(text, text, is_numeric=True) for text in texts), is_complete=False
    )
