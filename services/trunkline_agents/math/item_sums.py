"""Totals of priced things, prices of other amounts, and speeds, times and distances.

The parts of a sentence arrive as texts, so that their units and counts are checked here: a sum of
things that don't fit together is refused.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import units
from trunkline_agents.math.amount_rendering import (
    is_rounded,
    write_amount,
    write_money,
    write_rounded,
)
from trunkline_agents.math.clock import parse_duration, write_duration

MAX_ITEMS: Final = 50
_MINUTES: Final = 60
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?|(?<![\w.])\.\d+")
_SEPARATOR = re.compile(
    r",\s+(?:and\s+|plus\s+)?|;\s*|\s+(?:and|plus|&)\s+|\s*\+\s*", re.IGNORECASE
)
_EACH = re.compile(
    r"\b(?:each|apiece|a\spiece|(?:per|an?)\s[a-z]+\W*$)|\bat\b|@|\u00e0", re.IGNORECASE
)
# Words behind a number that are no name of a thing.
_NO_THINGS: Final = frozenset(
    (
        "",
        "of",
        "cost",
        "costs",
        "such",
        "do",
        "be",
        "then",
        "the",
        "more",
        "it",
        "them",
        "in",
        "for",
    )
)
_IRREGULAR: Final = {"people": "person", "loaves": "loaf", "children": "child"}


@dataclass(frozen=True, slots=True)
class ItemSum:
    """A total, and the sum that makes it."""

    total: Fraction
    formula: str

    def describe(self) -> str:
        """Return the sum and its total: "3*2.80 + 4.50 = 12.90"."""
        return f"{self.formula} = {write_money(self.total, self.formula)}"


def add_items(text: str) -> ItemSum:
    """Add amounts and priced things: "12, 30 and 8 euros", "3 coffees at 2.80 and a cake at 4.50".

    Raises:
        InvalidArgumentError: a part has no price, or it is open whether its price is that of one.
    """
    # A search for separators in a run of blanks takes the square of its length.
    pieces = [piece for piece in _SEPARATOR.split(" ".join(text.split())) if piece.strip()]
    if not 1 < len(pieces) <= MAX_ITEMS:
        raise InvalidArgumentError("items", f"Name 2 to {MAX_ITEMS} amounts.")
    terms = [_read_item(piece) for piece in pieces]
    return ItemSum(
        sum((count * price for count, price, _ in terms), Fraction(0)),
        " + ".join(written for _, _, written in terms),
    )


def _read_item(piece: str) -> tuple[Fraction, Fraction, str]:
    numbers = [number[0].replace(",", "") for number in _NUMBER.finditer(piece)]
    if len(numbers) == 1:
        return Fraction(1), Fraction(numbers[0]), numbers[0]
    if len(numbers) != 2:
        raise InvalidArgumentError(
            "items", f"{piece.strip()[:60]!r} is not a thing with its price."
        )
    count, price = numbers
    if Fraction(count) != 1 and not _EACH.search(piece):
        raise InvalidArgumentError(
            "items",
            f'Is {price} the price of one, or of all {count}? Say "{count} … at {price} each",'
            f" or the price alone.",
        )
    return Fraction(count), Fraction(price), f"{count}*{price}"


def scale_price(amount: str, unit: str, price: str, other_amount: str, other_unit: str) -> Fraction:
    """Return the price of another amount of the same thing: of 10 eggs, if 6 cost 2.40.

    Raises:
        InvalidArgumentError: the units measure different things, or the things differ.
    """
    first, other = _parse_amount("amount", amount), _parse_amount("other_amount", other_amount)
    if not first:
        raise InvalidArgumentError("amount", "The price of nothing has no price for one.")
    return _parse_amount("price", price) / first * other * _find_factor(unit, other_unit)


def _find_factor(unit: str, other_unit: str) -> Fraction:
    """Return how many of a unit are in another one; 1 for two names of one thing."""
    first, other = unit.strip().lower(), other_unit.strip().lower()
    if other in _NO_THINGS or _find_stem(first) == _find_stem(other):
        return Fraction(1)
    try:
        return units.convert([(Fraction(1), other)], first).value
    except InvalidArgumentError:
        problem = f"{unit[:40]!r} and {other_unit[:40]!r} are not the same thing."
        raise InvalidArgumentError("other_unit", problem) from None


def _find_stem(word: str) -> str:
    word = _IRREGULAR.get(word, word)
    return (
        word.removesuffix("es")
        if word.endswith(("ches", "shes", "xes", "toes"))
        else word.removesuffix("s")
    )


def _parse_amount(field: str, text: str) -> Fraction:
    numbers = _NUMBER.findall(text)
    if len(numbers) != 1:
        raise InvalidArgumentError(field, f"{text[:40]!r} is not one number.")
    return Fraction(numbers[0].replace(",", ""))


@dataclass(frozen=True, slots=True)
class Travel:
    """The distance, speed or time that follows from the other two."""

    value: Fraction
    text: str


def find_speed(distance: str, duration: str) -> Travel:
    """Return the average speed over a distance, in its unit per hour.

    Raises:
        InvalidArgumentError: one of them can't be read.
    """
    length, unit = _read_distance(distance)
    speed = length / Fraction(parse_duration("duration", duration), _MINUTES)
    return Travel(
        speed,
        f"{write_amount(speed)} {unit}/h"
        if unit == "km"
        else f"{write_amount(speed)} {unit} per hour",
    )


def find_travel_time(distance: str, speed: str) -> Travel:
    """Return the time for a distance at a speed, in hours.

    Raises:
        InvalidArgumentError: one of them can't be read, or their units differ.
    """
    length, unit = _read_distance(distance)
    pace, pace_unit = _read_distance(speed)
    if not pace:
        raise InvalidArgumentError("speed", "At no speed, nothing arrives.")
    hours = length * _find_factor(pace_unit, unit) / pace
    minutes = hours * _MINUTES
    spoken = write_duration(round(minutes))
    about = "" if minutes.denominator == 1 else "about "
    if hours.denominator == 1 or hours < 1:
        return Travel(hours, f"{about}{spoken}")
    exact = f"≈ {write_rounded(hours)}" if is_rounded(hours) else write_amount(hours)
    return Travel(hours, f"{exact} hours ({about}{spoken})")


def find_distance(speed: str, duration: str) -> Travel:
    """Return the distance that a speed covers in a time.

    Raises:
        InvalidArgumentError: one of them can't be read.
    """
    pace, unit = _read_distance(speed)
    length = pace * Fraction(parse_duration("duration", duration), _MINUTES)
    return Travel(length, f"{write_amount(length)} {unit}")


def _read_distance(text: str) -> tuple[Fraction, str]:
    """Return the number and the unit of a distance or of a speed per hour: km, miles or metres."""
    number = _parse_amount("distance", text)
    words = text.lower()
    if "mph" in words or "mile" in words:
        return number, "miles"
    is_short = re.search(r"\d\s?(?:m|met(?:re|er)s?)\b", words) is not None
    return number, "metres" if is_short else "km"
