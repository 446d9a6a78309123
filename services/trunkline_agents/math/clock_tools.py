"""The tools for times of day over MCP: find_time and measure_time."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline_agents.math import clock
from trunkline_agents.mcp_server import ToolAnswer, call_result

TimeOfDay = Annotated[
    str, Field(description="A time such as 9:15, 5:30 pm, noon or half past 9, or now.")
]
TimeSpan = Annotated[str, Field(description="Such as 90 minutes or 2 hours 30 minutes.")]


class FoundTime(TypedDict):
    """The time of day, of 24 hours, and the days after that of the start."""

    time: str
    days_later: int


class MeasuredTime(TypedDict):
    """The minutes between two times of day."""

    minutes: int


def read_time() -> datetime:
    """Return the time where this process runs."""
    return datetime.now(tz=UTC).astimezone()


class ClockTools:
    """The tools. `now` is asked at each call."""

    def __init__(self, now: Callable[[], datetime] = read_time) -> None:
        self._now = now

    async def find_time(
        self,
        start: TimeOfDay,
        duration: Annotated[str | None, TimeSpan] = None,
        more: Annotated[
            str | None, Field(description="A second time span, such as that of a break.")
        ] = None,
        direction: Annotated[
            Literal["after", "before"], Field(description="After the time, or before it.")
        ] = "after",
        form: Annotated[
            Literal["24 hours", "am and pm"] | None, Field(description="The form of the answer.")
        ] = None,
    ) -> Annotated[CallToolResult, FoundTime]:
        """Find the time of day that is some hours and minutes after or before another."""
        spans = [span for span in (duration, more) if span]
        return await call_result(self._find_time(start, spans, direction, form))

    async def measure_time(
        self,
        start: TimeOfDay,
        end: TimeOfDay,
        pause: Annotated[
            str | None, Field(description="A break, which does not count: 30 minutes.")
        ] = None,
        unit: Annotated[
            Literal["minutes", "hours"] | None, Field(description="The unit of the answer.")
        ] = None,
    ) -> Annotated[CallToolResult, MeasuredTime]:
        """Find how long it is from one time of day to another, without a break."""
        return await call_result(self._measure_time(start, end, pause, unit))

    async def _find_time(
        self, start: str, spans: list[str], direction: str, form: str | None
    ) -> ToolAnswer:
        begin = self._parse("start", start)
        moved = sum(clock.parse_duration("duration", span) for span in spans)
        minutes = begin.minutes + (-moved if direction == "before" else moved)
        has_halves = begin.has_halves if form is None else form == "am and pm"
        days = minutes // clock.DAY_MINUTES
        text = clock.write_clock(minutes, has_halves=has_halves) + _describe_days(days)
        if start.strip().lower() == "now":
            text = f"{text} (by the clock of the computer that runs the agent)"
        plain = clock.write_clock(minutes, has_halves=False)
        return ToolAnswer(text, {"time": plain, "days_later": days})

    async def _measure_time(
        self, start: str, end: str, pause: str | None, unit: str | None
    ) -> ToolAnswer:
        first, last = self._parse("start", start), self._parse("end", end)
        begin, stop = clock.measure_span(first, last)
        minutes = stop - begin - (clock.parse_duration("pause", pause) if pause else 0)
        if minutes < 0:
            return ToolAnswer("The break is longer than the time.", {"minutes": minutes})
        has_halves = first.has_halves or last.has_halves
        span = " to ".join(clock.write_clock(time, has_halves=has_halves) for time in (begin, stop))
        text = f"{clock.write_duration(minutes, unit=unit or '')}, from {span}"
        if stop >= clock.DAY_MINUTES:
            text = f"{text} the next day"
        return ToolAnswer(text, {"minutes": minutes})

    def _parse(self, field: str, text: str) -> clock.ClockTime:
        if text.strip().lower() == "now":
            now = self._now()
            return clock.ClockTime(now.hour * 60 + now.minute)
        return clock.parse_clock(field, text)


def _describe_days(days: int) -> str:
    if not days:
        return ""
    if days in {1, -1}:
        return " the next day" if days > 0 else " the day before"
    return f" {abs(days)} days {'later' if days > 0 else 'earlier'}"
