"""Takeovers that failed: which journals are left alone for now."""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Final

from trunkline.client import Backoff

# A journal that can't be taken over is tried again after so long at most.
_TRY_AGAIN_S: Final = 60.0


class Setbacks:
    """Pauses between tries of one journal: growing, and over when somebody has it.

    Of several hosts that try at once all but one fail. When that one dies in its turn they are to
    be there at once, however often they came too late before.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a clock in seconds that never goes back."""
        self._now = now
        self._of: dict[str, _Setback] = {}

    def note(self, journal_id: str) -> int:
        """Note that a takeover failed; return how often, since the journal was lost."""
        setback = self._of.setdefault(journal_id, _Setback())
        setback.until_s = self._now() + setback.backoff.next_s()
        setback.count += 1
        return setback.count

    def is_pausing(self, journal_id: str) -> bool:
        """Tell whether it is too early for another try."""
        setback = self._of.get(journal_id)
        return setback is not None and self._now() < setback.until_s

    def keep(self, lost: Set[str]) -> None:
        """Forget all but these journals, which still have no host."""
        self._of = {one: setback for one, setback in self._of.items() if one in lost}


@dataclass(slots=True)
class _Setback:
    """With one journal."""

    backoff: Backoff = field(default_factory=lambda: Backoff(limit_s=_TRY_AGAIN_S))
    count: int = 0
    until_s: float = 0.0
