"""Moves what SQLite's log holds into the file, so that the log begins anew and stays short."""

from pathlib import Path
from typing import Final

from trunkline.journal.sqlite.connection import connect, translated

# The log is moved when it is about this long: 8 MB.
_LONG_PAGES: Final = 2000
_PAGE_BYTES: Final = 4096
# Pages that a write touches beside those its content fills, roughly.
_PAGES_OF_A_WRITE: Final = 2


class Checkpointer:
    """Checkpoints apart from commits: SQLite by itself would make one commit in many wait for it.

    It may run in a thread while commits go on. The log begins anew only once all of it was moved,
    which a commit in between prevents: then what is left, a little, is moved with nobody writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._pages = 0

    def wrote(self, size_bytes: int) -> bool:
        """Count what was written; tell whether the log is long and it is time to move it."""
        self._pages += _PAGES_OF_A_WRITE + size_bytes // _PAGE_BYTES
        return self._pages >= _LONG_PAGES

    def move(self) -> bool:
        """Move what the log holds; tell whether that was all. JournalUnavailableError."""
        counted = self._pages
        with translated(self._path):
            _, pages, moved_pages = self._connection.execute(
                "PRAGMA wal_checkpoint(PASSIVE)"
            ).fetchone()
        # SQLite counts up to where the log ended when it began.
        is_all: bool = pages == moved_pages and self._pages == counted
        if is_all:
            self._pages = 0
        return is_all

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()
