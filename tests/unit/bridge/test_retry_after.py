"""How long a server wants to be left alone."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from trunkline_bridge.http_client import parse_retry_after


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("0", 0),
        ("7", 7),
        ("1.5", 1.5),
        ("-3", 0),
        ("3601", 3600),
        ("9" * 60, 3600),
        ("", 0),
        ("soon", 0),
        ("nan", 0),
        ("inf", 0),
        ("9" * 1000, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 9999 07:28:00 GMT", 3600),
        ("Wed, 99 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2999 07:28:00 +9999", 0),
        (" , ", 0),
    ],
)
def test_seconds_and_dates_are_read_and_anything_else_says_nothing(
    text: str, expected_s: float
) -> None:
    assert parse_retry_after(text, limit_s=3600) == expected_s


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_date_is_in_utc(zone: str) -> None:
    date = datetime.now(UTC) + timedelta(seconds=600)
    text = format_datetime(date, usegmt=True).replace("GMT", zone)
    assert 500 < parse_retry_after(text, limit_s=3600) <= 600
