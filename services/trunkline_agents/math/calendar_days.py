"""Days that a calendar shows: the second Monday of a month, working days, week numbers, ages."""

import calendar
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.dates import DaySpan, find_weekday, move_date, write_date

_WEEK: Final = 7
_MAX_YEAR: Final = 9999
_FRIDAY: Final = 4
_ORDINALS: Final = {
    **{"first": 0, "1st": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2},
    **{"fourth": 3, "4th": 3, "fifth": 4, "5th": 4, "last": -1},
}
_WEEKDAYS: Final = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_WORKING: Final = re.compile(r"(?:weekdays?|work(?:ing)?\s?days?|business\sdays?)")
_WEEKEND: Final = re.compile(r"weekend\sdays?")


def parse_weekday(field: str, text: str) -> int:
    """Return the number of a day of the week, Monday is 0.

    Raises:
        InvalidArgumentError: it is none.
    """
    word = text.strip().lower().removesuffix("s")
    if word not in _WEEKDAYS:
        raise InvalidArgumentError(field, f"{text[:40]!r} is not a day of the week.")
    return _WEEKDAYS[word]


def find_nth_weekday(month: DaySpan, weekday: int, order: str) -> date:
    """Return the first, second or last such day of the week of a month.

    Raises:
        InvalidArgumentError: the month has no such day, or the order is none.
    """
    days = [day for day in _list_days(month) if day.weekday() == weekday]
    index = _ORDINALS.get(order.strip().lower())
    if index is None:
        raise InvalidArgumentError("order", f"{order[:40]!r} is not an order such as second.")
    if index >= len(days):
        raise InvalidArgumentError(
            "order", f"The month has only {len(days)} {calendar.day_name[weekday]}s."
        )
    return days[index]


@dataclass(frozen=True, slots=True)
class NearDay:
    """A day of the week near today, and the one that others mean by the same words."""

    day: date
    other: date | None
    meaning: str

    def describe(self) -> str:
        """Return the day, and the other one if there is one."""
        text = write_date(self.day)
        return f"{text}, or {write_date(self.other)} if {self.meaning}" if self.other else text


def find_near_day(today: date, weekday: int, order: str, weeks: int = 0) -> NearDay:
    """Return next Friday, last Friday or this Friday, and the other day that the words may mean.

    `weeks` are added: to this week for "Monday in two weeks", which may also be counted from the
    next Monday, and to the next Monday for "a week from Monday".
    """
    word = order.strip().lower()
    monday = today - timedelta(days=today.weekday())
    coming = today + timedelta(days=(weekday - today.weekday() - 1) % _WEEK + 1)
    latest = today - timedelta(days=(today.weekday() - weekday - 1) % _WEEK + 1)
    later = timedelta(days=weeks * _WEEK)
    if word == "last":
        other = monday + timedelta(days=weekday - _WEEK)
        return NearDay(latest, None if other == latest else other, "that of last week is meant")
    if word == "next":
        other = monday + timedelta(days=weekday + _WEEK)
        return NearDay(coming, None if other == coming else other, "that of next week is meant")
    if word == "this":
        day = monday + timedelta(days=weekday) + later
        counted = coming + later if weeks and coming + later != day else None
        return NearDay(day, counted, f"it is counted from the next {calendar.day_name[weekday]}")
    return NearDay(coming + later, None, "")


def count_named_days(start: date, end: date, kind: str) -> int:
    """Return how many working days, weekend days or Mondays there are, with both dates.

    Raises:
        InvalidArgumentError: the kind of days is none of them.
    """
    words = " ".join(kind.lower().split())
    if _WORKING.fullmatch(words):
        wanted = set(range(_FRIDAY + 1))
    elif _WEEKEND.fullmatch(words):
        wanted = {_FRIDAY + 1, _FRIDAY + 2}
    else:
        wanted = {parse_weekday("kind", words)}
    whole, rest = divmod((end - start).days + 1, _WEEK)
    return whole * len(wanted) + sum(
        (start.weekday() + offset) % _WEEK in wanted for offset in range(rest)
    )


def describe_week(day: date) -> str:
    """Return the week of a day by ISO 8601, with its Monday and Sunday."""
    year, week, weekday = day.isocalendar()
    monday = day - timedelta(days=weekday - 1)
    sunday = monday + timedelta(days=_WEEK - 1)
    return f"week {week} of {year}, from {write_date(monday)} to {write_date(sunday)} (by ISO 8601)"


@dataclass(frozen=True, slots=True)
class Age:
    """Whole years, months and days from one date to a later one."""

    years: int
    months: int
    days: int

    def describe(self) -> str:
        """Return the age in words, without parts that are zero."""
        parts = [
            f"{number} {unit}{'' if number == 1 else 's'}"
            for number, unit in ((self.years, "year"), (self.months, "month"), (self.days, "day"))
            if number
        ]
        *first, last = parts or ["0 days"]
        return f"{', '.join(first)} and {last}" if first else last


def measure_age(start: date, end: date) -> Age:
    """Return the whole years, months and days from a date to a later one.

    Raises:
        InvalidArgumentError: the end is before the start.
    """
    if end < start:
        raise InvalidArgumentError("end", f"{end} is before {start}.")
    months = (end.year - start.year) * 12 + end.month - start.month
    if move_date(start, months, "month") > end:
        months -= 1
    rest = (end - move_date(start, months, "month")).days
    return Age(months // 12, months % 12, rest)


def find_leap_year(year: int, order: str) -> int:
    """Return the next leap year after a year, or the last one before it.

    Raises:
        InvalidArgumentError: it is outside the years 1 to 9999.
    """
    step = -1 if order == "last" else 1
    found = year + step
    while not calendar.isleap(found):
        found += step
    if not 1 <= found <= _MAX_YEAR:
        raise InvalidArgumentError("year", "The result is outside the years 1 to 9999.")
    return found


def name_weekday(day: date) -> str:
    """Return a date as "Tue, 1 December 2026", for a span of dates."""
    return f"{find_weekday(day)[:3]}, {write_date(day).partition(', ')[2]}"


def _list_days(span: DaySpan) -> list[date]:
    return [span.start + timedelta(days=number) for number in range(span.days)]
