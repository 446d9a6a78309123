"""The journal's store in one SQLite file, for one process, and the catalog of a folder of them."""

from trunkline.journal.sqlite.catalog import JOURNAL_FOLDER, SqliteCatalog
from trunkline.journal.sqlite.inspection import find_orphaned_journals, list_unfinished_agents
from trunkline.journal.sqlite.store import SqliteStore

__all__ = [
    "JOURNAL_FOLDER",
    "SqliteCatalog",
    "SqliteStore",
    "find_orphaned_journals",
    "list_unfinished_agents",
]
