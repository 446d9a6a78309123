"""The journals of a data directory: a host's own, and those of hosts that died.

A host's own are a family: `math.db`, and `math.2.db`, `math.3.db`, … where another host has taken
the ones before over. Agents' names hold no dots, so no family is a part of another.
"""

import logging
import re
import shutil
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from trunkline.artifacts import blob_folder
from trunkline.errors import JournalUnavailableError
from trunkline.journal.journal import Journal
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite import (
    JournalContents,
    OrphanedJournal,
    delete_if_empty,
    find_orphaned_journals,
    has_live_owner,
    inspect_journal,
    is_leased,
)
from trunkline.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that this process has."""

    journal: Journal
    path: Path

    @property
    def checkpoint_path(self) -> Path:
        """Where agents keep the checkpoints of its tasks: whoever takes it over knows."""
        return self.checkpoint_path_for(self.path)

    @staticmethod
    def checkpoint_path_for(path: Path) -> Path:
        """Where the checkpoints of a journal's tasks are. Not a name that ends like a journal's."""
        return Path(f"{path}.checkpoints")


class JournalFolder:
    """Opens the journals of a data directory. What it does blocks: call it in a thread later on."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.data_dir / "journals"
        self._left_out: set[Path] = set()
        self._held: dict[Path, float] = {}
        self._synchronous = settings.synchronous
        self._retention = Retention(
            compact_after_s=settings.compact_after_s, retain_s=settings.retain_s
        )

    def open_own(self, family: str, agents: Set[str]) -> OpenJournal:
        """Open the first journal of a family that nobody has, or a new one, for these agents.

        One with unfinished tasks of others is not for them: as its host's own it would stay where
        those can't go on.

        Raises:
            JournalUnavailableError: not even a new one can be made.
        """
        known = self._family(family)
        new = max(known, default=0) + 1
        for number in sorted({1, *known}):
            path = self._path(family, number)
            left = self._left_in(path)
            if left is not None and not left.agents <= agents:
                continue
            if (found := self._open_free(path)) is not None:
                return found
        return self._open(self._path(family, new))

    def open_free(self, family: str, agents: Set[str]) -> list[OpenJournal]:
        """Open all journals of a family that are there and that nobody has, this process included.

        Those that hold no task at all are removed instead. What a host lost that ran others than
        these agents is left to it for a while: see `Takeover`. What hosts of other families gave
        back is opened as well, if its unfinished tasks are of these agents alone.
        """
        paths = [self._path(family, number) for number in sorted(self._family(family))]
        free = [path for path in paths if not has_live_owner(path)]
        found = [
            self._open_free(path)
            for path in free
            if not self._is_for_others(path, agents) and not self._discard(path)
        ]
        others = sorted(set(self._folder.glob("*.db")) - set(paths))
        found += [self._open_free(path) for path in others if self._waits_for(path, agents)]
        return [one for one in found if one is not None]

    def orphans(self) -> list[OrphanedJournal]:
        """Return the journals whose hosts are gone or frozen, or have left them to others."""
        return find_orphaned_journals(self._folder, leases=self._held)

    def forget_leases(self) -> None:
        """Look into all journals the next time: some may be left before their leases are over."""
        self._held = {}

    def is_held(self, journal_id: str) -> bool:
        """Tell whether a living process serves the journal of this id, and its lease holds."""
        return is_leased(self._folder, journal_id)

    def take_over(self, orphan: OrphanedJournal) -> OpenJournal | None:
        """Open the journal of a host that is gone; kill the process if it is only frozen.

        None: it held no task at all, and was removed.

        Raises:
            JournalUnavailableError: somebody else was quicker, or the host is back.
        """
        if orphan.is_empty and self._discard(orphan.path):
            return None
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
            # One that isn't there was removed just now, or can't be made: the next will tell.
            if not has_live_owner(path) and path.exists():
                self._leave_out(path, error)
            return None

    def _is_for_others(self, path: Path, agents: Set[str]) -> bool:
        left = self._left_in(path)
        return left is not None and left.was_lost and not left.agents <= agents

    def _waits_for(self, path: Path, agents: Set[str]) -> bool:
        left = None if has_live_owner(path) else self._left_in(path)
        return (
            left is not None and not left.was_lost and bool(left.agents) and left.agents <= agents
        )

    def _left_in(self, path: Path) -> JournalContents | None:
        """What is in a journal; None: it can't be read, and whoever opens it is told why."""
        try:
            return inspect_journal(path) if path.exists() else None
        except JournalUnavailableError:
            return None

    def _discard(self, path: Path) -> bool:
        """Remove a journal without tasks, and what agents kept beside it; False: it holds some."""
        try:
            if not delete_if_empty(path):
                return False
        except JournalUnavailableError:
            return False  # Whoever opens it is told why.
        kept = OpenJournal.checkpoint_path_for(path)
        for name in (kept, f"{kept}-wal", f"{kept}-shm"):
            Path(name).unlink(missing_ok=True)
        shutil.rmtree(blob_folder(path), ignore_errors=True)
        logger.info("journal.removed", extra={"path": path})
        return True

    def _leave_out(self, path: Path, error: JournalUnavailableError) -> None:
        """Say once that the host works without it; `trunkline data check` tells more."""
        if path not in self._left_out:
            self._left_out.add(path)
            logger.error("journal.left_out", extra={"path": path, "problem": error.problem})

    def _open(self, path: Path) -> OpenJournal:
        journal = Journal.open(path, synchronous=self._synchronous, retention=self._retention)
        return OpenJournal(journal, path)
