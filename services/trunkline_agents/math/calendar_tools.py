"""The tools over MCP for what a calendar shows: named days, working days, weeks, ages."""

from collections.abc import Callable
from datetime import date
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import calendar_days, dates
from trunkline_agents.math.date_tools import Day, FoundDate, read_clock
from trunkline_agents.mcp_server import ToolAnswer, call_result

_YEAR_CHARS = 4
Weekday = Annotated[str, Field(description="A day of the week, such as Friday.")]
MonthOrYear = Annotated[
    str, Field(description="A month such as March 2027 or 2027-03, or a year such as 2027.")
]


class CountedNamedDays(TypedDict):
    """The number of such days, both dates included."""

    start: str
    end: str
    days: int


class FoundWeek(TypedDict):
    """The week's number and the year that it belongs to, by ISO 8601."""

    week: int
    year: int


class MeasuredAge(TypedDict):
    """Whole years, and the months and days above them."""

    years: int
    months: int
    days: int


class FoundYear(TypedDict):
    """A leap year."""

    year: int


class CalendarTools:
    """The tools. `today` is asked at each call."""

    def __init__(self, today: Callable[[], date] = read_clock) -> None:
        self._today = today

    async def find_named_day(
        self,
        weekday: Weekday,
        order: Annotated[
            str, Field(description="first to fifth or last of a month; next, last, this, coming.")
        ] = "coming",
        month: Annotated[str | None, MonthOrYear] = None,
        weeks: Annotated[int, Field(description="That of so many weeks later.", ge=0, le=520)] = 0,
    ) -> Annotated[CallToolResult, FoundDate]:
        """Find the date of a day of the week: the second Monday of a month, or next Friday."""
        return await call_result(self._find_named_day(weekday, order, month, weeks))

    async def count_named_days(
        self,
        kind: Annotated[
            str, Field(description="working days, weekdays, weekend days, or Mondays.")
        ],
        start: Annotated[str, Field(description="A date; without `end` a month or a year.")],
        end: Annotated[str | None, Day] = None,
    ) -> Annotated[CallToolResult, CountedNamedDays]:
        """Count the working days, or the Mondays, from one date to another, or of a month."""
        return await call_result(self._count_named_days(kind, start, end))

    async def find_week(self, date: Day) -> Annotated[CallToolResult, FoundWeek]:
        """Find the number of the calendar week of a date."""
        return await call_result(self._find_week(date))

    async def measure_age(
        self,
        start: Annotated[str, Field(description="The date or the year of birth.")],
        end: Annotated[str, Field(description="The date or the year of the question.")] = "today",
        kind: Annotated[
            Literal["age", "time"], Field(description="A time also has its days in all.")
        ] = "age",
    ) -> Annotated[CallToolResult, MeasuredAge]:
        """Find how old someone is, or how long ago a date was, in years, months and days."""
        return await call_result(self._measure_age(start, end, kind))

    async def find_leap_year(
        self,
        year: Annotated[int | None, Field(description="By default this year.")] = None,
        order: Annotated[
            Literal["next", "last"], Field(description="After the year, or before it.")
        ] = "next",
    ) -> Annotated[CallToolResult, FoundYear]:
        """Find the next leap year or the last one."""
        return await call_result(self._find_leap_year(year, order))

    async def _find_named_day(
        self, weekday: str, order: str, month: str | None, weeks: int
    ) -> ToolAnswer:
        number = calendar_days.parse_weekday("weekday", weekday)
        if month is None:
            near = calendar_days.find_near_day(self._today(), number, order, weeks)
            day, text = near.day, near.describe()
        else:
            period = dates.find_period("month", month, today=self._today())
            day = calendar_days.find_nth_weekday(period, number, order)
            text = dates.write_date(day)
        return ToolAnswer(text, {"date": str(day), "weekday": dates.find_weekday(day)})

    async def _count_named_days(self, kind: str, start: str, end: str | None) -> ToolAnswer:
        today = self._today()
        if end is None:
            period = dates.find_period("start", start, today=today)
            first, last = period.start, dates.move_date(period.end, -1, "day")
        else:
            span = dates.parse_span(start, end, today=today)
            first, last = min(span.start, span.end), max(span.start, span.end)
        days = calendar_days.count_named_days(first, last, kind)
        first_text, last_text = (calendar_days.name_weekday(day) for day in (first, last))
        text = f"{days:,} {kind.strip()}, from {first_text}, to {last_text}, both included"
        if "work" in kind or "business" in kind or "weekday" in kind:
            text = f"{text} (Monday to Friday, public holidays too)"
        return ToolAnswer(text, {"start": str(first), "end": str(last), "days": days})

    async def _find_week(self, text: str) -> ToolAnswer:
        day = dates.parse_date("date", text, today=self._today())
        year, week, _ = day.isocalendar()
        description = calendar_days.describe_week(day)
        return ToolAnswer(description[0].upper() + description[1:], {"week": week, "year": year})

    async def _measure_age(self, start: str, end: str, kind: str) -> ToolAnswer:
        if _is_year(start) or _is_year(end):
            return self._measure_years(start, end, kind)
        span = dates.parse_span(start, end, today=self._today())
        age = calendar_days.measure_age(span.start, span.end)
        text = age.describe()
        if kind == "time" and (age.years or age.months):
            text = f"{text} ({span.days:,} days)"
        return ToolAnswer(text, {"years": age.years, "months": age.months, "days": age.days})

    def _measure_years(self, start: str, end: str, kind: str) -> ToolAnswer:
        first, last = (
            self._read_year(name, text) for name, text in (("start", start), ("end", end))
        )
        years = last - first
        if years < 0:
            raise InvalidArgumentError("end", f"{last} is before {first}.")
        text = f"{years} years"
        if years and kind == "age":
            text = f"{text}, or {years - 1} before the birthday"
        return ToolAnswer(text, {"years": years, "months": 0, "days": 0})

    def _read_year(self, field: str, text: str) -> int:
        if _is_year(text):
            return int(text)
        return dates.parse_date(field, text, today=self._today()).year

    async def _find_leap_year(self, year: int | None, order: str) -> ToolAnswer:
        found = calendar_days.find_leap_year(year or self._today().year, order)
        return ToolAnswer(str(found), {"year": found})


def _is_year(text: str) -> bool:
    return text.strip().isdecimal() and len(text.strip()) == _YEAR_CHARS
