"""Solves equations: exactly if SymPy can, otherwise numerically and perhaps incompletely."""

from dataclasses import dataclass

import sympy
from sympy.sets import FiniteSet, ImageSet, Union

from trunkline_agents.math.parser import reject
from trunkline_agents.math.sympy_conversion import (
    DEFAULT_DIGITS,
    SympyValue,
    render_decimals,
    render_exact,
)

MAX_DEGREE = 100

_STARTS = (0, 1, -1, 2, -2, 5, -5, 10, -10)
_DIGITS_COMPARED = 10
_NEGLIGIBLE = 1e-12
_MAX_SHOWN_CHARS = 40


@dataclass(frozen=True)
class Root:
    """One solution, or a family of solutions if `exact` contains an integer parameter."""

    exact: str
    approximation: str | None
    is_numeric: bool = False

    def render(self, variable: str) -> str:
        """Return `x = 2`, or `x ≈ 0.739085133215161` if there is no short exact form."""
        is_long = self.approximation is not None and len(self.exact) > _MAX_SHOWN_CHARS
        if self.is_numeric or is_long:
            return f"{variable} ≈ {self.approximation}"
        return f"{variable} = {self.exact}"


@dataclass(frozen=True)
class RootSet:
    """The solutions of an equation.

    `parameter` is the letter that stands for every integer, if a family needs one.
    """

    roots: tuple[Root, ...]
    is_complete: bool = True
    is_identity: bool = False
    parameter: str | None = None


def solve_equation(difference: SympyValue, variable: SympyValue) -> RootSet | None:
    """Solve `difference = 0`: over the complex numbers if it is rational, else over the real ones.

    Return None if there may be solutions but no solution was found.

    Raises:
        InvalidArgumentError: the degree is over MAX_DEGREE.
    """
    if difference.is_rational_function(variable):
        return _solve_rational(difference, variable)
    try:
        exact = sympy.solveset(difference, variable, sympy.S.Reals)
    except (NotImplementedError, ValueError):
        exact = None
    if exact == sympy.S.Reals:
        return RootSet((), is_identity=True)
    parameter = sympy.Symbol("n" if variable.name != "n" else "k", integer=True)
    values = _list_members(exact, parameter)
    if values is None:
        return _solve_numerically(difference, variable)
    is_family = any(parameter in value.free_symbols for value in values)
    return RootSet(_sort_roots(values), parameter=parameter.name if is_family else None)


def _solve_rational(difference: SympyValue, variable: SympyValue) -> RootSet:
    """Return the roots of the numerator that are not roots of the denominator."""
    _check_degree(difference, variable)
    above, below = sympy.fraction(sympy.together(difference))
    polynomial = sympy.Poly(above, variable)
    if polynomial.is_zero:
        return RootSet((), is_identity=True)
    multiplicities = sympy.roots(polynomial)
    if sum(multiplicities.values()) == polynomial.degree():
        roots = [root for root in multiplicities if sympy.simplify(below.subs(variable, root)) != 0]
        return RootSet(_sort_roots(roots))
    if polynomial.free_symbols_in_domain:
        reject("There is no general formula for this equation. Put numbers for some letters.")
    # Above degree four there is no general formula, but all roots are known numerically.
    texts = [render_decimals(root) for root in polynomial.nroots(n=DEFAULT_DIGITS, maxsteps=200)]
    return RootSet(tuple(Root(text, text, is_numeric=True) for text in texts))


def _check_degree(difference: SympyValue, variable: SympyValue) -> None:
    for power in difference.atoms(sympy.Pow):
        exponent = power.exp
        if power.has(variable) and exponent.is_number and abs(exponent) > MAX_DEGREE:
            reject(f"The degree is too high: at most {MAX_DEGREE} is allowed.")


def _sort_roots(values: list[SympyValue]) -> tuple[Root, ...]:
    return tuple(map(_build_root, sorted(values, key=_sort_key)))


def _list_members(solutions: SympyValue, parameter: SympyValue) -> list[SympyValue] | None:
    """Return the members of a set as expressions, or None if the set can't be listed."""
    if isinstance(solutions, FiniteSet):
        return list(solutions)
    if solutions is sympy.S.EmptySet:
        return []
    if isinstance(solutions, ImageSet) and solutions.base_sets == (sympy.S.Integers,):
        return [solutions.lamda(parameter)]
    if isinstance(solutions, Union):
        parts = [_list_members(part, parameter) for part in solutions.args]
        return None if None in parts else [value for part in parts for value in part or ()]
    return None


def _sort_key(value: SympyValue) -> tuple[bool, float, float, str]:
    if value.free_symbols:
        return (False, 0.0, 0.0, render_exact(value))
    number = complex(sympy.N(value))
    return (abs(number.imag) > _NEGLIGIBLE, number.real, number.imag, render_exact(value))


def _build_root(value: SympyValue) -> Root:
    if value.free_symbols:
        return Root(render_exact(value), None)
    return Root(render_exact(value), render_decimals(value))


def _solve_numerically(difference: SympyValue, variable: SympyValue) -> RootSet | None:
    if difference.free_symbols - {variable}:
        return None
    roots: dict[str, SympyValue] = {}
    for start in _STARTS:
        try:
            value = sympy.nsolve(difference, variable, start)
        except (ValueError, ArithmeticError, TypeError, NotImplementedError):
            continue
        if value.is_real:
            roots.setdefault(render_decimals(value, _DIGITS_COMPARED), value)
    if not roots:
        return None
    values = sorted(roots.values())
    texts = [render_decimals(value) for value in values]
    return RootSet(tuple(Root(text, text, is_numeric=True) for text in texts), is_complete=False)
