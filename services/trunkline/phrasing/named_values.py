"""Finds the value that a question says beside an argument's name: "zone: middle", "in zone middle".

It says which value was meant, whether or not the argument may have it. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.phrasing.content_words import stem_words
from trunkline.phrasing.plain_values import Span

# Shorter names are words of prose: "a", "to", "by".
_SHORTEST_NAME: Final = 3
_WORDS_LIMIT: Final = 4
_NEAR_CHARS: Final = 20
_WORD: Final = re.compile(r"\w(?:[\w'/.-]*\w)?")
_BLANKS: Final = re.compile(r"[ \t]*")
_MARKS: Final = re.compile(r"[^\w\n,;]*")
_ARTICLE: Final = re.compile(r"(?:an?|the)\s+", re.IGNORECASE)
_BEHIND_ARTICLE: Final = re.compile(r"\b(?:an?|the)\s+$", re.IGNORECASE)
_PREPOSITION: Final = re.compile(r"\b(?:in|at|with|for|on|of|by|from|to)\s+$", re.IGNORECASE)
# A word that continues the clause.
_NEXT_WORD: Final = re.compile(r"[^\S\n]+(\w+)")


def join_name(words: Sequence[str]) -> str:
    """Return the pattern of an argument's name in a question: `from_unit` is "from unit" there."""
    return r"[\s_-]?".join(map(re.escape, words))


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value beside an argument's name."""

    start: int
    """The position of the name."""
    begin: int
    """The position behind the name, and behind the colon or the like."""
    end: int
    text: str
    """The value in short; "" if the question may say something else there."""
    is_explicit: bool
    """A colon or an equals sign is before it."""


class NamedValues:
    """The values of one question beside names of arguments."""

    def __init__(
        self, question: str, values: Sequence[Span], names: frozenset[str], tool: frozenset[str]
    ) -> None:
        """`names` are the stems of the words of all arguments' names, `tool` those of the tool's.

        Such words are no values, unless a colon or an equals sign is before them.
        """
        self._question = question
        self._folded = question.casefold()
        self._values = values
        self._no_values = names | tool
        self._tool = tool

    def find_stated(self, words: Sequence[str]) -> NamedValue | None:
        """Return the value behind the name and a colon or "=", or else behind "is".

        The last counts: a correction comes after what it corrects.
        """
        if names := self._find_names(words, r"\s*[=:]\s*"):
            place = names[-1]
            end = self._find_end(place.end(), is_explicit=True)
            return self._build(place, end, is_explicit=True)
        if names := self._find_names(words, r"\s+is\s+"):
            place = names[-1]
            is_clear = self._can_stand_alone(words)
            end = self._find_end(place.end(), is_explicit=False) if is_clear else place.end()
            return self._build(place, end, is_explicit=False)
        return None

    def find_adjacent(self, words: Sequence[str], *, is_choice: bool) -> NamedValue | None:
        """Return the word or value that follows the name alone: "zone middle".

        It ends its clause, or a word without meaning follows. In sentences that only mention the
        name, another word often follows. A choice needs only a preposition before its name.
        """
        if not self._can_stand_alone(words):
            return None
        for place in reversed(self._find_names(words, r"\s+(?=[\w\"'“«`+-])")):
            end = self._find_end(place.end(), is_explicit=False, words_limit=1)
            before = self._question[max(0, place.start() - _NEAR_CHARS) : place.start()]
            # "the level road" is no level.
            if end == place.end() or _BEHIND_ARTICLE.search(before):
                continue
            if (is_choice and _PREPOSITION.search(before)) or self._ends_phrase(end):
                return self._build(place, end, is_explicit=False)
        return None

    def _find_names(self, words: Sequence[str], mark: str) -> list[re.Match[str]]:
        if not words or any(word not in self._folded for word in words):
            return []
        names = re.finditer(rf"(?<!\w){join_name(words)}{mark}", self._question, re.IGNORECASE)
        # A name in quotation marks belongs to the text there.
        return [
            place
            for place in names
            if not any(value.overlaps(place.start(), place.end()) for value in self._values)
        ]

    def _can_stand_alone(self, words: Sequence[str]) -> bool:
        """Return whether a name without a colon is more than a word of the request."""
        stems = stem_words(words)
        return bool(stems) and len("".join(words)) >= _SHORTEST_NAME and not stems <= self._tool

    def _build(self, place: re.Match[str], end: int, *, is_explicit: bool) -> NamedValue:
        begin = place.end()
        value = self._value_at(begin)
        text = value.text if value else self._question[begin:end].strip()
        return NamedValue(place.start(), begin, end, text, is_explicit)

    def _value_at(self, position: int) -> Span | None:
        return next((value for value in self._values if value.start == position), None)

    def _find_end(self, begin: int, *, is_explicit: bool, words_limit: int = _WORDS_LIMIT) -> int:
        """Return the end of a value: of one in digits or quotation marks, or of some words."""
        if value := self._value_at(begin):
            return value.end
        end = begin
        article = _ARTICLE.match(self._question, begin) if words_limit > 1 else None
        position = article.end() if article else begin
        gap = _MARKS
        for count in range(words_limit):
            before = gap.match(self._question, position)
            word = _WORD.match(self._question, before.end() if before else position)
            if word is None or not (self._is_value(word) or (is_explicit and count == 0)):
                break
            position = end = word.end()
            gap = _BLANKS
        return end

    def _is_value(self, word: re.Match[str]) -> bool:
        stems = stem_words([word[0].casefold()])
        is_other = any(value.overlaps(word.start(), word.end()) for value in self._values)
        return bool(stems) and not stems & self._no_values and not is_other

    def _ends_phrase(self, position: int) -> bool:
        word = _NEXT_WORD.match(self._question, position)
        if word is None:
            return True
        stems = stem_words([word[1].casefold()])
        return not stems or bool(stems & self._no_values)
