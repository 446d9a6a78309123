"""Which bytes of a file a request asks for (RFC 9110, 13 and 14)."""

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class Span(NamedTuple):
    """Bytes of a file: from the first to before the last."""

    begin: int
    end: int


class Unsatisfiable(Exception):  # noqa: N818  the word of the RFC
    """The file has no such bytes."""


def read_range(given: str | None, condition: str | None, *, etag: str, size: int) -> Span | None:
    """Return the bytes that `Range` asks for, under `If-Range`; None: all of them.

    Several ranges, units other than bytes, and what is none of either are answered with all.

    Raises:
        Unsatisfiable: it begins behind the end.
    """
    if given is None or (condition is not None and condition.strip() != etag):
        return None
    found = _RANGE.fullmatch(given)
    if found is None:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        if not int(last) or not size:
            raise Unsatisfiable
        return Span(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise Unsatisfiable
    return Span(int(first), min(int(last) + 1, size) if last else size)


def is_other(given: str | None, *, etag: str) -> bool:
    """Whether `If-Match` has tags, and none is the file's, compared strongly."""
    if given is None:
        return False
    tags = {tag.strip() for tag in given.split(",")}
    return "*" not in tags and etag not in tags


def is_known(given: str | None, *, etag: str) -> bool:
    """Whether `If-None-Match` has the file's tag, compared weakly."""
    if given is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in tags or etag in tags
