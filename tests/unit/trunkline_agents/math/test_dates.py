"""Dates: the values are those of a printed calendar, and of the cal command."""

from datetime import date

import pytest
from mcp_types import CallToolResult, TextContent

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import dates
from trunkline_agents.math.date_tools import DateTools

TODAY = date(2026, 11, 24)


@pytest.fixture
def tools() -> DateTools:
    return DateTools(lambda: TODAY)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize(
    ("start", "end", "unit", "text", "days"),
    [
        ("2024-03-01", "2024-05-15", "days", "75 days", 75),
        ("2024-02-28", "2024-03-01", "days", "2 days", 2),
        ("2026-11-24", "tomorrow", "day", "1 day", 1),
        ("2026-01-01", "2026-03-12", "weeks", "10 weeks", 70),
        ("2026-01-01", "2026-03-13", "weeks", "10 weeks and 1 day", 71),
        ("1900-01-01", "2000-01-01", "days", "36,524 days", 36_524),
        ("today", "2026-11-01", "days", "23 days, from 2026-11-01 to 2026-11-24", -23),
        # Without a year, the end is the next such day after the start, and the start the last one
        # before the end.
        ("today", "--12-25", "days", "31 days", 31),
        ("today", "--01-01", "days", "38 days", 38),
        ("--12-20", "--01-05", "days", "16 days", 16),
        ("--12-01", "today", "days", "358 days", 358),
        ("2028-02", None, "days", "29 days", 29),
        ("February 2027", None, "days", "28 days", 28),
        ("2028", None, "days", "366 days", 366),
    ],
)
async def test_days_are_counted(
    tools: DateTools, start: str, end: str | None, unit: str, text: str, days: int
) -> None:
    result = await tools.count_days(start, end, unit)  # type: ignore[arg-type]

    assert text_of(result) == text
    assert result.structured_content is not None
    assert result.structured_content["days"] == days


@pytest.mark.parametrize(
    ("start", "amount", "unit", "direction", "text"),
    [
        ("2025-01-01", 90, "days", "after", "Tuesday, 1 April 2025"),
        ("2026-05-10", 2, "weeks", "before", "Sunday, 26 April 2026"),
        ("2026-01-31", 1, "month", "after", "Saturday, 28 February 2026"),
        ("2024-02-29", 1, "year", "after", "Friday, 28 February 2025"),
        ("2026-03-31", 13, "months", "before", "Friday, 28 February 2025"),
        ("today", 1, "day", "after", "Wednesday, 25 November 2026"),
    ],
)
async def test_dates_are_moved(
    tools: DateTools, start: str, amount: int, unit: str, direction: str, text: str
) -> None:
    result = await tools.move_date(start, amount, unit, direction)  # type: ignore[arg-type]

    assert text_of(result) == text


async def test_weekdays_are_found_and_checked(tools: DateTools) -> None:
    found = await tools.find_weekday("1976-07-04")
    right = await tools.find_weekday("2026-12-24", "Thursday")
    wrong = await tools.find_weekday("2026-12-24", "friday")

    assert text_of(found) == "Sunday, 4 July 1976"
    assert text_of(right) == "Yes: Thursday, 24 December 2026."
    assert text_of(wrong) == "No: Thursday, 24 December 2026."
    assert wrong.structured_content == {
        "date": "2026-12-24",
        "weekday": "Thursday",
        "holds": False,
    }


@pytest.mark.parametrize("text", ["2023-02-29", "2026-13-01", "soon", "0000-01-01", "24.12.2026"])
def test_what_is_no_date_is_an_error(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        dates.parse_date("date", text, today=TODAY)


@pytest.mark.parametrize("text", ["2026-13", "2026-00", "Smarch 2026", "0000", "may 2026-05", ""])
def test_what_is_no_period_is_an_error(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        dates.find_period("start", text, today=TODAY)


@pytest.mark.parametrize(
    ("amount", "unit"), [(4_000_000, "day"), (9_000, "year"), (10**30, "week"), (-2_100, "year")]
)
def test_a_result_outside_the_calendar_is_an_error(amount: int, unit: dates.TimeUnit) -> None:
    with pytest.raises(InvalidArgumentError, match="years 1 to 9999"):
        dates.move_date(date(2026, 1, 1), amount, unit)


@pytest.mark.parametrize("day", ["yesterday", "Tomorrow"])
def test_today_is_not_the_only_word(day: str) -> None:
    assert abs((dates.parse_date("date", day, today=TODAY) - TODAY).days) == 1


def test_the_last_year_is_no_period() -> None:
    with pytest.raises(InvalidArgumentError):
        dates.find_period("start", "9999", today=TODAY)


@pytest.mark.parametrize(
    ("day", "text"),
    [
        ("2027-02-29", "No: February 2027 has 28 days."),
        ("2028-02-29", "Yes: Tuesday, 29 February 2028."),
        ("--09-31", "No: September has 30 days."),
        ("--02-29", "Yes: February has 29 days in a leap year."),
        ("--02-30", "No: February has 29 days in a leap year."),
        ("--12-31", "Yes: December has 31 days."),
    ],
)
async def test_a_date_is_checked(tools: DateTools, day: str, text: str) -> None:
    result = await tools.check_date(day)

    assert text_of(result) == text
    assert result.structured_content == {"date": day, "exists": text.startswith("Yes")}
