"""Finds an agent's tags in a request. The router scores the matches. Pure.

A tag is a phrase of words, a mark such as + or € beside a digit, or words with # for a number: "#
times" is in "7 times 6" and not in "the new york times".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# Letters and digits are separate words, so that USD is found in "100USD".
_WORD = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = "#"
_TAG_WORD = re.compile(rf"{_WORD.pattern}|{_NUMBER}")

# Marks that prose uses too: they count only between two operands. Written as escapes: the signs for
# times, divided by and minus, the middle dot and the en dash.
_BINARY = frozenset("+-*/^=<>\u00d7\u00f7\u2212\u00b7\u2013")
_LETTER = r"[^\W\d_]"
_LEFT_LETTER = rf"(?<!{_LETTER}){_LETTER}"
_RIGHT_LETTER = rf"{_LETTER}(?!{_LETTER})|{_LETTER}{{2,10}}\d{{0,2}}\("
_GAP = r"\s{0,2}"

# Marks inside these are not operators.
_NOT_ARITHMETIC = re.compile(
    # Codes of contracts and standards, too: C-1041, ISO-9001.
    # "a 24/7 hotline", "open 24/7", but "a 1/2 of 10"
    r"(?i:\b(?:an?|open|available|reachable|works?|runs?|support|staffed|on call)\s\d{1,2}/\d{1,2}"
    r"(?=\s(?!of\b|in\b|to\b|as\b|plus\b|minus\b|times\b)[a-z]{3,}|\W{0,4}$))|"
    r"(?-i:\b(?:[A-Z]-\d{3,}|[A-Z]{2,6}-\d+)\b)|https?://\S{1,500}|(?:\b\d{4}[-/.]|--)\d{1,2}[-/.]\d{1,2}\b|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b"
)


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words. Letters and digits are separate words."""
    return _WORD.findall(text.casefold())


# A date without a year, which counts as one number.
_DAY_OF_A_YEAR = re.compile(r"--\d{2}-\d{2}\b")


@dataclass(frozen=True, slots=True)
class SearchableText:
    """A text prepared for the search for tags, once for all agents."""

    words: tuple[str, ...]
    phrase: str = field(repr=False)
    numbered: str = field(repr=False)
    """The phrase, with # for each number."""
    arithmetic: str = field(repr=False)

    @classmethod
    def from_text(cls, text: str) -> "SearchableText":
        """Prepare a text."""
        words = split_words(text)
        counted = split_words(_DAY_OF_A_YEAR.sub(" 1 ", text)) if "--" in text else words
        numbered = (_NUMBER if word.isdecimal() else word for word in counted)
        arithmetic = _NOT_ARITHMETIC.sub(" ", text)
        return cls(tuple(words), _join_phrase(words), _join_phrase(numbered), arithmetic)

    @property
    def has_number(self) -> bool:
        """True if the text has a number."""
        return f" {_NUMBER} " in self.numbered


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag prepared for the search: a phrase, or a mark beside a digit."""

    text: str
    phrase: str
    mark: re.Pattern[str] | None
    is_numbered: bool = False

    @classmethod
    def parse(cls, text: str) -> "Tag":
        """Prepare a tag of a card."""
        if split_words(text):
            phrase = _join_phrase(_TAG_WORD.findall(text.casefold()))
            return cls(text, phrase, None, is_numbered=_NUMBER in phrase)
        return cls(text, "", _compile_mark(text.strip()))

    def is_verb_in(self, request: SearchableText) -> bool:
        """Return whether the tag, which is in the request, is the verb of the words after it.

        A word is a verb ("integrate x^2"). A sign or a function ("sqrt(2)") is not.
        """
        if self.mark is not None:
            return False
        first_word = self.phrase.split(maxsplit=1)[0]
        return f"{first_word}(" not in request.arithmetic.casefold()

    def begins(self, request: SearchableText) -> bool:
        """Return whether the request begins with the tag, and the tag is words without a number."""
        return self.mark is None and not self.is_numbered and request.phrase.startswith(self.phrase)

    def is_in(self, request: SearchableText) -> bool:
        """Return whether the request has the tag, ignoring case."""
        if self.mark is None:
            return self.phrase in (request.numbered if self.is_numbered else request.phrase)
        return self.mark.search(request.arithmetic) is not None


def parse_tags(tags: Iterable[str]) -> tuple[Tag, ...]:
    """Prepare the tags of a card. Blank ones are dropped."""
    return tuple(Tag.parse(tag) for tag in tags if tag.strip())


def _join_phrase(words: Iterable[str]) -> str:
    return f" {' '.join(words)} "


def _compile_mark(mark: str) -> re.Pattern[str]:
    sign = re.escape(mark)
    if not set(mark) <= _BINARY:
        return re.compile(rf"[\d)]{_GAP}{sign}|{sign}{_GAP}[\d(]")
    # One side is a digit or a parenthesis. The other may also be a variable or a function.
    return re.compile(
        rf"[\d)]{_GAP}{sign}{_GAP}(?:[\d(.√-]|{_RIGHT_LETTER})"
        rf"|(?:[\d)%!]|{_LEFT_LETTER}){_GAP}{sign}{_GAP}[\d(.-]",
    )
