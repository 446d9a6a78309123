"""Words of similar meaning, from a table that ships: "soap" has "detergent".

scripts/make_similar_words.py makes the table. It has stems, as SQLite's full-text index does.
"""

import sqlite3
import struct
import sys
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Final

_HEADER: Final = struct.Struct("<III")


class SimilarWords:
    """The table. Numbers of words are positions in it."""

    def __init__(self, table: bytes) -> None:
        """Read a table: lengths, stems, numbers of pairs, others, shares."""
        names_size, count, pairs = _HEADER.unpack_from(table)
        start = _HEADER.size + names_size
        self._stems = table[_HEADER.size : start].decode().split("\n")
        self._numbers = {stem: number for number, stem in enumerate(self._stems)}
        counts = _read_numbers(table[start : start + 2 * count])
        start += 2 * count
        self._others = _read_numbers(table[start : start + 2 * pairs])
        self._shares = table[start + 2 * pairs :]
        self._starts = array("L", accumulate(counts, initial=0))

    def __contains__(self, stem: str) -> bool:
        return stem in self._numbers

    def find(self, stem: str) -> dict[str, float]:
        """Return similar stems, the most similar first, with the share of the word they are worth.

        Empty for a word that the table does not have.
        """
        number = self._numbers.get(stem)
        if number is None:
            return {}
        start, end = self._starts[number], self._starts[number + 1]
        return {
            self._stems[self._others[index]]: self._shares[index] / 100
            for index in range(start, end)
        }


@cache
def load_similar_words() -> SimilarWords:
    """Return the table that ships, read once."""
    return SimilarWords(files(__package__).joinpath("similar_words.bin").read_bytes())


def stem_words(words: Sequence[str]) -> list[str]:
    """Return the stems of words in the full-text index; of a word with several parts, the first."""
    database = sqlite3.connect(":memory:")
    try:
        database.execute(
            "CREATE VIRTUAL TABLE texts USING fts5"
            " (text, tokenize='porter unicode61 remove_diacritics 2')"
        )
        database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('texts', 'instance')")
        database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(words))
        found = database.execute("SELECT doc, term FROM terms WHERE offset = 0").fetchall()
        stems: dict[int, str] = dict(found)
    finally:
        database.close()
    return [stems.get(number, word) for number, word in enumerate(words)]


def _read_numbers(data: bytes) -> "array[int]":
    numbers = array("H", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
