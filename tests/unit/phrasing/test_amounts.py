import time

import pytest

from trunkline.phrasing import resolve_amounts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I have £35. What is that in Canadian dollars?", "What is £35 in Canadian dollars?"),
        ("The room costs 1,200 crowns. What's that in euros?", "What's 1,200 crowns in euros?"),
        ("Invoice total: 940 USD. What is it in euros?", "What is 940 USD in euros?"),
        ("The train takes 195 minutes, how many hours is that?", "how many hours is 195 minutes?"),
        ("I got 12, 15 and 18. What is the mean of those?", "What is the mean of 12, 15, 18?"),
        ("We pay twenty euros. What is that in yen?", "What is 20 euros in yen?"),
    ],
)
def test_a_reference_to_a_stated_amount_is_resolved(text: str, expected: str) -> None:
    assert expected in resolve_amounts(text)


@pytest.mark.parametrize(
    "text",
    [
        # A request before it, no number, no reference, nothing stated, or a longer text.
        *("what is 3+4, and double that", "I have a question. What is that?", "that is 5"),
        *("We are 12 people. Where can we eat?", "100 USD in EUR, and what is that in GBP", ""),
        "I have 5 euros. " + "It rains. " * 50 + "What is that in dollars?",
    ],
)
def test_other_texts_have_no_stated_amount(text: str) -> None:
    assert resolve_amounts(text) == []


def test_texts_of_any_kind_take_little_time() -> None:
    started = time.perf_counter()
    for text in ("I have 5. what " * 28, "is 1,1,1,1" * 40, ", what" * 66, "5 " * 200, "x" * 10**6):
        resolve_amounts(text)
    assert time.perf_counter() - started < 1.0
