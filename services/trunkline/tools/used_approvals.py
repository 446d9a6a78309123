"""The file of the approvals that were used. Each allows one call, also after a restart.

Tool adapters with the same data directory share the file.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from trunkline.database import Database, Schema
from trunkline.private_files import PRIVATE_FOLDER, create_private_data_folder

RETENTION: Final = timedelta(hours=25)
"""The time for which a used approval is stored. The statement that proves it is valid for a day,
and clocks of machines differ."""
CONTINUATION_RETENTION: Final = timedelta(days=31)
"""The time for which a call that asked can be continued. Tasks are stored for thirty days."""
_SCHEMA: Final = Schema("""
-- digest: of the approved call, with the id of the approval; used_at: Unix time
CREATE TABLE IF NOT EXISTS used_approvals (digest TEXT PRIMARY KEY, used_at REAL NOT NULL)
WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS used_approvals_by_time ON used_approvals (used_at);
-- digest: of an approved call that asked, with the state of its question; asked_at: Unix time
CREATE TABLE IF NOT EXISTS continuations (digest TEXT PRIMARY KEY, asked_at REAL NOT NULL)
WITHOUT ROWID;
""")


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
        with self._open() as database, database.write() as connection:
            connection.execute("DELETE FROM used_approvals WHERE used_at < ?", (ended,))
            added = connection.execute(
                "INSERT OR IGNORE INTO used_approvals VALUES (?, ?)", (digest, now.timestamp())
            )
            return added.rowcount == 1

    def allow_continuation(self, digest: str, now: datetime) -> None:
        """Record that a call that used its approval asked, and may be made again. Blocks.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """
        ended = (now - CONTINUATION_RETENTION).timestamp()
        with self._open() as database, database.write() as connection:
            connection.execute("DELETE FROM continuations WHERE asked_at < ?", (ended,))
            connection.execute(
                "INSERT OR REPLACE INTO continuations VALUES (?, ?)", (digest, now.timestamp())
            )

    def use_continuation(self, digest: str, now: datetime) -> bool:
        """Record that a call that asked is made again; return False if it may not be. Blocks.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """
        with self._open() as database, database.write() as connection:
            removed = connection.execute(
                "DELETE FROM continuations WHERE digest = ? AND asked_at >= ?",
                (digest, (now - CONTINUATION_RETENTION).timestamp()),
            )
            return removed.rowcount == 1

    def _open(self) -> Database:
        create_private_data_folder(self.path.parent)
        # A commit survives a power failure.
        return Database(self.path, _SCHEMA, synchronous="full")
