"""The columns of rows, which statements take as arrays."""

from collections.abc import Sequence
from typing import Any


def split_columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return the columns of rows; `count` of them, also without rows."""
    return [[row[number] for row in rows] for number in range(count)]
