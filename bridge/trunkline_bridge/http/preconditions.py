"""Conditional and range requests (RFC 9110, 13 and 14): validates their headers against an ETag."""

import re
from datetime import datetime
from typing import NamedTuple

from trunkline.network import parse_http_date

_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """A range of bytes, from `begin` up to but excluding `end`."""

    begin: int
    end: int


class UnsatisfiableRangeError(Exception):
    """The range begins after the end of the file."""


def parse_range(
    range_header: str | None, if_range: str | None, *, etag: str, size: int
) -> ByteRange | None:
    """Return the bytes that `Range` requests, or None for the whole file.

    The whole file is sent if `If-Range` does not hold. Several ranges, other units and malformed
    ranges are ignored.

    Raises:
        UnsatisfiableRangeError: the range begins after the end of the file.
    """
    if range_header is None or (if_range is not None and if_range.strip() != etag):
        return None
    match = _RANGE.fullmatch(range_header)
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        if not last:
            return None
        if not int(last) or not size:
            raise UnsatisfiableRangeError
        return ByteRange(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise UnsatisfiableRangeError
    return ByteRange(int(first), min(int(last) + 1, size) if last else size)


def if_match_fails(if_match: str | None, *, etag: str) -> bool:
    """Return whether `If-Match` lacks the ETag, by strong comparison."""
    if if_match is None:
        return False
    tags = {tag.strip() for tag in if_match.split(",")}
    return "*" not in tags and etag not in tags


def if_none_match_fails(if_none_match: str | None, *, etag: str) -> bool:
    """Return whether `If-None-Match` has the ETag, by weak comparison."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags


def is_not_modified(
    if_none_match: str | None, if_modified_since: str | None, *, etag: str, modified: datetime
) -> bool:
    """Return whether a GET request gets a 304: by its ETags, or without any by its date.

    An invalid date is ignored.
    """
    if if_none_match is not None:
        return if_none_match_fails(if_none_match, etag=etag)
    since = parse_http_date(if_modified_since or "")
    return since is not None and modified <= since
