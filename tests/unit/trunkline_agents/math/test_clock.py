"""Times of day: moved and measured, and the questions that reach the tools."""

from datetime import UTC, datetime
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from trunkline.errors import InvalidArgumentError
from trunkline.reasoning.models.tool_matching import match_tools
from trunkline_agents.math import clock_patterns
from trunkline_agents.math.clock import parse_clock, parse_duration
from trunkline_agents.math.clock_tools import ClockTools

DECLARATIONS = {
    "find_time": clock_patterns.FIND_TIME,
    "measure_time": clock_patterns.MEASURE_TIME,
}


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answer(question: str) -> str:
    """Return the answer of the tool that takes the whole question; "" if none does."""
    tools = ClockTools(lambda: datetime(2026, 11, 26, 18, 40, tzinfo=UTC))
    matches: list[Any] = match_tools(question, DECLARATIONS)
    if not matches:
        return ""
    (match,) = matches
    return text_of(await getattr(tools, match.tool)(**match.arguments))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what time is it 3 hours after 10:45", "13:45"),
        ("a meeting of 90 minutes that starts at 14:20 ends when?", "15:50"),
        ("what's 45 minutes before 10am", "9:15 am"),
        ("add 1 hour 50 minutes to 22:30", "00:20 the next day"),
        ("a 2h30 film starting at 20:15 ends at what time", "22:45"),
        ("what time was it half an hour before noon", "11:30"),
        ("half past nine plus 45 minutes", "10:15"),
        ("I must be there at 9:00 and it takes 40 minutes, when do I have to leave?", "08:20"),
        (
            "I start work at 7:45 and work 8 hours with a 30 minute break. When can I go home?",
            "16:15",
        ),
        ("What is 3:30 pm in 24-hour time?", "15:30"),
        (
            "what time will it be in 45 minutes",
            "19:25 (by the clock of the computer that runs the agent)",
        ),
        (
            "how long is it from 9:15 to 17:30",
            "8 hours and 15 minutes, from 09:15 to 17:30",
        ),
        ("how many minutes between 13:10 and 14:55", "105 minutes, from 13:10 to 14:55"),
        ("how long is it from 7 to 11 pm", "4 hours, from 7:00 pm to 11:00 pm"),
        (
            "I go to bed at 23:15 and get up at 6:45, how long do I sleep",
            "7 hours and 30 minutes, from 23:15 to 06:45 the next day",
        ),
        (
            "I work from 8:30 to 17:00 with a 45 minute break, how many hours is that",
            "7 hours and 45 minutes (7.75 hours), from 08:30 to 17:00",
        ),
    ],
)
async def test_a_question_for_a_time_of_day_is_answered(question: str, expected: str) -> None:
    assert await answer(question) == expected


@pytest.mark.parametrize(
    "question",
    [
        # Numbers that the answer would leave out.
        "I work from 8:30 to 17:00 on 3 days, how many hours is that",
        "what time is it 3 hours after 10:45 on day 2",
        "the 12:30 train costs 20 euros and takes 2 hours",
        "is the office open at 10:30",
    ],
)
async def test_a_question_with_other_numbers_is_left_alone(question: str) -> None:
    assert await answer(question) == ""


@pytest.mark.parametrize("text", ["25:10", "9:75", "13 pm", "later", ""])
def test_a_time_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_clock("start", text)


@pytest.mark.parametrize("text", ["2 days", "1.01 minutes", "2h30 or 3", "10000 hours"])
def test_a_span_that_is_not_read_whole_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="whole minutes"):
        parse_duration("duration", text)
