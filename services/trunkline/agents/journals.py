"""The journals of a data directory: a host's own, and those of hosts that died.

A host's own are a family: `math.db`, and `math.2.db`, `math.3.db`, … where another host has taken
the ones before over. Agents' names hold no dots, so no family is a part of another.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trunkline.errors import JournalUnavailableError
from trunkline.journal.journal import Journal
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite import Orphan, is_owned, orphans
from trunkline.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that this process has."""

    journal: Journal
    path: Path

    @property
    def checkpoint_path(self) -> Path:
        """Where agents keep the checkpoints of its tasks: whoever takes it over knows.

        Not a name that ends like a journal's.
        """
        return Path(f"{self.path}.checkpoints")


class Journals:
    """Opens the journals of a data directory. What it does blocks: call it in a thread later on."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.data_dir / "journals"
        self._left_out: set[Path] = set()
        self._synchronous = settings.synchronous
        self._retention = Retention(
            compact_after_s=settings.compact_after_s, retain_s=settings.retain_s
        )

    def open_own(self, family: str) -> OpenJournal:
        """Open the first journal of a family that nobody has, or a new one.

        Raises:
            JournalUnavailableError: not even a new one can be made.
        """
        known = self._family(family)
        new = max(known, default=0) + 1
        for number in sorted({1, *known}):
            if (found := self._open_free(self._path(family, number))) is not None:
                return found
        return self._open(self._path(family, new))

    def open_free(self, family: str, *, beside: OpenJournal) -> Iterator[OpenJournal]:
        """Open all other journals of a family that are there and that nobody has."""
        for number in sorted(self._family(family)):
            path = self._path(family, number)
            # A file that this process has must not be opened again: see `sqlite.connection`.
            if path != beside.path and (found := self._open_free(path)) is not None:
                yield found

    def orphans(self) -> list[Orphan]:
        """Return the journals whose hosts are gone or frozen."""
        return orphans(self._folder)

    def take_over(self, orphan: Orphan) -> OpenJournal:
        """Open the journal of a host that is gone; kill the process if it is only frozen.

        Raises:
            JournalUnavailableError: somebody else was quicker, or the host is back.
        """
        journal = Journal.take_over(
            orphan.path, synchronous=self._synchronous, retention=self._retention
        )
        return OpenJournal(journal, orphan.path)

    def _family(self, family: str) -> set[int]:
        """The numbers of a family's journals; that without one is 1."""
        pattern = re.compile(re.escape(family) + r"(?:\.([2-9]|[1-9][0-9]+))?\.db")
        found = (pattern.fullmatch(path.name) for path in self._folder.glob(f"{family}*.db"))
        return {int(match[1] or 1) for match in found if match}

    def _path(self, family: str, number: int) -> Path:
        return self._folder / (f"{family}.db" if number == 1 else f"{family}.{number}.db")

    def _open_free(self, path: Path) -> OpenJournal | None:
        try:
            return self._open(path)
        except JournalUnavailableError as error:
            if not is_owned(path):
                if not path.exists():
                    raise
                self._leave_out(path, error)
            return None

    def _leave_out(self, path: Path, error: JournalUnavailableError) -> None:
        """Say once that the host works without it; `trunkline data check` tells more."""
        if path not in self._left_out:
            self._left_out.add(path)
            logger.error("journal.left_out", extra={"path": path, "problem": error.problem})

    def _open(self, path: Path) -> OpenJournal:
        journal = Journal.open(path, synchronous=self._synchronous, retention=self._retention)
        return OpenJournal(journal, path)
