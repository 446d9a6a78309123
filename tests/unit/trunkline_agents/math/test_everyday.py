"""Totals, prices, travel and lists of numbers: from the question to the answer of the tool."""

from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from trunkline.errors import InvalidArgumentError
from trunkline.reasoning.models.tool_matching import match_tools
from trunkline_agents.math import everyday_patterns, sum_patterns
from trunkline_agents.math.everyday_tools import EverydayTools
from trunkline_agents.math.number_lists import read_roman

DECLARATIONS = {
    "scale_price": everyday_patterns.SCALE_PRICE,
    "travel": everyday_patterns.TRAVEL,
    "sort_numbers": everyday_patterns.SORT_NUMBERS,
    "continue_sequence": everyday_patterns.CONTINUE_SEQUENCE,
    "read_roman": everyday_patterns.READ_ROMAN,
    "add_items": everyday_patterns.ADD_ITEMS,
}


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def answer(question: str) -> str:
    matches: list[Any] = match_tools(question, DECLARATIONS)
    assert len(matches) == 1, question
    (match,) = matches
    return text_of(await getattr(EverydayTools(), match.tool)(**match.arguments))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("3 coffees at 2.80 and a cake at 4.50", "3*2.80 + 4.50 = 12.90"),
        (
            "We ordered 4 burgers at 8.90, 4 fries at 3.20 and a salad for 6.50. How much is that?",
            "4*8.90 + 4*3.20 + 6.50 = 54.90",
        ),
        (
            "two pizzas at 11.50 each and three beers at 4.20, what's the total?",
            "2*11.50 + 3*4.20 = 35.60",
        ),
        ("I paid 12, 30 and 8 euros, what is it in total", "12 + 30 + 8 = 50"),
        ("6 eggs for 2.40, how much are 10", "4"),
        ("500 g of coffee cost 7.50, what is the price per kilo", "15"),
        ("if 500 g cost 7.50, what do 2 kg cost", "30"),
        ("180 km in 2.5 hours, what speed", "72 km/h"),
        ("I run 10 km in 50 minutes. What is my speed in km/h?", "12 km/h"),
        ("How long do I need for 100 km at 60 km/h?", "≈ 1.67 hours (1 hour and 40 minutes)"),
        ("how far do I get in 3 hours at 80 km/h", "240 km"),
        ("order 0.3, 1/4, 0.28 from smallest to largest", "1/4, 0.28, 0.3"),
        ("sort 5, 2, 9 and 1 in descending order", "9, 5, 2, 1"),
        ("what comes next: 2, 5, 8, 11", "14 (each is the one before plus 3)"),
        ("what comes next: 1, 1, 2, 3, 5", "8 (each is the sum of the two before)"),
        ("next number in the sequence 1, 4, 9, 16", "25 (the differences grow by 2)"),
        ("what is the 10th term of the sequence 4, 7, 10", "31 (each is the one before plus 3)"),
        ("what number is MCMXC", "1990"),
    ],
)
async def test_an_everyday_question_is_answered(question: str, expected: str) -> None:
    assert await answer(question) == expected


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("3 coffees for 8.40 and a cake for 4.50, what's that altogether", "of all 3?"),
        ("4 apples cost 2 euros, how much do 6 pears cost", "are not the same thing"),
        ("what comes next: 3, 1, 4, 1, 5", "no rule"),
    ],
)
async def test_a_sum_that_may_mean_something_else_is_refused(question: str, problem: str) -> None:
    assert problem in await answer(question)


@pytest.mark.parametrize(
    "question",
    [
        "I have 20 euros and buy 3 pens at 1.50 and a book at 9, how much is left",
        "8 boys and 12 girls, what percentage are boys",
        "6 eggs for 2.40 and 10% off, how much are 10",
    ],
)
def test_a_question_for_something_else_is_no_total(question: str) -> None:
    assert match_tools(question, DECLARATIONS) == []


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        (
            "8 of 32 students failed, what percentage is that",
            {"expression": "(8)/(32)", "form": "percent"},
        ),
        (
            "by how much percent did it rise from 80 to 92",
            {"expression": "((92)-(80))/(80)", "form": "percent"},
        ),
        ("split 187 between 6 people, 10% tip first", {"expression": "(187)*(1+(10)%)/(6)"}),
        (
            "how much VAT is in 119 euros at 19%",
            {"expression": "(119 euros)-(119 euros)/(1+(19)%)"},
        ),
        (
            "after a 20% discount it costs 64, what did it cost before?",
            {"expression": "(64)/(1-(20)%)"},
        ),
        ("If 30% of a number is 45, what is the number?", {"expression": "(45)/((30)%)"}),
        ("what's 2,749 to the nearest hundred", {"expression": "round((2,749),-2)"}),
        (
            "my grades are 1.7, 2.3, 1.0 and 2.0, what's the average",
            {"expression": "mean of 1.7, 2.3, 1.0 and 2.0"},
        ),
        (
            "how much will 5000 euros be after 3 years at 4% interest",
            {"expression": "(5000 euros)*(1+(4)%)^3"},
        ),
        ("Tom is 12 and his sister is twice as old. How old is she?", {"expression": "2*(12)"}),
    ],
)
def test_a_sentence_with_numbers_becomes_a_formula(
    question: str, arguments: dict[str, str]
) -> None:
    matches = match_tools(question, {"work_out": sum_patterns.WORK_OUT})

    assert [match.arguments for match in matches] == [arguments]


@pytest.mark.parametrize("text", ["IIII", "VX", "ABC", ""])
def test_letters_that_are_no_roman_numeral_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        read_roman(text)
