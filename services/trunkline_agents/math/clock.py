"""Times of day: reading them as people write them, moving them, and the time between two.

There is no date and no time zone: a time that is past midnight says so.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from trunkline.errors import InvalidArgumentError

DAY_MINUTES: Final = 24 * 60
_HOUR: Final = 60
_NOON: Final = 12
MAX_MINUTES: Final = 366 * DAY_MINUTES
_NAMED: Final = {"noon": 720, "midday": 720, "midnight": 0}
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?:[:.h](?P<minute>\d{2}))?\s?(?P<half>[ap]\.?m\.?)?(?:\s?o'?clock)?"
    r"(?:\s?(?P<part>in the morning|in the afternoon|in the evening|at night))?",
    re.IGNORECASE,
)
_SPOKEN = re.compile(
    r"(?P<minutes>half|(?:a )?quarter|\(?1/[24]\)?|\d{1,2}(?: minutes)?) (?P<side>past|to) "
    r"(?P<hour>\d{1,2})(?: ?(?P<half>[ap]\.?m\.?))?",
    re.IGNORECASE,
)
_DURATION_PART = re.compile(
    r"(?P<amount>\(?\d+/\d+\)?|\d+(?:\.\d+)?|an?)[\s-]?(?:of\san\s)?"
    r"(?P<unit>h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?)(?![a-z])\.?",
    re.IGNORECASE,
)
# The 30 of 2h30.
_REST_MINUTES = re.compile(r"\s*(?:and\s)?(?P<minutes>\d{1,2})\s*")
_JOINT = re.compile(r"(?:\s|,|and\b)*")


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of day in minutes after midnight, and whether it is written with am and pm."""

    minutes: int
    has_halves: bool = False
    is_vague: bool = False
    """True if it could also be one of the other half of the day: "7" of "from 7 to 11 pm"."""

    def describe(self) -> str:
        """Return the time as it was written: "15:50" or "3:50 pm"."""
        return write_clock(self.minutes, has_halves=self.has_halves)


def write_clock(minutes: int, *, has_halves: bool) -> str:
    """Return a time of day, of 24 hours or with am and pm."""
    hour, minute = divmod(minutes % DAY_MINUTES, _HOUR)
    if not has_halves:
        return f"{hour:02}:{minute:02}"
    if not minute and not hour % _NOON:
        return "noon" if hour else "midnight"
    half = "am" if hour < _NOON else "pm"
    return f"{(hour - 1) % _NOON + 1}:{minute:02} {half}"


def parse_clock(field: str, text: str) -> ClockTime:
    """Read a time of day: 9:15, 9 am, 17.30, noon, half past 9, a quarter to 5 pm.

    Raises:
        InvalidArgumentError: it is none.
    """
    words = " ".join(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
    if words in _NAMED:
        return ClockTime(_NAMED[words])
    if spoken := _SPOKEN.fullmatch(words):
        return _read_spoken(field, spoken)
    clock = _CLOCK.fullmatch(words)
    if clock is None:
        raise _refuse(field, text)
    minutes = _read_minutes(field, int(clock["hour"]), int(clock["minute"] or 0), clock["half"])
    is_late = clock["part"] in {"in the afternoon", "in the evening", "at night"}
    if is_late and _HOUR <= minutes < DAY_MINUTES // 2:
        minutes += DAY_MINUTES // 2
    is_vague = not (clock["half"] or clock["minute"] or clock["part"])
    return ClockTime(minutes, clock["half"] is not None, is_vague)


def _read_spoken(field: str, spoken: re.Match[str]) -> ClockTime:
    """Return "half past 9" as 9:30."""
    said = spoken["minutes"].strip("()").removeprefix("a ").removesuffix(" minutes")
    named = {"half": 30, "1/2": 30, "quarter": 15, "1/4": 15}
    moved = named[said] if said in named else int(said)
    hour = _read_minutes(field, int(spoken["hour"]), 0, spoken["half"])
    minutes = hour + moved if spoken["side"] == "past" else hour - moved
    return ClockTime(minutes % DAY_MINUTES, spoken["half"] is not None)


def _read_minutes(field: str, hour: int, minute: int, half: str | None) -> int:
    if half and not 1 <= hour <= _NOON:
        raise InvalidArgumentError(field, f"There is no time {hour} {half}.")
    if half:
        hour = hour % _NOON + (_NOON if half[0] == "p" else 0)
    if hour > DAY_MINUTES // _HOUR or minute >= _HOUR:
        raise InvalidArgumentError(field, f"There is no time {hour}:{minute:02}.")
    return (hour * _HOUR + minute) % DAY_MINUTES


def parse_duration(field: str, text: str) -> int:
    """Read a time span of whole minutes: 90 minutes, 2 hours 35 minutes, 2h30, half an hour.

    Raises:
        InvalidArgumentError: it is none, or longer than a year.
    """
    words = text.lower().replace("half an", "1/2").replace("quarter of an", "1/4")
    words = words.replace("a 1/4", "1/4")
    total = Fraction(0)
    rest = _DURATION_PART.sub("", words)
    for part in _DURATION_PART.finditer(words):
        amount = part["amount"].strip("()")
        size = Fraction(1) if amount in {"a", "an"} else Fraction(amount)
        total += size * (_HOUR if part["unit"][0] == "h" else 1)
    if minutes := _REST_MINUTES.fullmatch(rest):
        total += int(minutes["minutes"])
    elif not _JOINT.fullmatch(rest):
        total = Fraction(0)
    if not 0 < total <= MAX_MINUTES or total.denominator != 1:
        raise InvalidArgumentError(
            field,
            f"{text[:40]!r} is no time of whole minutes: take one such as 2 hours 30 minutes.",
        )
    return int(total)


def _refuse(field: str, text: str) -> InvalidArgumentError:
    problem = f"{text[:40]!r} is not a time of day: take one such as 9:15 or 5:30 pm."
    return InvalidArgumentError(field, problem)


def measure_span(start: ClockTime, end: ClockTime) -> tuple[int, int]:
    """Return the start and the end in minutes, the end after the start, if need be on the next day.

    A start without am or pm takes that of the end: from 7 to 11 pm is four hours.
    """
    begin, stop = start.minutes, end.minutes
    half_day = DAY_MINUTES // 2
    if start.is_vague and end.has_halves and begin < half_day <= stop and begin + half_day < stop:
        begin += half_day
    # From 9 to 5 is until the afternoon.
    if end.is_vague and stop <= begin and stop + half_day > begin and stop < half_day:
        stop += half_day
    return begin, stop if stop > begin else stop + DAY_MINUTES


def write_duration(minutes: int, *, unit: str = "") -> str:
    """Return a time span in hours and minutes, or in minutes or hours alone if that is the unit."""
    if unit.startswith("minute") or minutes < _HOUR:
        return _count(minutes, "minute")
    hours, rest = divmod(minutes, _HOUR)
    parts = [_count(hours, "hour"), *([_count(rest, "minute")] if rest else [])]
    text = " and ".join(parts)
    # Hours as a decimal are what people multiply with a wage.
    if unit.startswith("hour") and rest and (rest * 100) % _HOUR == 0:
        return f"{text} ({float(Fraction(minutes, _HOUR)):g} hours)"
    return text


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
