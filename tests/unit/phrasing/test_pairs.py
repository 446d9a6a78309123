"""Pairs: what "both" joins becomes two questions."""

import pytest

from trunkline.phrasing import split_pair
from trunkline.phrasing.pairs import TEXT_LIMIT_CHARS


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        (
            "is 60 divisible by both 4 and 5?",
            ["is 60 divisible by 4?", "is 60 divisible by 5?"],
        ),
        ("are both 7 and 11 prime", ["are 7 prime", "are 11 prime"]),
        ("are 7 and 9 both prime", ["are 7 prime", "are 9 prime"]),
        ("is 12 both even and a multiple of 3", ["is 12 even", "is 12 a multiple of 3"]),
        (
            "convert 20 euros to both dollars and pounds",
            ["convert 20 euros to dollars", "convert 20 euros to pounds"],
        ),
        (
            "what are both the square and the cube of 4",
            ["what are the square of 4", "what are the cube of 4"],
        ),
        (
            "the sum and product of 6 and 9",
            ["the sum of 6 and 9", "product of 6 and 9"],
        ),
        ("is 91 divisible by 7 and 11?", ["is 91 divisible by 7?", "is 91 divisible by 11?"]),
        (
            "what's the square root of 16 and 25",
            ["what's the square root of 16", "what's the square root of 25"],
        ),
        ("are 7 and 11 prime", ["are 7 prime", "are 11 prime"]),
        ("what are 10% and 15% of 80", ["what are 10% of 80", "what are 15% of 80"]),
        ("half and (1/3) of 90", ["half of 90", "(1/3) of 90"]),
        ("sum of the squares of 3 and 4", []),
        ("common factors of 12 and 18", []),
        ("is 7 prime and is 8 even", []),
        ("both of them", []),
        ("is it 5 or both", []),
        ("are both 7 and 11 prime" + " " * TEXT_LIMIT_CHARS, []),
    ],
)
def test_a_pair_becomes_a_question_each(text: str, questions: list[str]) -> None:
    assert list(split_pair(text)) == questions
