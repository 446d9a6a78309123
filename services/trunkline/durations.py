"""Durations as people write them, such as `500ms`, `30s`, `10m`, `2h` or `7d`."""

import re
from typing import Final

DURATION_PATTERN: Final = r"^\d+(\.\d+)?(ms|s|m|h|d)$"
"""A duration, in a JSON Schema."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration. ValueError: the text is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration such as 30s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]
