"""The workload of every system: one question, a plan and a notice, an answer in tokens.

This module uses only the standard library, so that the bare programs of `floor/` stay bare.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

TOKENS = 500
# The supervisor's plan holds 80 characters of the request: with one letter a word, 42 tokens.
_FILLER = " ".join("abcdefghijklmnopqrstuvwxyz" * 2)
PLAN = tuple(f"{letter} " for letter in _FILLER.split()[:42])
# The answer's first token marks the first text.
FIRST = "begin "
# One to ten characters, including the space.
_TEXTS = tuple("x" * length + " " for length in (0, 4, 8, 2, 6, 1, 9, 3, 7, 5))
_ASK = re.compile(r"stream (\d+)(?: (\d+))?")
STAMP_MODULUS_US = 10**9


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for a number of tokens at an interval in milliseconds; 0: without pauses."""

    tokens: int = TOKENS
    gap_ms: int = 0

    @property
    def text(self) -> str:
        """The text of the question."""
        pace = f" {self.gap_ms}" if self.gap_ms else ""
        return f"stream {self.tokens}{pace} {_FILLER}"

    @classmethod
    def parse(cls, text: str) -> "Ask":
        """Parse a question."""
        match = _ASK.search(text)
        assert match is not None, text
        return cls(int(match[1]), int(match[2] or 0))


async def tokens(ask: Ask) -> AsyncIterator[str]:
    """Yield the answer's tokens; a paced token is a stamp of its time."""
    if not ask.gap_ms:
        yield FIRST
        for number in range(1, ask.tokens):
            yield _TEXTS[number % 10]
        return
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for _ in range(ask.tokens):
        due_s += ask.gap_ms / 1000
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        yield stamp()


def stamp() -> str:
    """Return the time in microseconds by the machine's shared clock, as ten characters."""
    return f"{time.monotonic_ns() // 1000 % STAMP_MODULUS_US:09d} "


def age_us(stamped: bytes, now_us: int) -> int:
    """Return the age of a stamp."""
    return (now_us - int(stamped)) % STAMP_MODULUS_US
