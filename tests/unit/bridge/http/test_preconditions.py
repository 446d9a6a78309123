"""Conditions of requests against an ETag and a modification time."""

from datetime import UTC, datetime

import pytest

from trunkline_bridge.http.preconditions import is_not_modified

MODIFIED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Thu, 01 Jan 2099 00:00:00 +99999999999999",
        "Thu, 01 Jan 2099 999999999999999999999:00:00 GMT",
    ],
)
def test_an_invalid_date_is_ignored(date: str) -> None:
    """RFC 9110, 13.1.3. A date beyond any integer used to fail with HTTP 500."""
    assert not is_not_modified(None, date, etag='W/"a"', modified=MODIFIED)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Thu, 01 Jan 2026 00:00:00 GMT", True),
        ("Wed, 31 Dec 2025 23:59:59 GMT", False),
        ("Thu, 01 Jan 2026 01:00:00 +0100", True),
    ],
)
def test_a_date_is_compared_with_the_modification_time(date: str, *, expected: bool) -> None:
    assert is_not_modified(None, date, etag='W/"a"', modified=MODIFIED) is expected


def test_etags_win_over_the_date_and_are_compared_weakly() -> None:
    date = "Thu, 01 Jan 2099 00:00:00 GMT"
    assert is_not_modified('"b", "a"', None, etag='W/"a"', modified=MODIFIED)
    assert not is_not_modified('"b"', date, etag='W/"a"', modified=MODIFIED)
