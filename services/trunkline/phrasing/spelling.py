"""Corrects misspelled words by a vocabulary that tools or cards declare.

Only words in lower case are corrected, so that names and codes of currencies stay, and only those
with one nearest word. A word of the vocabulary stays as it is. The first letter has to be right,
which few typing errors miss and which keeps the search short. All work is limited: long texts, and
those with many unknown words, are no questions with a typing error.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

TEXT_LIMIT_CHARS = 300
"""Longer texts are returned unchanged."""
_UNKNOWN_LIMIT = 12
_VOCABULARY_LIMIT = 5000
_SHORTEST = 4
# From this length on, two errors are allowed in a word.
_LONG = 8
_LONGEST = 20
# Shorter words are near to many others: only exchanged letters are corrected in them.
_SHORT = 5
_WORD = re.compile(r"(?<![\w'])[a-z]+(?![\w'])", re.IGNORECASE)
# Words that are one letter away from those that agents declare, and are no errors.
_ORDINARY_LIST = (
    "price prices "
    "forms prize prizes route spare scare circle sound ground minor menus timer tines plush "
    "expend extend extent drive driver drivers drives powder tower numbed device devices "
    "advice convent concert ration rations yearly weekly house houses money means meant media "
    "medium charge charged pager present parent patent food matters letter letters later "
    "latter digger lesson sign sigh thin want quota sheet shape home note notice news "
    "next text test tests valve valued event events ever every eight height weight weights "
    "went wine mines files mills gains drawn trip trips sales cast cases area cure curves "
    "firm farm loose lost mouth months moth store"
)
_ORDINARY = frozenset(_ORDINARY_LIST.split())
# Errors in words too short for the search.
_COMMON_ERRORS = {
    **dict.fromkeys(("teh", "hte"), "the"),
    **dict.fromkeys(("adn", "nad"), "and"),
    **dict.fromkeys(("waht", "whta", "wht"), "what"),
}


class Vocabulary:
    """The words that misspelled ones are corrected to."""

    def __init__(self, words: Iterable[str]) -> None:
        """Take words. Those after the first some thousand are left out."""
        self._words = frozenset(
            word for word, _ in zip(dict.fromkeys(words), range(_VOCABULARY_LIMIT), strict=False)
        )
        self._by_opening: dict[tuple[str, int], list[str]] = defaultdict(list)
        for word in sorted(self._words):
            if _SHORTEST <= len(word) <= _LONGEST:
                self._by_opening[word[0], len(word)].append(word)

    def correct(self, text: str) -> str:
        """Return the text with its misspelled words corrected."""
        if len(text) > TEXT_LIMIT_CHARS:
            return text
        found = [match for match in _WORD.finditer(text) if self._may_be_misspelled(match)]
        if len(found) > _UNKNOWN_LIMIT:
            return text
        pieces = []
        position = 0
        for match in found:
            word = match[0].lower()
            corrected = _COMMON_ERRORS.get(word) or self._find_nearest(word)
            if not corrected and word.endswith("s") and (one := self._find_nearest(word[:-1])):
                corrected = f"{one}s"
            if corrected:
                pieces += [text[position : match.start()], corrected]
                position = match.end()
        return "".join([*pieces, text[position:]])

    def _may_be_misspelled(self, match: re.Match[str]) -> bool:
        word = match[0]
        is_plain = word.islower() or (match.start() == 0 and word[1:].islower())
        lowered = word.lower()
        return (
            is_plain
            and (_SHORTEST <= len(word) <= _LONGEST or lowered in _COMMON_ERRORS)
            and lowered not in self._words
            and lowered not in _ORDINARY
        )

    def _find_nearest(self, word: str) -> str:
        """Return the only nearest word within the limit, or ""."""
        limit = 2 if len(word) >= _LONG else 1
        nearest: list[str] = []
        for length in range(len(word) - limit, len(word) + limit + 1):
            for candidate in self._by_opening.get((word[0], length), ()):
                if len(word) < _SHORT and sorted(word) != sorted(candidate):
                    continue
                distance = measure_distance(word, candidate, limit)
                if distance < limit:
                    limit, nearest = distance, []
                if distance == limit:
                    nearest.append(candidate)
        # A plural is as near as its singular: the word's own ending decides.
        fitting = [candidate for candidate in nearest if candidate[-1] == word[-1]] or nearest
        # "kilometrs" is near to both spellings of one word.
        is_one_word = all(measure_distance(fitting[0], other, 2) <= 2 for other in fitting[1:])
        return fitting[0] if fitting and (len(fitting) == 1 or (is_one_word and limit < 2)) else ""


def measure_distance(word: str, other: str, limit: int) -> int:
    """Return how many letters are missing, extra, wrong or exchanged; `limit` + 1 if more."""
    if abs(len(word) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        above, row = row, [i]
        for j, other_letter in enumerate(other, start=1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before = above
    return row[-1]
