"""The tools for dates over MCP: count_days, move_date, check_date and find_weekday."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline_agents.math import dates
from trunkline_agents.mcp_server import ToolAnswer, call_result

Day = Annotated[
    str, Field(description="A date, YYYY-MM-DD or --MM-DD, or today, tomorrow, yesterday.")
]


class CountedDays(TypedDict):
    """The days from `start` to `end`, negative if `end` is earlier."""

    start: str
    end: str
    days: int


class FoundDate(TypedDict):
    """A date and its day of the week."""

    date: str
    weekday: str


class WeekdayFound(FoundDate):
    """A date and its day of the week. `holds` says whether it is the expected one, if any."""

    holds: bool | None


class CheckedDate(TypedDict):
    """A date, and whether the calendar has it."""

    date: str
    exists: bool


def read_clock() -> date:
    """Return today's date where this process runs."""
    return datetime.now(tz=UTC).astimezone().date()


class DateTools:
    """The tools. `today` is asked at each call."""

    def __init__(self, today: Callable[[], date] = read_clock) -> None:
        self._today = today

    async def count_days(
        self,
        start: Annotated[
            str,
            Field(description="A date, or today; without `end` a month or a year."),
        ],
        end: Annotated[str | None, Field(description="The other date.")] = None,
        unit: Annotated[
            Literal["day", "days", "week", "weeks"], Field(description="Weeks, or days alone.")
        ] = "days",
    ) -> Annotated[CallToolResult, CountedDays]:
        """Count the days from one date to another, or those of a month or of a year."""
        return await call_result(self._count_days(start, end, unit))

    async def move_date(
        self,
        start: Day,
        amount: Annotated[int, Field(description="How many.")],
        unit: Annotated[
            Literal["day", "days", "week", "weeks", "month", "months", "year", "years"],
            Field(description="Days, weeks, months or years."),
        ],
        direction: Annotated[
            Literal["after", "before"], Field(description="After the date, or before it.")
        ] = "after",
    ) -> Annotated[CallToolResult, FoundDate]:
        """Find the date that is some days, weeks, months or years after or before another."""
        return await call_result(self._move_date(start, amount, unit, direction=direction))

    async def check_date(
        self, date: Annotated[str, Field(description="A date, YYYY-MM-DD or --MM-DD.")]
    ) -> Annotated[CallToolResult, CheckedDate]:
        """Say whether a date exists: is 29 February 2027 a real date."""
        return await call_result(self._check_date(date))

    async def find_weekday(
        self,
        date: Day,
        expected: Annotated[
            str | None, Field(description="A day of the week, to ask whether it is that one.")
        ] = None,
    ) -> Annotated[CallToolResult, WeekdayFound]:
        """Say which day of the week a date is, and what the date of today is."""
        return await call_result(self._find_weekday(date, expected))

    async def _count_days(self, start: str, end: str | None, unit: str) -> ToolAnswer:
        if end is None:
            span = dates.find_period("start", start, today=self._today())
        else:
            span = dates.parse_span(start, end, today=self._today())
        return ToolAnswer(
            span.describe("week" if unit.startswith("week") else "day"),
            {"start": str(span.start), "end": str(span.end), "days": span.days},
        )

    async def _move_date(self, start: str, amount: int, unit: str, *, direction: str) -> ToolAnswer:
        singular: dict[str, dates.TimeUnit] = {
            **{"day": "day", "week": "week", "month": "month", "year": "year"},
            **{"days": "day", "weeks": "week", "months": "month", "years": "year"},
        }
        day = dates.move_date(
            dates.parse_date("start", start, today=self._today()),
            -amount if direction == "before" else amount,
            singular[unit],
        )
        return ToolAnswer(
            dates.write_date(day), {"date": str(day), "weekday": dates.find_weekday(day)}
        )

    async def _check_date(self, text: str) -> ToolAnswer:
        checked = dates.check_date("date", text)
        return ToolAnswer(
            f"{'Yes' if checked.exists else 'No'}: {checked.fact}.",
            {"date": text, "exists": checked.exists},
        )

    async def _find_weekday(self, text: str, expected: str | None) -> ToolAnswer:
        day = dates.parse_date("date", text, today=self._today())
        weekday = dates.find_weekday(day)
        holds = None if expected is None else expected.strip().lower() == weekday.lower()
        answer = dates.write_date(day)
        if holds is not None:
            answer = f"{'Yes' if holds else 'No'}: {answer}."
        return ToolAnswer(answer, {"date": str(day), "weekday": weekday, "holds": holds})
