"""Writes the results of everyday sums: decimals, rounded to two places if they don't end."""

import re
from fractions import Fraction
from typing import Final

_PLACES: Final = 4
_ROUNDED: Final = 2


def write_amount(value: Fraction) -> str:
    """Return a number as decimals: "31.17" behind a sign if it is rounded, "57.6" if it is not."""
    for places in range(_PLACES + 1):
        if (value * 10**places).denominator == 1:
            return write_places(value, places)
    return f"≈ {write_rounded(value)}"


def write_rounded(value: Fraction) -> str:
    """Return a number with two decimal places; a smaller one with two significant digits."""
    if value and abs(value) < Fraction(1, 10):
        return f"{float(value):.2g}"
    return write_places(value, _ROUNDED)


def write_places(value: Fraction, places: int) -> str:
    """Return a number with so many decimal places; halves are rounded away from zero."""
    scaled = abs(value) * 10**places
    digits = f"{int(scaled + Fraction(1, 2)):0{places + 1}d}"
    whole, decimals = (digits[:-places], digits[-places:]) if places else (digits, "")
    sign = "-" if value < 0 and int(digits) else ""
    return f"{sign}{whole}{'.' if places else ''}{decimals}"


def is_rounded(value: Fraction) -> bool:
    """Return whether `write_amount` rounds a number."""
    return (value * 10**_PLACES).denominator != 1


def write_money(value: Fraction, formula: str) -> str:
    """Return a total with cents if a price has cents."""
    has_cents = re.search(r"\.\d\d(?!\d)", formula) is not None
    is_exact = (value * 100).denominator == 1
    return write_places(value, 2) if has_cents and is_exact else write_amount(value)
