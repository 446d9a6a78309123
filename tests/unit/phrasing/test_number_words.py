import time

import pytest

from trunkline.phrasing import find_numbers, write_digits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twenty-five times four", "25 times 4"),
        ("one hundred and fifty divided by six", "150 divided by 6"),
        ("three hundred thousand and five", "300005"),
        ("a hundred and twenty euros", "120 euros"),
        ("two dozen eggs", "24 eggs"),
        ("1.5k USD", "1500 USD"),
        ("2 million yen", "2000000 yen"),
        ("half of 86", "(1/2) of 86"),
        ("half 90", "(1/2) 90"),
        ("half a percent of 2000", "(1/2) percent of 2000"),
        ("half a million and half a dozen", "500000 and 6"),
        ("two and a half million by one and a quarter thousand", "2500000 by 1250"),
        (f"{'9' * 5000} and two", f"{'9' * 5000} and 2"),
        ("two thirds of 90", "(2/3) of 90"),
        ("one and a half plus two and a half", "1.5 plus 2.5"),
        ("half of 50 and a third of 90", "(1/2) of 50 and (1/3) of 90"),
        ("two point five", "2.5"),
        ("is 5/8 more than half?", "is 5/8 more than (1/2)?"),
        ("three times half", "3 times (1/2)"),
        ("hundred squared", "100 squared"),
        ("9 times thousand", "9 times 1000"),
        ("a few hundred people", "a few hundred people"),
        ("between 1/2 and two thirds", "between 1/2 and (2/3)"),
        ("an hour and a half in minutes", "1.5 hours in minutes"),
        ("two miles and a quarter", "2.25 miles"),
        ("a day and a third of 90", "a day and (1/3) of 90"),
        ("five and six", "5 and 6"),
        ("to the tenth power", "to the 10th power"),
        ("on the first of March 2026", "on 2026-03-01"),
        ("on March 2, 2020", "on 2020-03-02"),
        ("the 2nd of March 2020", "2020-03-02"),
        ("twenty first of May 2021", "2021-05-21"),
        ("in two thousand and twenty", "in 2020"),
        (
            "between the third of March and the 1st of June 2026",
            "between 2026-03-03 and 2026-06-01",
        ),
        ("from 3 March to 1 June 2026", "from 2026-03-03 to 2026-06-01"),
        ("from March 3 until June 1, 2026", "from 2026-03-03 until 2026-06-01"),
        ("from 20 December to 6 January 2027", "from 2026-12-20 to 2027-01-06"),
        ("from 1 June 2026 to 3 March", "from 2026-06-01 to 2027-03-03"),
        ("between May 1, 2026 and June 1?", "between 2026-05-01 and 2026-06-01?"),
        ("six weeks after Christmas Day 2025", "6 weeks after 2025-12-25"),
        ("on New Year's Eve of 2026", "on 2026-12-31"),
        ("from Halloween to Christmas 2026", "from 2026-10-31 to 2026-12-25"),
    ],
)
def test_numbers_and_dates_in_words_become_digits(text: str, expected: str) -> None:
    assert write_digits(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a second thought",
        "an apple",
        "42",
        "may 2020",
        "half past",
        "and a",
        "¹ ²",
        "3.5",
        "march 3 and 2026",
        "how many days may 10 people take",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert write_digits(text) == text
    assert find_numbers(text) == []


@pytest.mark.parametrize(
    "word",
    ["one ", "hundred and ", "a ", "9 ", "the first of ", "half ", "3 march to ", "christmas "],
)
def test_time_is_linear_in_the_length(word: str) -> None:
    began = time.process_time()
    write_digits(word * 4_000)
    assert time.process_time() - began < 5
