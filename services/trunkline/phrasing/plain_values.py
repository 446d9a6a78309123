"""Finds the values that a question says plainly: numbers, dates, URLs, quoted text. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from trunkline.phrasing.number_words import NumberPhrase, find_numbers

_VALUES: Final = re.compile(
    r"""
    "(?P<quote>[^"]*)" | “(?P<curly>[^”]*)” | «(?P<angle>[^»]*)» | `(?P<tick>[^`]*)`
    | (?<!\w)'(?P<single>[^']+)'(?!\w)
    | (?P<url>https?://[^\s<>"]*[^\s<>".,;:!?)\]])
    | (?P<email>[\w.+-]{1,64}@\w[\w-]*(?:\.[\w-]+)+)
    | (?P<datetime>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)
    | (?P<date>(?<!\d)\d{4}-\d\d-\d\d(?!\d))
    | (?P<time>(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?![\d:]))
    | (?P<number>(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d))
    """,
    re.VERBOSE,
)
_QUOTES: Final = frozenset({"quote", "curly", "angle", "tick", "single"})
# A number as number_words writes it: "(2/3)", "2.5", and "1.5 hours" for "an hour and a half".
_DIGITS: Final = re.compile(r"(?:\((?P<over>\d+/\d+)\)|(?P<plain>\d+(?:\.\d+)?))(?: [a-z]+)?")
_NUMBER_WORDS_LIMIT: Final = 32
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Span:
    """A value that a question says plainly, and its position."""

    kind: str
    start: int
    end: int
    text: str

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether it shares a character with a place."""
        return self.start < end and start < self.end


def find_values(question: str) -> list[Span]:
    """Return the values in a question, in order. They do not overlap."""
    spans = []
    for match in _VALUES.finditer(question):
        kind = match.lastgroup or ""
        text = match[kind]
        spans.append(
            Span("text" if kind in _QUOTES else kind, match.start(), match.end(), text.strip())
        )
    return spans


# One question is compared with the schemas of many tools.
@lru_cache(maxsize=4)
def find_values_and_words(question: str) -> tuple[Sequence[Span], Sequence[Span]]:
    """Return the values in a question, and the numbers that it has in words alone: "two".

    Words that belong to digits are one value with them: "2 million", "28 July 2026".
    """
    values = find_values(question)
    words = []
    for phrase in find_numbers(question):
        span = _read_phrase(phrase)
        if span is None:
            continue
        beside = [value for value in values if value.overlaps(span.start, span.end)]
        if any(value.kind != "number" for value in beside):
            continue
        if beside or span.kind == "date":
            values = [value for value in values if value not in beside]
            values.append(span)
        else:
            words.append(span)
    values.sort(key=lambda value: value.start)
    return tuple(values), tuple(words[:_NUMBER_WORDS_LIMIT])


def read_number(text: str) -> str:
    """Return the digits of a number that may be in words; other texts unchanged."""
    text = text.strip()
    match find_numbers(text):
        case [phrase] if (phrase.start, phrase.end) == (0, len(text)):
            span = _read_phrase(phrase)
            return span.text if span and span.kind == "number" else text
    return text


def _read_phrase(phrase: NumberPhrase) -> Span | None:
    """Return a phrase as a value; None for a day without a year, and for ordinals."""
    if _ISO_DATE.fullmatch(phrase.digits):
        return Span("date", phrase.start, phrase.end, phrase.digits)
    digits = _DIGITS.fullmatch(phrase.digits)
    if digits is None:
        return None
    text = json.dumps(float(Fraction(digits["over"]))) if digits["over"] else digits["plain"]
    return Span("number", phrase.start, phrase.end, text)
