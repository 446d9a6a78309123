"""Addresses of this machine, and the pause of a Retry-After header."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from trunkline.core.network import is_loopback, is_this_machine, parse_retry_after


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
def test_seconds_and_dates_are_parsed_and_anything_else_is_zero(
    text: str, expected_s: float
) -> None:
    assert parse_retry_after(text, limit_s=3600) == expected_s


def test_a_pause_is_at_most_a_day() -> None:
    assert parse_retry_after("1e300") == 86_400


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_date_is_in_utc(zone: str) -> None:
    date = datetime.now(UTC) + timedelta(seconds=600)
    text = format_datetime(date, usegmt=True).replace("GMT", zone)
    assert 500 < parse_retry_after(text, limit_s=3600) <= 600


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1",
        "https://localhost/a",
        "http://[::1]:8000",
        "http://0.0.0.0:1",
        "127.0.0.1:50051",
        "[::1]:50051",
        "localhost.:1",
        "localhost",
        "127.8.9.10",
        "::1",
        "::",
        "unix:/tmp/mesh.sock",
        "unix-abstract:mesh",
    ],
)
def test_these_addresses_are_on_this_machine(address: str) -> None:
    assert is_this_machine(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com:8000",
        "http://10.0.0.1",
        "http://localhost.example.com",
        "127.0.0.1.example.com:1",
        "10.0.0.1:50051",
        "dns:///mesh.example:50051",
        "[broken",
        "",
    ],
)
def test_these_addresses_may_be_on_other_machines(address: str) -> None:
    assert not is_this_machine(address)


def test_an_unspecified_address_is_reachable_from_other_machines() -> None:
    assert not is_loopback("0.0.0.0")  # noqa: S104  a value to parse, not an address to bind
    assert is_loopback("127.0.0.1")
