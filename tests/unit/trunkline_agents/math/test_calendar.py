"""Days of a calendar: the values are those of a printed calendar, and of the cal command."""

from datetime import date
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from trunkline.reasoning.models.tool_matching import match_tools
from trunkline_agents.math import calendar_patterns
from trunkline_agents.math.calendar_tools import CalendarTools

TODAY = date(2026, 11, 26)
DECLARATIONS = {
    "find_named_day": calendar_patterns.FIND_NAMED_DAY,
    "count_named_days": calendar_patterns.COUNT_NAMED_DAYS,
    "find_week": calendar_patterns.FIND_WEEK,
    "measure_age": calendar_patterns.MEASURE_AGE,
    "find_leap_year": calendar_patterns.FIND_LEAP_YEAR,
}


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answer(question: str) -> str:
    matches: list[Any] = match_tools(question, DECLARATIONS)
    assert len(matches) == 1, question
    (match,) = matches
    return text_of(await getattr(CalendarTools(lambda: TODAY), match.tool)(**match.arguments))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what date is the second Monday of March 2027", "Monday, 8 March 2027"),
        ("When is the last Friday of January 2027?", "Friday, 29 January 2027"),
        ("what date is the first Tuesday in December", "Tuesday, 1 December 2026"),
        (
            "what date is next Friday",
            "Friday, 27 November 2026, or Friday, 4 December 2026 if that of next week is meant",
        ),
        ("what date is next Monday", "Monday, 30 November 2026"),
        ("What is the date a week from Monday", "Monday, 7 December 2026"),
        (
            "what date is Monday in two weeks",
            "Monday, 7 December 2026, or Monday, 14 December 2026 if it is counted from the next"
            " Monday",
        ),
        (
            "how many working days are there between 1 December 2026 and 24 December 2026",
            "18 working days, from Tue, 1 December 2026, to Thu, 24 December 2026, both included"
            " (Monday to Friday, public holidays too)",
        ),
        (
            "how many Sundays are there in May 2027",
            "5 Sundays, from Sat, 1 May 2027, to Mon, 31 May 2027, both included",
        ),
        (
            "what week number is 15 June 2027",
            "Week 24 of 2027, from Monday, 14 June 2027 to Sunday, 20 June 2027 (by ISO 8601)",
        ),
        ("I was born on 14 May 1990, how old am I?", "36 years, 6 months and 12 days"),
        ("how old is someone born in 1958", "68 years, or 67 before the birthday"),
        ("how long ago was 1 January 2000", "26 years, 10 months and 25 days (9,826 days)"),
        ("When is the next leap year?", "2028"),
        ("what was the last leap year before 2000", "1996"),
    ],
)
async def test_a_question_for_the_calendar_is_answered(question: str, expected: str) -> None:
    assert await answer(question) == expected


async def test_a_day_that_a_month_lacks_is_refused() -> None:
    refused = await CalendarTools(lambda: TODAY).find_named_day("Monday", "fifth", "February 2027")

    assert refused.is_error
    assert text_of(refused) == "The month has only 4 Mondays."


async def test_a_birth_after_the_question_is_refused() -> None:
    refused = await CalendarTools(lambda: TODAY).measure_age("2030-01-01")

    assert refused.is_error
    assert "is before 2030-01-01" in text_of(refused)
