"""Durations as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from trunkline.cli.a2a_cli.failures import CommandError
from trunkline.cli.a2a_cli.options import parse_wait
from trunkline.cli.commands.mesh import parse_lifetime
from trunkline.cli.times import parse_expiry, parse_since
from trunkline.core.durations import parse_duration
from trunkline.errors import InvalidArgumentError

HUGE = "9" * 400 + "d"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("7d", 604_800), ("0s", 0)],
)
def test_a_number_and_a_unit_are_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5S", "5w", ".5s", "5s\n", "1e3s"])
def test_other_texts_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration such as 30s, 10m or 2h"):
        parse_duration(text)


def test_every_command_takes_the_same_durations() -> None:
    now = datetime.now(UTC)

    assert parse_lifetime("1.5h") == timedelta(minutes=90)
    assert now - parse_since("1.5h") == pytest.approx(timedelta(minutes=90), abs=timedelta(0, 5))
    expiry = parse_expiry("--expires", "1.5h") - now
    assert expiry == pytest.approx(timedelta(minutes=90), abs=timedelta(seconds=5))
    assert parse_wait("--timeout")("1.5h") == 5400
    assert parse_wait("--timeout")("5") == 5


def test_a_time_too_long_for_a_date_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="neither a duration"):
        parse_since(HUGE)
    with pytest.raises(InvalidArgumentError, match="--expires"):
        parse_expiry("--expires", HUGE)
    with pytest.raises(InvalidArgumentError, match="30 days at most"):
        parse_lifetime(HUGE)


@pytest.mark.parametrize("text", ["", "0", "0s", "soon", "5 m"])
def test_the_standards_commands_refuse_a_wait_of_no_time(text: str) -> None:
    with pytest.raises(CommandError, match="is no duration such as 2s, 500ms or 5m"):
        parse_wait("--timeout")(text)
