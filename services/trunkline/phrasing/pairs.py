"""Pairs that are two questions: "is 60 divisible by both 4 and 5", "the square and the cube of 4".

Two numbers that "both" joins share the words around them, and two names before "of" do. Other
things that "both" joins share the words before them.
"""

import re
from collections.abc import Sequence

TEXT_LIMIT_CHARS = 400
"""Longer texts are texts with the word, and no questions."""
_NUMBER = r"-?\d[\d.,]*(?:/\d+)?(?!\w)"
# A name such as "the square root". Behind an article, "a multiple of 3" is a name of its own.
_NAME = r"(?:the\s)?(?!(?:an?|the|both)\b)[a-z]+(?:\s(?!and\b|of\b)[a-z]+)?"
# The first that matches a whole text counts.
_PAIRS = tuple(
    re.compile(rf"(?P<head>[^\n]*?){pair}(?P<tail>[^\n]*)", re.IGNORECASE)
    for pair in (
        # "the sum and the product of 6 and 9", "both the square and the cube of 4"
        rf"(?:\bboth\s|\b(?=the\s)|^)(?P<first>{_NAME})(?P<joint>\sand\s)(?P<second>{_NAME})"
        r"(?=\sof\s)",
        # "is 1001 divisible by 7 and 11"
        rf"(?:(?<=\bdivisible by\s)|(?<=\bmultiple of\s))(?P<first>{_NUMBER})(?P<joint>\sand\s)"
        rf"(?P<second>{_NUMBER})(?=\W*$)",
        # "are both 7 and 11 prime", "are 7 and 11 both prime", "is 12 both even and a square"
        rf"\bboth\s(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})",
        rf"(?<![\d./])(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})\sboth(?=\s)",
        r"\bboth\s(?P<first>[^,;?]{1,80}?)(?P<joint>\sand\s)(?P<second>[^,;?]{1,80})",
    )
)


def find_pair(text: str) -> re.Match[str] | None:
    """Return the two that "both" joins, and the words around them; None if there is no pair."""
    if len(text) > TEXT_LIMIT_CHARS:
        return None
    return next((found for pair in _PAIRS if (found := pair.fullmatch(text))), None)


def split_pair(text: str) -> Sequence[str]:
    """Return the question for each of a pair; [] if there is none.

    "are 7 and 11 both prime" gives "are 7 prime" and "are 11 prime".
    """
    pair = find_pair(text)
    if pair is None:
        return []
    head, tail = pair["head"], pair["tail"]
    return [f"{head}{pair[name].strip()}{tail}" for name in ("first", "second")]
