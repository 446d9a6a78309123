"""The approvals that were used. Each allows one call, over all tool adapters and restarts."""

import asyncio
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.core.database import Database, Schema
from trunkline.core.private_files import PRIVATE_FOLDER, create_private_data_folder

if TYPE_CHECKING:
    from trunkline.core.postgres.small_files import PostgresFiles

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
_USED: Final = "used-approvals"
_CONTINUATIONS: Final = "continuations"
_UNUSED: Final = b""
_CLAIM_BYTES: Final = 16


class UsedApprovals(Protocol):
    """The used approvals that tool adapters share.

    A record is durable when its method returns. If a method raises JournalUnavailableError, the
    approval may count as used, so that no outcome allows a second call.
    """

    async def use(self, digest: str) -> bool:
        """Record that an approval is used now; return False if it was used before.

        Raises:
            ConfigurationError: the folder of the records can't be used.
            JournalUnavailableError: the records can't be read or written.
        """

    async def allow_continuation(self, digest: str) -> None:
        """Record that a call that used its approval asked, and may be made again.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """

    async def use_continuation(self, digest: str) -> bool:
        """Record that a call that asked is made again; return False if it may not be.

        Raises:
            ConfigurationError, JournalUnavailableError: as `use`.
        """


class SqliteUsedApprovals:
    """A `UsedApprovals` in a file of a data directory, for the tool adapters of one machine.

    People approve calls, so each use opens the file and closes it again.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        retention: timedelta = RETENTION,
        continuation_retention: timedelta = CONTINUATION_RETENTION,
    ) -> None:
        """The file is created at the first use: most meshes have no calls that need approval."""
        self.path: Path = data_dir / PRIVATE_FOLDER / "used-approvals.db"
        """The path of the file."""
        self._retention_s = retention.total_seconds()
        self._continuation_retention_s = continuation_retention.total_seconds()

    async def use(self, digest: str) -> bool:
        """Record that an approval is used now; see `UsedApprovals`."""
        return await asyncio.to_thread(self._use, digest)

    async def allow_continuation(self, digest: str) -> None:
        """Record that a call may be made again; see `UsedApprovals`."""
        await asyncio.to_thread(self._allow_continuation, digest)

    async def use_continuation(self, digest: str) -> bool:
        """Record that a call is made again; see `UsedApprovals`."""
        return await asyncio.to_thread(self._use_continuation, digest)

    def _use(self, digest: str) -> bool:
        now_s = datetime.now(UTC).timestamp()
        with self._open() as database, database.write() as connection:
            connection.execute(
                "DELETE FROM used_approvals WHERE used_at <= ?", (now_s - self._retention_s,)
            )
            added = connection.execute(
                "INSERT OR IGNORE INTO used_approvals VALUES (?, ?)", (digest, now_s)
            )
            return added.rowcount == 1

    def _allow_continuation(self, digest: str) -> None:
        now_s = datetime.now(UTC).timestamp()
        with self._open() as database, database.write() as connection:
            connection.execute(
                "DELETE FROM continuations WHERE asked_at <= ?",
                (now_s - self._continuation_retention_s,),
            )
            connection.execute(
                "INSERT OR REPLACE INTO continuations VALUES (?, ?)", (digest, now_s)
            )

    def _use_continuation(self, digest: str) -> bool:
        with self._open() as database, database.write() as connection:
            removed = connection.execute(
                "DELETE FROM continuations WHERE digest = ? AND asked_at > ?",
                (digest, datetime.now(UTC).timestamp() - self._continuation_retention_s),
            )
            return removed.rowcount == 1

    def _open(self) -> Database:
        create_private_data_folder(self.path.parent)
        # A commit survives a power failure.
        return Database(self.path, _SCHEMA, synchronous="full")


class PostgresUsedApprovals:
    """A `UsedApprovals` in a database, for the tool adapters of all machines."""

    def __init__(
        self,
        files: "PostgresFiles",
        *,
        retention: timedelta = RETENTION,
        continuation_retention: timedelta = CONTINUATION_RETENTION,
    ) -> None:
        self._files = files
        self._retention = retention
        self._continuation_retention = continuation_retention

    async def use(self, digest: str) -> bool:
        """Record that an approval is used now; see `UsedApprovals`."""
        await self._files.delete_old(_USED, age=self._retention)
        return await self._claim(f"{_USED}/{digest}", expected=None)

    async def allow_continuation(self, digest: str) -> None:
        """Record that a call may be made again; see `UsedApprovals`."""
        await self._files.write(f"{_CONTINUATIONS}/{digest}", _UNUSED)

    async def use_continuation(self, digest: str) -> bool:
        """Record that a call is made again; see `UsedApprovals`."""
        await self._files.delete_old(_CONTINUATIONS, age=self._continuation_retention)
        return await self._claim(f"{_CONTINUATIONS}/{digest}", expected=_UNUSED)

    async def _claim(self, path: str, *, expected: bytes | None) -> bool:
        """Write a file once. A claim whose answer was lost is repeated, and finds itself."""
        claim = secrets.token_bytes(_CLAIM_BYTES)
        is_first = await self._files.replace(path, claim, expected=expected)
        return is_first or await self._files.read(path) == claim
