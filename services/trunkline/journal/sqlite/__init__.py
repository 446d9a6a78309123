"""The journal's store in one SQLite file, for one process."""

from trunkline.journal.sqlite.orphans import Orphan, is_owned, orphans
from trunkline.journal.sqlite.store import SqliteStore

__all__ = ["Orphan", "SqliteStore", "is_owned", "orphans"]
