"""The journal's store in one SQLite file, for one process."""

from trunkline.journal.sqlite.inspection import (
    JournalContents,
    OrphanedJournal,
    delete_if_empty,
    find_orphaned_journals,
    has_live_owner,
    inspect_journal,
    is_leased,
)
from trunkline.journal.sqlite.store import SqliteStore

__all__ = [
    "JournalContents",
    "OrphanedJournal",
    "SqliteStore",
    "delete_if_empty",
    "find_orphaned_journals",
    "has_live_owner",
    "inspect_journal",
    "is_leased",
]
