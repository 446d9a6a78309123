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
_SHARE = (
    r"(?:half|\(?\d+/\d+\)?|\d[\d.]*\s?(?:%|per\s?cent\b)"
    r"|(?:an?|one)\s(?:half|third|quarter|fifth|tenth))"
)
# An operation that takes one number: "the square root of 16 and 25". "The sum of the squares of 3
# and 4" is one question.
_OF_ONE = (
    r"(?!.*\b(?:sum|product|difference|average|mean|total|ratio|add|multiply|common|between)\b)"
    r"[^\n]*?\b(?:roots?|squares?|cubes?|half|doubles?|factorials?|factors|divisors|sqrt"
    r"|reciprocals?|factori[sz]ations?)\sof\s"
)
# What is before a pair, and the pair. The first that matches a whole text counts.
_PAIRS = tuple(
    re.compile(rf"(?P<head>{before}){pair}(?P<tail>[^\n]*)", re.IGNORECASE)
    for before, pair in (
        # "the sum and the product of 6 and 9", "both the square and the cube of 4"
        (
            r"[^\n]*?",
            rf"(?:\bboth\s|\b(?=the\s)|^)(?P<first>{_NAME})(?P<joint>\sand\s)(?P<second>{_NAME})"
            r"(?=\sof\s)",
        ),
        # "is 1001 divisible by 7 and 11", "the square root of 16 and 25"
        *(
            (
                before,
                rf"(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})(?=\W*$)",
            )
            for before in (r"[^\n]*?\b(?:divisible\sby|multiple\sof)\s", _OF_ONE)
        ),
        # "are 7 and 11 prime"
        (
            r"(?:is|are|was|were)\s",
            rf"(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})"
            r"(?=\s(?:prime|even|odd|composite|divisible|perfect|triangular)\b)",
        ),
        # Two shares of one number, as a half and a third of 90.
        (
            r"[^\n]*?",
            rf"(?<![\w./])(?P<first>{_SHARE})(?P<joint>\sand\s)(?P<second>{_SHARE})(?=\soff?\s)",
        ),
        # "are both 7 and 11 prime", "are 7 and 11 both prime", "is 12 both even and a square"
        *(
            (r"[^\n]*?", pair)
            for pair in (
                rf"\bboth\s(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})",
                rf"(?<![\d./])(?P<first>{_NUMBER})(?P<joint>\sand\s)(?P<second>{_NUMBER})\sboth"
                rf"(?=\s)",
                r"\bboth\s(?P<first>[^,;?]{1,80}?)(?P<joint>\sand\s)(?P<second>[^,;?]{1,80})",
            )
        ),
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
