"""Units: exact conversion, names, and questions that are not about units."""

from fractions import Fraction

import pytest

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.units import convert


@pytest.mark.parametrize(
    ("amount", "source", "target", "expected"),
    [
        ("3.5", "hours", "minutes", "3.5 hours = 210 minutes"),
        ("1", "day", "seconds", "1 day = 86400 seconds"),
        ("5", "km", "Meters", "5 kilometres = 5000 metres"),
        ("1", "mile", "feet", "1 mile = 5280 feet"),
        ("100", "Celsius", "fahrenheit", "100 degrees Celsius = 212 degrees Fahrenheit"),
        ("-40", "degrees fahrenheit", "celsius", "-40 degrees Fahrenheit = -40 degrees Celsius"),
        ("1", "year", "months", "1 year = 12 months"),
        ("1", "year", "days", "1 year = 365 days"),
        ("1", "leap year", "days", "1 leap year = 366 days"),
        ("2", "leap years", "months", "2 leap years = 24 months"),
        ("10", "pounds", "kg", "10 pounds ≈ 4.53592 kilograms"),
        ("90", "km/h", "meters per second", "90 kilometres per hour = 25 metres per second"),
    ],
)
def test_an_amount_is_converted(amount: str, source: str, target: str, expected: str) -> None:
    assert convert([(Fraction(amount), source)], target).describe() == expected


def test_an_amount_in_two_units_is_converted_as_one() -> None:
    height = [(Fraction(5), "feet"), (Fraction(11), "inches")]

    assert convert(height, "cm").describe() == "5 feet 11 inches = 180.34 centimetres"


@pytest.mark.parametrize(
    ("amount", "source", "target", "rest", "expected"),
    [
        ("135", "minutes", "hours", "minutes", "135 minutes = 2 hours 15 minutes"),
        ("180", "cm", "feet", "inches", "180 centimetres ≈ 5 feet 10.8661 inches"),
        ("60", "minutes", "hours", "minutes", "60 minutes = 1 hour 0 minutes"),
    ],
)
def test_an_amount_is_written_in_two_units(
    amount: str, source: str, target: str, rest: str, expected: str
) -> None:
    assert convert([(Fraction(amount), source)], target, rest_unit=rest).describe() == expected


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ("km", "kg", "do not measure the same thing"),
        ("parsecs", "km", "'parsecs' is not a known unit"),
        ("months", "days", "do not measure the same thing"),
    ],
)
def test_what_cannot_be_converted_is_refused(source: str, target: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        convert([(Fraction(1), source)], target)
