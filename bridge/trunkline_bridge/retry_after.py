"""Reads the header Retry-After: how long a server wants to be left alone (RFC 9110, 10.2.3)."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

# Seconds or a date; nothing that is longer is either.
_LENGTH: Final = 64


def retry_after_s(text: str, *, limit_s: float) -> float:
    """Return for how many seconds from now, at most `limit_s`; 0: it doesn't say."""
    if not text or len(text) > _LENGTH:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = _until(text)
    return min(max(seconds, 0.0), limit_s) if math.isfinite(seconds) else 0.0


def _until(text: str) -> float:
    try:
        date = parsedate_to_datetime(text)
    # Which of them it raises for what is no date depends on how far it has come.
    except (ValueError, OverflowError, IndexError, TypeError):
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - datetime.now(UTC)).total_seconds()
