"""The journal's store in one SQLite file, for one process."""

from trunkline.journal.sqlite.orphans import (
    Left,
    Orphan,
    discard,
    is_held,
    is_owned,
    left_in,
    orphans,
)
from trunkline.journal.sqlite.store import SqliteStore

__all__ = ["Left", "Orphan", "SqliteStore", "discard", "is_held", "is_owned", "left_in", "orphans"]
