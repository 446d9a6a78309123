"""Ids of a stream's events: what a client hands back to go on behind one."""

import re
from typing import NamedTuple, Self

_ID = re.compile(r"([1-9][0-9]{0,17})\.([0-9]{1,9})(?:-([1-9][0-9]{0,17}))?", re.ASCII)


class EventId(NamedTuple):
    """The n-th wire event of a journal event; opaque to clients.

    The epoch tells a journal's lives apart: after a power failure, another event may stand where
    one was that a client has seen. The first life goes without saying.
    """

    sequence: int
    n: int
    epoch: int = 1

    def __str__(self) -> str:
        text = f"{self.sequence}.{self.n}"
        return text if self.epoch <= 1 else f"{text}-{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the id that a text is; None when it is none."""
        read = _ID.fullmatch(text)
        return None if read is None else cls(int(read[1]), int(read[2]), int(read[3] or 1))
