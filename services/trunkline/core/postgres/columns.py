"""The columns of rows, which statements take as arrays."""

from collections.abc import Sequence
from typing import Any


def split_columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """Return the first columns of rows; `count` of them, also without rows."""
    return list(zip(*rows, strict=True))[:count] if rows else [()] * count
