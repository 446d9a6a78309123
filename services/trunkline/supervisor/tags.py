"""Finds an agent's tags in a request. Pure; what a find is worth is routing's affair.

A tag is words, found as a phrase; or a mark such as + or €, found beside a digit; or words with a
#, which stands for a number: "# times" is in "7 times 6" and not in "the new york times".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# Letters and digits are words of their own, so that USD is found in "100USD".
_WORD = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = "#"
_TAG_WORD = re.compile(rf"{_WORD.pattern}|{_NUMBER}")

# Marks that prose uses, too: they count between two operands only.
# As escapes: the signs for times, divided by and minus, the middle dot and the en dash.
_BINARY = frozenset("+-*/^=<>\u00d7\u00f7\u2212\u00b7\u2013")
_LETTER = r"[^\W\d_]"
_LEFT_LETTER = rf"(?<!{_LETTER}){_LETTER}"
_RIGHT_LETTER = rf"{_LETTER}(?!{_LETTER})|{_LETTER}{{2,10}}\d{{0,2}}\("
_GAP = r"\s{0,2}"

# Marks inside these are no operators.
_NOT_ARITHMETIC = re.compile(
    r"https?://\S{1,500}|\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b"
)


def split_words(text: str) -> list[str]:
    """Return the words of a text, lower-case; letters and digits are apart."""
    return _WORD.findall(text.casefold())


@dataclass(frozen=True, slots=True)
class SearchableText:
    """A text made ready to be searched for tags, once for all agents."""

    words: tuple[str, ...]
    phrase: str = field(repr=False)
    numbered: str = field(repr=False)
    """The phrase, with a # for each number."""
    arithmetic: str = field(repr=False)

    @classmethod
    def from_text(cls, text: str) -> "SearchableText":
        """Prepare a text."""
        words = split_words(text)
        numbered = (_NUMBER if word.isdecimal() else word for word in words)
        arithmetic = _NOT_ARITHMETIC.sub(" ", text)
        return cls(tuple(words), _phrase(words), _phrase(numbered), arithmetic)


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag as it is searched for: words as a phrase, anything else as a mark beside a digit."""

    text: str
    phrase: str
    mark: re.Pattern[str] | None
    is_numbered: bool = False

    @classmethod
    def parse(cls, text: str) -> "Tag":
        """Prepare a tag of a card."""
        if split_words(text):
            phrase = _phrase(_TAG_WORD.findall(text.casefold()))
            return cls(text, phrase, None, is_numbered=_NUMBER in phrase)
        return cls(text, "", _mark(text.strip()))

    def is_verb_in(self, request: SearchableText) -> bool:
        """Whether the tag, which is in the request, rules what comes behind it.

        Words do ("integrate x^2"), signs and functions ("sqrt(2)") don't.
        """
        if self.mark is not None:
            return False
        first = self.phrase.split(maxsplit=1)[0]
        return f"{first}(" not in request.arithmetic.casefold()

    def is_in(self, request: SearchableText) -> bool:
        """Whether the request has the tag, without regard to case."""
        if self.mark is None:
            return self.phrase in (request.numbered if self.is_numbered else request.phrase)
        return self.mark.search(request.arithmetic) is not None


def parse_tags(tags: Iterable[str]) -> tuple[Tag, ...]:
    """Prepare the tags of a card, without blank ones."""
    return tuple(Tag.parse(tag) for tag in tags if tag.strip())


def _phrase(words: Iterable[str]) -> str:
    return f" {' '.join(words)} "


def _mark(mark: str) -> re.Pattern[str]:
    sign = re.escape(mark)
    if not set(mark) <= _BINARY:
        return re.compile(rf"[\d)]{_GAP}{sign}|{sign}{_GAP}[\d(]")
    # One side is a digit or a parenthesis; the other may be a variable or a function, too.
    return re.compile(
        rf"[\d)]{_GAP}{sign}{_GAP}(?:[\d(.√-]|{_RIGHT_LETTER})"
        rf"|(?:[\d)%!]|{_LEFT_LETTER}){_GAP}{sign}{_GAP}[\d(.-]",
    )
