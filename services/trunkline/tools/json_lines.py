"""Finds the line of a value in a JSON document, for errors about a file that people write."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Final

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


def find_line(text: str, keys: Sequence[str]) -> int:
    """Return the line, from 1, of the value at a path in a valid document.

    The path has keys of objects and indexes of lists. If a key is missing, the line is that of the
    last value on the way to it.
    """
    found = start = _skip_space(text, 0)
    for key in keys:
        for name, place, value in _members(text, start):
            if name == key:
                found, start = place, value
                break
        else:
            break
    return text.count("\n", 0, found) + 1


def find_duplicate(text: str) -> tuple[int, tuple[str, ...]] | None:
    """Return the line and the path of the first key that its object has twice, in a valid document.

    A parser keeps the last value and drops the others in silence.
    """
    waiting: list[tuple[int, tuple[str, ...]]] = [(_skip_space(text, 0), ())]
    while waiting:
        start, path = waiting.pop(0)
        names: set[str] = set()
        for name, place, value in _members(text, start):
            if name in names:
                return text.count("\n", 0, place) + 1, (*path, name)
            names.add(name)
            waiting.append((value, (*path, name)))
    return None


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the members of the object or list at a position: name, position, value's position."""
    opening = text[start]
    if opening not in "{[":
        return
    position = _skip_space(text, start + 1)
    for index in itertools.count():
        if text[position] in "}]":
            return
        name, value = str(index), position
        if opening == "{":
            name, end = _DECODER.raw_decode(text, position)
            # After the colon.
            value = _skip_space(text, _skip_space(text, end) + 1)
        yield name, position, value
        _, end = _DECODER.raw_decode(text, value)
        position = _skip_space(text, end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    while text[position : position + 1] in _SPACE and position < len(text):
        position += 1
    return position
