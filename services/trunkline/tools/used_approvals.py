"""The file of the approvals that were used. Each allows one call, also after a restart.

Tool adapters with the same data directory share the file.
"""

import contextlib
import os
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from trunkline.errors import ConfigurationError
from trunkline.journal.sqlite.connection import check_access, connect, translate_errors
from trunkline.private_files import PRIVATE_FOLDER, create_private_folder

RETENTION: Final = timedelta(hours=25)
"""The time for which a used approval is stored. The statement that proves it is valid for a day,
and clocks of machines differ."""
CONTINUATION_RETENTION: Final = timedelta(days=31)
"""The time for which a call that asked can be continued. Tasks are stored for thirty days."""
_SCHEMA: Final = """
-- digest: of the approved call, with the id of the approval; used_at: Unix time
CREATE TABLE IF NOT EXISTS used_approvals (digest TEXT PRIMARY KEY, used_at REAL NOT NULL)
WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS used_approvals_by_time ON used_approvals (used_at);
-- digest: of an approved call that asked, with the state of its question; asked_at: Unix time
CREATE TABLE IF NOT EXISTS continuations (digest TEXT PRIMARY KEY, asked_at REAL NOT NULL)
WITHOUT ROWID;
"""


class UsedApprovals:
    """The used approvals of a data directory.

    People approve calls, so each use opens the file and closes it again.
    """

    def __init__(self, data_dir: Path) -> None:
        """The file is created at the first use: most meshes have no calls that need approval."""
        self.path: Path = data_dir / PRIVATE_FOLDER / "used-approvals.db"
        """The path of the file."""

    def use(self, digest: str, now: datetime) -> bool:
        """Record that an approval is used now; return False if it was used before. Blocks.

        The record is on the disk when this returns.

        Raises:
            ConfigurationError: the folder can't be used.
            JournalUnavailableError: the file can't be read or written.
        """
        ended = (now - RETENTION).timestamp()
        with translate_errors(self.path), contextlib.closing(self._open()) as database:
            database.execute("DELETE FROM used_approvals WHERE used_at < ?", (ended,))
            added = database.execute(
                "INSERT OR IGNORE INTO used_approvals VALUES (?, ?)", (digest, now.timestamp())
            )
            return added.rowcount == 1

    def allow_continuation(self, digest: str, now: datetime) -> None:
        """Record that a call that used its approval asked, and may be made again. Blocks.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """
        ended = (now - CONTINUATION_RETENTION).timestamp()
        with translate_errors(self.path), contextlib.closing(self._open()) as database:
            database.execute("DELETE FROM continuations WHERE asked_at < ?", (ended,))
            database.execute(
                "INSERT OR REPLACE INTO continuations VALUES (?, ?)", (digest, now.timestamp())
            )

    def use_continuation(self, digest: str, now: datetime) -> bool:
        """Record that a call that asked is made again; return False if it may not be. Blocks.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """
        with translate_errors(self.path), contextlib.closing(self._open()) as database:
            removed = database.execute(
                "DELETE FROM continuations WHERE digest = ? AND asked_at >= ?",
                (digest, (now - CONTINUATION_RETENTION).timestamp()),
            )
            return removed.rowcount == 1

    def _open(self) -> sqlite3.Connection:
        folder = self.path.parent
        try:
            create_private_folder(folder)
        except OSError as error:
            problem = f"can't be used: {error.strerror}; choose another with --data"
            raise ConfigurationError(f"data directory {folder.parent}", problem) from error
        check_access(self.path)
        # Ids of tasks are private, so only the owner may read the file.
        with contextlib.suppress(OSError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        database = connect(self.path)
        # A commit survives a power failure.
        database.execute("PRAGMA synchronous = EXTRA")
        database.executescript(_SCHEMA)
        return database
