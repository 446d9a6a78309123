"""Units of measurement, and exact conversion between them.

Ambiguous names have their most common meaning: gallons, pints and cups are those of the United
States, a year has 365 days, and prefixes of bytes are decimal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from trunkline.errors import InvalidArgumentError

_DIGITS: Final = 6
# Names of each unit, the first one for answers, and its size in the first unit of its kind.
_SIZES: Final[Mapping[str, str]] = {
    "length": (
        "metre meter m:1 kilometre kilometer km:1000 centimetre centimeter cm:0.01 "
        "millimetre millimeter mm:0.001 mile mi:1609.344 yard yd:0.9144 foot feet ft:0.3048 "
        "inch inches:0.0254 nautical_mile:1852"
    ),
    "mass": (
        "gram gramme g:1 kilogram kilo kg:1000 milligram mg:0.001 tonne metric_ton:1000000 "
        "pound lb lbs:453.59237 ounce oz:28.349523125 stone:6350.29318"
    ),
    "time": (
        "second sec:1 minute min:60 hour hr:3600 day:86400 week:604800 fortnight:1209600 "
        "year:31536000 leap_year:31622400 decade:315360000 century centuries:3153600000 "
        "millisecond ms:0.001"
    ),
    "months": "month:1 year:12 leap_year:12 quarter:3 decade:120 century centuries:1200",
    "volume": (
        "litre liter l:1 millilitre milliliter ml:0.001 centilitre centiliter cl:0.01 "
        "decilitre deciliter dl:0.1 gallon gal:3.785411784 quart:0.946352946 pint:0.473176473 "
        "cup:0.2365882365 tablespoon tbsp:0.01478676478125 teaspoon tsp:0.00492892159375 "
        "fluid_ounce:0.0295735295625 cubic_metre cubic_meter:1000"
    ),
    "area": (
        "square_metre square_meter:1 square_kilometre square_kilometer:1000000 hectare:10000 "
        "acre:4046.8564224 square_foot square_feet:0.09290304 square_mile:2589988.110336 "
        "square_centimetre square_centimeter:0.0001"
    ),
    "speed": (
        "metre_per_second meter_per_second metres_per_second meters_per_second m/s:1 "
        "kilometre_per_hour kilometer_per_hour kilometres_per_hour kilometers_per_hour km/h kmh "
        "km_per_hour kph:5/18 mile_per_hour miles_per_hour mph:0.44704 knot:463/900"
    ),
    "data": (
        "byte:1 bit:1/8 kilobyte kb:1000 megabyte mb:1000000 gigabyte gb:1000000000 "
        "terabyte tb:1000000000000 kibibyte kib:1024 mebibyte mib:1048576 gibibyte gib:1073741824"
    ),
    "angle": "degree:1 turn:360",
    "number": "piece:1 pair:2 dozen:12 score:20 gross:144",
}
# The degrees between the freezing point of water and zero, and the size of a degree.
_TEMPERATURES: Final = {
    ("degree Celsius", "celsius", "centigrade", "c"): (Fraction(0), Fraction(1)),
    ("degree Fahrenheit", "fahrenheit", "f"): (Fraction(32), Fraction(5, 9)),
    ("kelvin",): (Fraction("273.15"), Fraction(1)),
}
# The unit of a number that has none, behind an amount: "6 foot 2".
_SMALLER: Final = {
    **{"foot": "inch", "pound": "ounce", "stone": "pound", "hour": "minute", "minute": "second"},
    **{"metre": "centimetre", "kilometre": "metre"},
}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its kind, its name, its zero and its size."""

    kind: str
    name: str
    zero: Fraction
    size: Fraction


@dataclass(frozen=True, slots=True)
class ConvertedAmount:
    """An amount in another unit. `is_exact` is false if `result` is rounded."""

    amount: str
    from_unit: str
    result: str
    to_unit: str
    is_exact: bool
    value: Fraction

    def describe(self) -> str:
        """Return both amounts with their units: "5 feet 11 inches = 180.34 centimetres"."""
        sign = "=" if self.is_exact else "≈"
        return f"{self.amount} {self.from_unit} {sign} {self.result} {self.to_unit}"


def _list_units() -> dict[str, list[Unit]]:
    units: dict[str, list[Unit]] = {}
    for kind, table in _SIZES.items():
        names: list[str] = []
        for word in table.split():
            name, _, size = word.replace("_", " ").partition(":")
            names.append(name)
            if size:
                unit = Unit(kind, names[0], Fraction(0), Fraction(size))
                for each in names:
                    units.setdefault(each, []).append(unit)
                names = []
    for spellings, (zero, degree) in _TEMPERATURES.items():
        unit = Unit("temperature", spellings[0], zero, degree)
        for each in spellings:
            units.setdefault(each.lower(), []).append(unit)
    return units


UNITS: Final = _list_units()
"""The units of each name, in the singular."""


def convert(
    amounts: Sequence[tuple[Fraction, str]], to_unit: str, *, rest_unit: str | None = None
) -> ConvertedAmount:
    """Convert an amount, or the sum of several such as 5 feet and 11 inches.

    With `rest_unit`, the result is a whole number of `to_unit`, and the rest in that unit.

    Raises:
        InvalidArgumentError: a unit is unknown, or the units measure different things.
    """
    names = [unit for _, unit in amounts]
    sources, target = _match_units(names, to_unit)
    if rest_unit is not None:
        (rest,), _ = _match_units([rest_unit], to_unit, kind=target.kind)
    total = sum(
        (
            (amount - unit.zero) * unit.size
            for (amount, _), unit in zip(amounts, sources, strict=True)
        ),
        Fraction(0),
    )
    result = total / target.size + target.zero
    last = amounts[-1][0]
    text, is_exact = _render(result)
    to_name = _inflect(target.name, result)
    if rest_unit is not None:
        whole = Fraction(int(result))
        left = (result - whole) * target.size / rest.size
        rest_text, is_exact = _render(left)
        text = f"{_render(whole)[0]} {_inflect(target.name, whole)} {rest_text}"
        to_name = _inflect(rest.name, left)
    return ConvertedAmount(
        write(amounts).removesuffix(f" {_inflect(sources[-1].name, last)}"),
        _inflect(sources[-1].name, last),
        text,
        to_name,
        is_exact,
        result,
    )


def write(amounts: Sequence[tuple[Fraction, str]]) -> str:
    """Return amounts with the names of their units: "5 feet 11 inches".

    Raises:
        InvalidArgumentError: a unit is unknown.
    """
    return " ".join(
        f"{_render(amount)[0]} {_inflect(_find_units('from_unit', name)[0].name, amount)}"
        for amount, name in amounts
    )


def find_smaller(name: str) -> str:
    """Return the unit of a number behind a unit: the inches of "5 feet 11".

    Raises:
        InvalidArgumentError: the unit is unknown, or no smaller one is usual.
    """
    smaller = _SMALLER.get(_find_units("from_unit", name)[0].name)
    if smaller is None:
        raise InvalidArgumentError("more_unit", f"Name the unit behind {name[:40]!r}.")
    return smaller


def _match_units(
    names: Sequence[str], to_unit: str, *, kind: str | None = None
) -> tuple[list[Unit], Unit]:
    """Return the units of names and of a target that all measure the same thing.

    Raises:
        InvalidArgumentError: a unit is unknown, or they measure different things.
    """
    found = [_find_units("from_unit", name) for name in names]
    for target in _find_units("to_unit", to_unit):
        same = [[unit for unit in group if unit.kind == target.kind] for group in found]
        if all(same) and kind in {None, target.kind}:
            return [group[0] for group in same], target
    other = " and ".join(repr(name[:40]) for name in (*names, to_unit))
    raise InvalidArgumentError("to_unit", f"{other} do not measure the same thing.")


def _find_units(field: str, name: str) -> list[Unit]:
    plain = " ".join(name.lower().replace("degrees", "").replace("degree ", "").split()) or "degree"
    plain = plain.removeprefix("°").strip()
    if plain == "in":
        # No name of a unit in patterns, where it is a word of the question.
        plain = "inch"
    for spelling in (plain, plain.removesuffix("s"), plain.replace("s per", " per")):
        if spelling in UNITS:
            return UNITS[spelling]
    raise InvalidArgumentError(field, f"{name[:40]!r} is not a known unit.")


def _render(value: Fraction) -> tuple[str, bool]:
    """Return a number's decimals, and whether they are exact."""
    for places in range(_DIGITS + 1):
        scaled = value * 10**places
        if scaled.denominator == 1:
            text = f"{abs(scaled.numerator):0{places + 1}d}"
            whole, decimals = text[: len(text) - places], text[len(text) - places :]
            sign = "-" if value < 0 else ""
            return f"{sign}{whole}{'.' if places else ''}{decimals}", True
    return f"{float(value):.{_DIGITS}g}", False


def _inflect(name: str, amount: Fraction) -> str:
    """Return the unit's name in the plural, unless the amount is one."""
    if amount == 1 or name in {"kelvin", "stone"}:
        return name
    head, _, rest = name.partition(" per " if " per " in name else " C" if " C" in name else " F")
    joint = name[len(head) : len(name) - len(rest)]
    plurals = {
        **{"foot": "feet", "inch": "inches", "century": "centuries"},
        **{"dozen": "dozen", "gross": "gross", "score": "score"},
    }
    first, _, last = head.rpartition(" ")
    plural = plurals.get(last, f"{last}s")
    return f"{first} {plural}".strip() + joint + rest
