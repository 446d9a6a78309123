"""Calendar dates: the days between two, a date some time later or earlier, and weekdays.

The calendar is the Gregorian one for all years, 1 to 9999. No times of day, so no time zones.
"""

import calendar
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Literal, TypeAlias

from trunkline.errors import InvalidArgumentError

TimeUnit: TypeAlias = Literal["day", "week", "month", "year"]
MAX_AMOUNT: Final = 4_000_000
"""More days than all years have."""
_WEEK: Final = 7
_YEAR_MONTHS: Final = 12
_FEBRUARY: Final = 2
_RELATIVE: Final = {"yesterday": -1, "today": 0, "now": 0, "tomorrow": 1}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
# A date without its year, in ISO 8601.
_DAY_OF_A_YEAR = re.compile(r"--(?=\d{1,2}-\d)")
_PERIOD = re.compile(r"(?:([a-z]+) )?(\d{4})(?:-(\d{1,2}))?")
_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}


@dataclass(frozen=True, slots=True)
class DaySpan:
    """The days from one date to another one, negative if the other one is earlier."""

    start: date
    end: date

    @property
    def days(self) -> int:
        """The number of days."""
        return (self.end - self.start).days

    def describe(self, unit: Literal["day", "week"]) -> str:
        """Return the span in words: "75 days", "10 weeks and 5 days"."""
        days = abs(self.days)
        parts = [_count(days, "day")]
        if unit == "week":
            weeks, rest = divmod(days, _WEEK)
            parts = [_count(weeks, "week"), *([_count(rest, "day")] if rest else [])]
        text = " and ".join(parts)
        return text if self.days >= 0 else f"{text}, from {self.end} to {self.start}"


def parse_span(start: str, end: str, *, today: date) -> DaySpan:
    """Return the days between two dates as `parse_date` reads them.

    The end is after the start if one of them has no year.

    Raises:
        InvalidArgumentError: one of them is no date.
    """
    span = DaySpan(parse_date("start", start, today=today), parse_date("end", end, today=today))
    if span.days < 0 and _lacks_year(end):
        return DaySpan(span.start, _parse_in_year("end", end, span.end.year + 1))
    if span.days < 0 and _lacks_year(start):
        return DaySpan(_parse_in_year("start", start, span.start.year - 1), span.end)
    return span


def parse_date(field: str, text: str, *, today: date) -> date:
    """Read YYYY-MM-DD, --MM-DD for a day of this year, `today`, `tomorrow` or `yesterday`.

    Raises:
        InvalidArgumentError: it is none of them, or there is no such day.
    """
    if _lacks_year(text):
        return _parse_in_year(field, text, today.year)
    word = text.strip().lower()
    if word in _RELATIVE:
        return today + timedelta(days=_RELATIVE[word])
    if parts := _DATE.fullmatch(word):
        year, month, day = map(int, parts.groups())
        try:
            return date(year, month, day)
        except ValueError:
            raise InvalidArgumentError(field, f"There is no day {word}.") from None
    raise InvalidArgumentError(field, f"{word[:40]!r} is not a date: take one such as 2026-03-01.")


def _lacks_year(text: str) -> bool:
    return _DAY_OF_A_YEAR.match(text.strip()) is not None


def _parse_in_year(field: str, text: str, year: int) -> date:
    dated = _DAY_OF_A_YEAR.sub(f"{year:04}-", text.strip())
    return parse_date(field, dated, today=date.min)


def find_period(field: str, text: str, *, today: date) -> DaySpan:
    """Return the days of a month, YYYY-MM or its name and the year, or of a year.

    A month without a year is one of this year.

    Raises:
        InvalidArgumentError: it is neither, or there is no such month.
    """
    period = text.strip().lower()
    parts = _PERIOD.fullmatch(f"{period} {today.year}" if period in _MONTHS else period)
    name, year, number = parts.groups() if parts else (None, "0", None)
    month = _MONTHS.get(name, 0) if name else int(number or 1)
    if not int(year) or not 1 <= month <= _YEAR_MONTHS or (name and number):
        raise InvalidArgumentError(
            field, f"{text[:40]!r} is not a month or a year: take one such as 2026-03 or 2026."
        )
    start = date(int(year), month, 1)
    return DaySpan(start, move_date(start, 1, "month" if name or number else "year"))


def move_date(start: date, amount: int, unit: TimeUnit) -> date:
    """Return the date that is some time later, or earlier if the amount is negative.

    A month or a year after a day that the other month lacks is that month's last day.

    Raises:
        InvalidArgumentError: the result is before the year 1 or after the year 9999.
    """
    try:
        if abs(amount) > MAX_AMOUNT:
            raise OverflowError
        if unit in {"day", "week"}:
            return start + timedelta(days=amount * (_WEEK if unit == "week" else 1))
        months = amount * (_YEAR_MONTHS if unit == "year" else 1)
        year, month = divmod(start.year * _YEAR_MONTHS + start.month - 1 + months, _YEAR_MONTHS)
        if not date.min.year <= year <= date.max.year:
            raise OverflowError
        last = calendar.monthrange(year, month + 1)[1]
        return date(year, month + 1, min(start.day, last))
    except OverflowError:
        raise InvalidArgumentError("amount", "The result is outside the years 1 to 9999.") from None


@dataclass(frozen=True, slots=True)
class DateCheck:
    """A date or a day of a year that may not exist, and the fact that decides it."""

    exists: bool
    fact: str


def check_date(field: str, text: str) -> DateCheck:
    """Return whether YYYY-MM-DD, or --MM-DD in any year, is a day of the calendar.

    Raises:
        InvalidArgumentError: it is neither.
    """
    # With a leap year, which has all days that any year has.
    dated = _DAY_OF_A_YEAR.sub("2000-", text.strip())
    parts = _DATE.fullmatch(dated)
    if parts is None or not int(parts[1]):
        raise InvalidArgumentError(
            field, f"{text[:40]!r} is not a date: take one such as 2026-03-01."
        )
    year, month, day = map(int, parts.groups())
    if not 1 <= month <= _YEAR_MONTHS:
        return DateCheck(exists=False, fact=f"A year has {_YEAR_MONTHS} months")
    last = calendar.monthrange(year, month)[1]
    exists = 1 <= day <= last
    name = calendar.month_name[month]
    if not _lacks_year(text):
        found = write_date(date(year, month, day)) if exists else f"{name} {year} has {last} days"
        return DateCheck(exists, found)
    in_years = " in a leap year" if month == _FEBRUARY else ""
    return DateCheck(exists, f"{name} has {last} days{in_years}")


def find_weekday(day: date) -> str:
    """Return the name of the day of the week."""
    return calendar.day_name[day.weekday()]


def write_date(day: date) -> str:
    """Return a date in words: "Sunday, 4 July 1976"."""
    return f"{find_weekday(day)}, {day.day} {calendar.month_name[day.month]} {day.year}"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
