"""Lists the words that a pattern matches, to correct misspelled ones by. Pure.

Only what patterns commonly have is followed: "calculat(?:e|ing)" has "calculate" and "calculating",
"factori[sz]e?" has its four spellings.
"""

import re
from collections.abc import Iterator
from itertools import product

# Together they limit the words of one run.
_PARTS_LIMIT = 6
_ALTERNATIVES_LIMIT = 8

_ESCAPE = re.compile(r"\\[a-zA-Z]|\(\?P<\w+>")
_PART = r"(?:[a-z]\?|[a-z]|\[[a-z]{2,3}\]\??|\(\?:[a-z]+(?:\|[a-z]+)*\)\??)"
_RUN = re.compile(rf"(?<![\w\]]){_PART}{{3,}}")
_PARTS = re.compile(
    r"(?P<letters>[a-z]+(?![?a-z]))|(?P<part>[a-z]|\[[a-z]+\]|\(\?:[a-z|]+\))(?P<may>\?)?"
)
_FEWEST_LETTERS = 4


def list_pattern_words(pattern: str) -> Iterator[str]:
    """Yield the words of a pattern, at least four letters long."""
    for run in _RUN.finditer(_ESCAPE.sub(" ", pattern)):
        parts = [_list_alternatives(part) for part in _PARTS.finditer(run[0])]
        if sum(len(part) > 1 for part in parts) > _PARTS_LIMIT:
            continue
        for letters in product(*parts):
            word = "".join(letters)
            if len(word) >= _FEWEST_LETTERS:
                yield word


def _list_alternatives(part: re.Match[str]) -> tuple[str, ...]:
    if part["letters"]:
        return (part["letters"],)
    text = part["part"]
    if text.startswith("["):
        alternatives = tuple(text[1:-1])
    elif text.startswith("("):
        alternatives = tuple(text[3:-1].split("|"))[:_ALTERNATIVES_LIMIT]
    else:
        alternatives = (text,)
    return (*alternatives, "") if part["may"] else alternatives
