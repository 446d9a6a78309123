"""Compares texts by the words that carry their meaning. Pure."""

import re
from collections.abc import Iterable
from typing import Final

# A word that the names of many tools begin with says little.
_GENERIC: Final = 0.25
_GENERIC_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """add create delete fetch find get list look lookup make query read run search set show
        tell update use""",
    )
)
_IGNORED_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """a about am an and any are as at be been by can could did do does for from give had has
        have hello hey hi how i if in into is it its kindly let like many may me more much my now of
        off on one or our out over please shall should so some than thank thanks that the their them
        then there these they this those to tool up us want was we were what when where which who
        why will with would you your""",
    )
)
# The least share of a request's words that a description has to explain, and of the words of its
# name that the request has to say. Without an argument to confirm it, a fit needs more of both.
_EXPLAINED: Final = 0.5
_NAMED: Final = 0.5
_EXPLAINED_ALONE: Final = 0.75
_NAMED_ALONE: Final = 0.99
_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")

_SHORTEST_STEM: Final = 3


def split_lower_words(text: str) -> list[str]:
    """Split a text into lower-case words."""
    return [word.casefold() for word in _WORD.findall(text)]


def stem_words(words: Iterable[str]) -> frozenset[str]:
    """Return words without common endings and without those that carry no meaning."""
    return frozenset(_stem(word) for word in words if word not in _IGNORED_WORDS)


def _stem(word: str) -> str:
    word = word.partition("'")[0]
    if word in _GENERIC_WORDS:
        return word
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def share_of(words: Iterable[str], others: frozenset[str]) -> float:
    """Return the share of words, by weight, that are among others; 0 without words."""
    weights = {word: _GENERIC if word in _GENERIC_WORDS else 1.0 for word in words}
    total = sum(weights.values())
    return sum(weight for word, weight in weights.items() if word in others) / total if total else 0


def fits_description(
    *, named: float, explained: float, has_argument: bool, lacks_argument: bool = False
) -> bool:
    """Return whether a request fits a tool or skill by its name and description.

    Supervisors decide by it which agent is asked, and the `rules` model which tool is called.

    Args:
        named: The share of the name's words that the request says.
        explained: The share of the request's other words that the description has.
        has_argument: The request has a value for an argument.
        lacks_argument: An argument is still to be asked for.
    """
    least_named = _NAMED if has_argument or lacks_argument else _NAMED_ALONE
    least_explained = _EXPLAINED if has_argument else _EXPLAINED_ALONE
    return named >= least_named and explained >= least_explained
