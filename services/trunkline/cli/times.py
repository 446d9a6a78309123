"""Times as people read and write them: ages, durations, and the times that options take."""

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf import timestamp_pb2

from trunkline.core.durations import parse_duration
from trunkline.errors import InvalidArgumentError

# Seconds in a unit, and the unit, as `--since` takes it.
_AGE_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
# An age below this is "now": it is old before it is read.
_NOW_S: Final = 5


def render_age(time: datetime, now: datetime) -> str:
    """Return how long ago a time was, such as `3m ago`, as the page does; `now` if ahead."""
    seconds = int((now - time).total_seconds())
    for size, unit in _AGE_UNITS:
        if seconds >= max(size, _NOW_S):
            return f"{seconds // size}{unit} ago"
    return "now"


def render_expiry(time: datetime, now: datetime) -> str:
    """Return when a time is or was, such as `in 3m` or `3m ago`."""
    ahead = render_age(now, time)
    return render_age(time, now) if ahead == "now" else f"in {ahead.removesuffix(' ago')}"


def render_duration(seconds: float) -> str:
    """Return a duration, such as `840 µs`, `12.4 ms`, `3.21 s` or `2m 5s`, as the page does."""
    milliseconds = seconds * 1000
    if 0 < milliseconds < 0.9995:
        return f"{milliseconds * 1000:.0f} µs"
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    if milliseconds < 59_950:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def render_latency(milliseconds: float) -> str:
    """Return how long a call took, given in milliseconds, as `render_duration`."""
    return render_duration(milliseconds / 1000)


def render_percent(ratio: float) -> str:
    """Return a ratio from 0 to 1, such as `88%` or `1.2%`, as the page does."""
    percent = ratio * 100
    return f"{percent:.0f}%" if not percent or percent >= 9.95 else f"{percent:.1f}%"


def render_cost(micros: int) -> str:
    """Return a price in millionths of a US dollar, such as `$0.0123`, as the page does."""
    dollars = micros / 1_000_000
    return f"${dollars:.4f}" if 0 < dollars < 1 else f"${dollars:.2f}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def time_cell(time: timestamp_pb2.Timestamp) -> str:
    """Return a time as a cell of a table: its age on a terminal, else RFC 3339 in UTC."""
    return _cell(time, render_age)


def expiry_cell(time: timestamp_pb2.Timestamp) -> str:
    """Return when something expires: how far away that is on a terminal, else RFC 3339 in UTC."""
    return _cell(time, render_expiry)


def _cell(time: timestamp_pb2.Timestamp, render: Callable[[datetime, datetime], str]) -> str:
    if not time.ToNanoseconds():
        return ""
    if sys.stdout.isatty():
        return render(time.ToDatetime(UTC), datetime.now(UTC))
    return time.ToJsonString()


def describe_time(time: timestamp_pb2.Timestamp) -> str:
    """Return a time in RFC 3339; on a terminal, in seconds and after its age."""
    if not sys.stdout.isatty():
        return time.ToJsonString()
    seconds = timestamp_pb2.Timestamp(seconds=time.seconds)
    return f"{time_cell(time)} ({seconds.ToJsonString()})"


def parse_since(text: str) -> datetime:
    """Parse the value of `--since`: an age such as `30m`, or a time in ISO 8601, by default UTC.

    Raises:
        InvalidArgumentError: it is neither.
    """
    return _parse_time("--since", text, direction=-1)


def parse_expiry(option: str, text: str) -> datetime:
    """Parse a time ahead, in whole seconds: a duration from now such as `90d`, or ISO 8601.

    `option` takes the value. A time without an offset is in UTC.

    Raises:
        InvalidArgumentError: it is neither.
    """
    return _parse_time(option, text, direction=1).replace(microsecond=0)


def _parse_time(where: str, text: str, *, direction: int) -> datetime:
    try:
        with suppress(ValueError):
            return datetime.now(UTC) + direction * timedelta(seconds=parse_duration(text))
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        problem = (
            f"{text!r} is neither a duration (90s, 30m, 12h, 7d) nor a time (2026-11-30T12:00Z)"
        )
        raise InvalidArgumentError(where, problem) from None
