"""The journals of a data directory: the own journal of a host, and journals of dead hosts.

The journals of one agent name are a family: `math.db`, then `math.2.db`, `math.3.db`, … while
other hosts have the lower numbers. Agent names have no dots, so families don't overlap.
"""

import logging
import re
import shutil
from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trunkline.core.encryption import Keyring, open_keyring
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.artifacts import blob_folder
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

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """A journal that this process has opened."""

    journal: Journal
    path: Path

    @property
    def checkpoint_path(self) -> Path:
        """The file with the checkpoints of its tasks, which is taken over along with it."""
        return self.checkpoint_path_for(self.path)

    @staticmethod
    def checkpoint_path_for(path: Path) -> Path:
        """Return the checkpoint file of a journal, whose name does not end like a journal's."""
        return Path(f"{path}.checkpoints")


class JournalFolder:
    """Opens the journals of a data directory. Every method blocks: call it in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.data_dir / "journals"
        self._reported: set[Path] = set()
        self._leases: dict[Path, float] = {}
        self._retention = Retention(
            compact_after_s=settings.compact_after_s, retain_s=settings.retain_s
        )

    @cached_property
    def _keyring(self) -> Keyring:
        # Opened with the first journal: `encryption_key_command` may take a while.
        return open_keyring(self._settings)

    def open_own(self, family: str, agents: Set[str]) -> OpenJournal:
        """Open the first free journal of a family, or a new journal, as the own journal of a host.

        A journal with unfinished tasks of agents other than `agents` is skipped. A host never
        releases its own journal, so these tasks could not continue.

        Raises:
            ConfigurationError: the encryption key is missing or wrong.
            JournalUnavailableError: not even a new journal can be made.
        """
        numbers = self._list_numbers(family)
        for number in sorted({1, *numbers}):
            path = self._path(family, number)
            contents = self._inspect(path)
            if contents is not None and not contents.agents <= agents:
                continue
            if (journal := self._open_free(path)) is not None:
                return journal
        return self._open_new(family, max(numbers, default=0) + 1)

    def open_free(self, family: str, agents: Set[str]) -> list[OpenJournal]:
        """Open all free journals of a family; remove journals without any task.

        A journal that a host lost, with unfinished tasks of agents other than `agents`, is not
        opened, so that a host of all these agents can take it over first; see `Takeover`. Released
        journals of other families are opened too if their unfinished tasks are of `agents` alone.
        """
        paths = [self._path(family, number) for number in sorted(self._list_numbers(family))]
        free = [path for path in paths if not has_live_owner(path)]
        journals = [
            self._open_other(path)
            for path in free
            if not self._is_for_others(path, agents) and not self._remove_if_empty(path)
        ]
        others = sorted(set(self._folder.glob("*.db")) - set(paths))
        journals += [
            self._open_other(path) for path in others if self._is_released_for(path, agents)
        ]
        return [journal for journal in journals if journal is not None]

    def find_orphans(self) -> list[OrphanedJournal]:
        """Return the journals whose hosts are gone or frozen, or have released them."""
        return find_orphaned_journals(self._folder, leases=self._leases)

    def forget_leases(self) -> None:
        """Make `find_orphans` read all leases again, because journals may be released early."""
        self._leases = {}

    def is_leased(self, journal_id: str) -> bool:
        """Return True if a live process serves the journal with this id under a valid lease."""
        return is_leased(self._folder, journal_id)

    def take_over(
        self, orphan: OrphanedJournal, *, keeps_empty: bool = False
    ) -> OpenJournal | None:
        """Open the journal of a host that is gone. A frozen process is killed.

        Return None if the journal had no task; it is removed then, unless `keeps_empty`.

        Raises:
            JournalUnavailableError: another host was faster, the host is back, or the journal is
                encrypted under a key that this process does not have.
        """
        if orphan.is_empty and not keeps_empty and self._remove_if_empty(orphan.path):
            return None
        try:
            journal = Journal.take_over(
                orphan.path,
                synchronous=self._settings.synchronous,
                retention=self._retention,
                keyring=self._keyring,
            )
        except ConfigurationError as error:
            # A host that serves its own journal continues without this journal.
            raise JournalUnavailableError(str(orphan.path), error.problem) from error
        return OpenJournal(journal, orphan.path)

    def _list_numbers(self, family: str) -> set[int]:
        """Return the numbers of a family's journals; a name without a number is 1."""
        stem = _file_stem(family)
        pattern = re.compile(re.escape(stem) + r"(?:\.([2-9]|[1-9][0-9]+))?\.db")
        matches = (pattern.fullmatch(path.name) for path in self._folder.glob(f"{stem}*.db"))
        return {int(match[1] or 1) for match in matches if match}

    def _path(self, family: str, number: int) -> Path:
        stem = _file_stem(family)
        return self._folder / (f"{stem}.db" if number == 1 else f"{stem}.{number}.db")

    def _open_new(self, family: str, number: int) -> OpenJournal:
        """Open a new journal by this number, or by the next that no other process has taken.

        Processes that start at the same time have seen the same numbers.
        """
        while True:
            path = self._path(family, number)
            try:
                return self._open(path)
            except JournalUnavailableError:
                if not has_live_owner(path):
                    raise
            number += 1

    def _open_other(self, path: Path) -> OpenJournal | None:
        """Open a journal that this host can do without."""
        try:
            return self._open_free(path)
        except ConfigurationError as error:
            self._report_problem(path, error.problem)
            return None

    def _open_free(self, path: Path) -> OpenJournal | None:
        try:
            return self._open(path)
        except JournalUnavailableError as error:
            # A missing file was just removed, or can't be created, which opening a new one reports.
            if not has_live_owner(path) and path.exists():
                self._report_problem(path, error.problem)
            return None

    def _is_for_others(self, path: Path, agents: Set[str]) -> bool:
        contents = self._inspect(path)
        return contents is not None and contents.was_lost and not contents.agents <= agents

    def _is_released_for(self, path: Path, agents: Set[str]) -> bool:
        contents = None if has_live_owner(path) else self._inspect(path)
        return (
            contents is not None
            and not contents.was_lost
            and bool(contents.agents)
            and contents.agents <= agents
        )

    def _inspect(self, path: Path) -> JournalContents | None:
        """Return the contents of a journal, if it can be read. Opening it reports why it can't."""
        try:
            return inspect_journal(path) if path.exists() else None
        except JournalUnavailableError:
            return None

    def _remove_if_empty(self, path: Path) -> bool:
        """Remove a journal without tasks and the files beside it; return False if it has tasks."""
        try:
            if not delete_if_empty(path):
                return False
        except JournalUnavailableError:
            return False  # Opening it reports the reason.
        checkpoints = OpenJournal.checkpoint_path_for(path)
        for name in (checkpoints, f"{checkpoints}-wal", f"{checkpoints}-shm"):
            Path(name).unlink(missing_ok=True)
        shutil.rmtree(blob_folder(path), ignore_errors=True)
        logger.info("journal.removed", extra={"path": path})
        return True

    def _report_problem(self, path: Path, problem: str) -> None:
        """Log once that a journal is not served; `trunkline data check` shows more."""
        if path not in self._reported:
            self._reported.add(path)
            logger.error("journal.left_out", extra={"path": path, "problem": problem})

    def _open(self, path: Path) -> OpenJournal:
        journal = Journal.open(
            path,
            synchronous=self._settings.synchronous,
            retention=self._retention,
            keyring=self._keyring,
        )
        return OpenJournal(journal, path)


def _file_stem(family: str) -> str:
    """Return the beginning of the names of a family's files, in which a dot begins the number."""
    # No name has a tilde.
    return family.replace(".", "~")
