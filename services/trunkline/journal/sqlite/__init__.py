"""The journal's store in one SQLite file, for one process."""

from trunkline.journal.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
