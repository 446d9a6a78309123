"""The journal's store in one SQLite file, for one process."""

from trunkline.journal.sqlite.orphans import Orphan, discard, is_held, is_owned, orphans
from trunkline.journal.sqlite.store import SqliteStore

__all__ = ["Orphan", "SqliteStore", "discard", "is_held", "is_owned", "orphans"]
