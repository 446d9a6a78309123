import time

import pytest

from trunkline.phrasing import Vocabulary
from trunkline.reasoning.models.pattern_words import list_pattern_words

DECLARED = (
    "number prime square derivative convert kilometers kilometres equation exchange rate dollar "
    "what the average minutes perfect"
)
WORDS = Vocabulary(DECLARED.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is 391 a prime nubmer?", "is 391 a prime number?"),
        ("Sqaure of 4", "square of 4"),
        ("derivitive of x^4", "derivative of x^4"),
        ("teh exchagne rate", "the exchange rate"),
        ("100 dolars", "100 dollars"),
        ("5 miles in kilometrs", "5 miles in kilometers"),
        ("waht is the avrage", "what is the average"),
    ],
)
def test_misspelled_words_are_corrected(text: str, expected: str) -> None:
    assert WORDS.correct(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        # Names and codes, words of others, numbers, and words with several errors.
        *("what do we pay Numbre", "CONVERT", "5 EURR", "who won the prize"),
        *("the minus sign", "how do I expend it", "the convent", "nmbr", "numb3r", "x", ""),
        *("the dollar's rate", "an average price", "it's prime"),
        "avrage " * 100,
    ],
)
def test_other_words_stay(text: str) -> None:
    assert WORDS.correct(text) == text


def test_the_words_of_a_pattern_are_those_that_it_matches() -> None:
    pattern = r"^(?:please\s)?calculat(?:e|ing)\s(?P<of>factori[sz]e)\snumbers?\s\d+(?:[a-z]{3})$"

    assert set(list_pattern_words(pattern)) == {
        *("please", "calculate", "calculating", "factorise", "factorize", "number", "numbers"),
    }


def test_patterns_and_texts_of_any_size_take_little_time() -> None:
    vocabulary = Vocabulary(f"w{'abcdefghij'[n % 10]}rd{n}" for n in range(100_000))
    started = time.perf_counter()

    vocabulary.correct(" ".join(["wordsome"] * 33))
    for pattern in ("(?:a|b)?" * 500, "[ab]?" * 800, "a(?:bc|de)" * 400, "a?" * 2000):
        assert len(list(list_pattern_words(pattern))) < 100_000

    assert time.perf_counter() - started < 2.0
