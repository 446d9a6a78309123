"""The size of a promise test, and the line that a proof prints."""

import statistics
import sys
from collections.abc import Sequence
from typing import TypeVar

_Size = TypeVar("_Size")


class PromiseScale:
    """CI's size of a promise test, or the full one of `make prove`."""

    def __init__(self, test: str, seed: int, *, is_proof: bool, rounds: int | None = None) -> None:
        self.is_proof = is_proof
        self._rounds = rounds
        self._test = test
        self._seed = seed

    def pick(self, *, ci: _Size, prove: _Size) -> _Size:
        """Return the value for the current size."""
        return prove if self.is_proof else ci

    def rounds(self, default: int) -> int:
        """Return the rounds of a proof that repeats itself: those of `--rounds`, else its own."""
        return self._rounds or default

    def show_progress(self, done: int, all: int, step: object) -> None:  # noqa: A002
        """Print a line in a proof, so that a long one shows its progress."""
        if self.is_proof:
            sys.stderr.write(f"{self._test} {done}/{all} {step}\n")

    def report(self, **figures: object) -> None:
        """Print one line of figures, in a proof; CI asserts outcomes and times nothing."""
        if self.is_proof:
            words = " ".join(f"{name}={value}" for name, value in figures.items())
            sys.stderr.write(f"\nPROVED {self._test} seed={self._seed} {words}\n")


def percentiles(values: Sequence[float], *, unit: str = "ms", factor: float = 1000.0) -> str:
    """Return median, 99th percentile and maximum of times in seconds, in words."""
    ordered = sorted(value * factor for value in values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    median = statistics.median(ordered)
    return f"p50:{median:.1f}{unit},p99:{p99:.1f}{unit},max:{ordered[-1]:.1f}{unit}"
