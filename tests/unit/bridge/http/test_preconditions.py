"""Dates in conditions of requests that are no dates."""

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
