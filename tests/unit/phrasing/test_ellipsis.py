"""Questions that leave out what the question before them says."""

import pytest

from trunkline.phrasing import split_ellipsis


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("what is 20% of 150, and of 200?", ["what is 20% of 150", "what is 20% of 200"]),
        ("is 51 prime, and is 53?", ["is 51 prime", "is 53 prime"]),
        ("is 51 divisible by 3? what about 52", ["is 51 divisible by 3", "is 52 divisible by 3"]),
        ("what is 12 squared, and what about 13?", ["what is 12 squared", "what is 13 squared"]),
        ("what is 15% of 80? And 20%?", ["what is 15% of 80", "what is 20% of 80"]),
        (
            "Is 51 prime? If not, what are its factors?",
            ["Is 51 prime", "what are the factors of 51"],
        ),
        (
            "Is 144 a perfect square? If so, what is its square root?",
            ["Is 144 a perfect square", "what is the square root of 144"],
        ),
        ("Is 91 prime? And 89?", ["Is 91 prime", "Is 89 prime"]),
        (
            "What is 35% of 1,400, and 5% of it as well?",
            ["What is 35% of 1,400", "What is 5% of 1,400"],
        ),
        (
            "How many days does February 2028 have, and March?",
            ["How many days does February 2028 have", "How many days does March 2028 have"],
        ),
        (
            "how many centimetres are 6 feet, and in inches?",
            ["how many centimetres are 6 feet", "how many inches are 6 feet"],
        ),
        (
            "how much is 10% of 500 dollars, and of 200 euros",
            ["how much is 10% of 500 dollars", "how much is 10% of 200 euros"],
        ),
    ],
)
def test_a_short_question_is_completed_by_the_one_before(text: str, questions: list[str]) -> None:
    assert list(split_ellipsis(text)) == questions


@pytest.mark.parametrize(
    "text",
    [
        "what is the sum of 3 and 4",
        "sum of 5 and 6, and of 7",
        "5 km in miles, and in feet",
        # It may be 5% of the result.
        "what is 20% of 860, and 5% of it",
        "how many days from Monday to Friday, and Sunday",
        "is 5 between 3 and 10",
        "what is 2 plus 2 and is 4 even",
        "integrate x^2 from 0 to 1 and from 1 to 2",
        "",
        "1, and of " + "2" * 1_000,
    ],
)
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert list(split_ellipsis(text)) == []
