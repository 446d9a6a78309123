"""Commits to PostgreSQL whose outcome is always known."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import asyncpg

from trunkline.core.backoff import Backoff
from trunkline.core.postgres import ERRORS, Connection, PostgresDatabase
from trunkline.errors import FencedError, JournalUnavailableError

logger = logging.getLogger(__name__)

_Ask: TypeAlias = Callable[[Connection], Awaitable[bool]]

SELECT_FENCE: Final = (
    "SELECT 1 AS held FROM journals WHERE journal_id = $1 AND epoch = $2 FOR KEY SHARE"
)
# A lost network may not end a connection for hours.
_ATTEMPT_TIMEOUT_S: Final = 30.0
# A commit that does not wait for the synchronous standby any more is not replicated yet.
_WARNING: Final = "01000"


class PostgresWriter:
    """The connection that writes to one journal, one transaction at a time.

    A connection that is lost during a commit does not say whether the commit was stored. The writer
    then looks whether it was, and repeats it if it was not. So an error means that nothing is
    stored, and nothing is stored twice. Meanwhile the caller waits, also while the database is
    away.

    A database that has failed over to a standby may lack commits that were acknowledged. After each
    reconnection the writer looks for the last one. If it is missing, the journal counts as lost, so
    that the host reads it anew.
    """

    def __init__(self, database: PostgresDatabase, journal_id: str, epoch: int) -> None:
        self._database = database
        self._journal_id = journal_id
        self._epoch = epoch
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._has_warning = False
        # Returns whether the last write is still stored.
        self._has_last: _Ask | None = None

    async def write(self, work: _Ask, *, was_stored: _Ask | None = None) -> None:
        """Run statements in one transaction.

        `work` returns False if the epoch has changed. `was_stored` returns whether an earlier
        attempt was stored; it is asked if that is unknown. Without it, the work may run again
        although it was stored.

        Raises:
            FencedError: another process has taken over, or the database has lost earlier writes.
            JournalUnavailableError: nothing was stored.
        """
        async with self._lock:
            backoff = Backoff()
            is_retry = False
            while not await self._try(work, was_stored, is_retry=is_retry):
                is_retry = True
                await backoff.pause()
            self._has_last = was_stored

    async def close(self) -> None:
        """Close the connection after the write in flight."""
        self._is_closed = True
        async with self._lock:
            self._disconnect()

    async def _try(self, work: _Ask, was_stored: _Ask | None, *, is_retry: bool) -> bool:
        """Return whether the work is stored; False means that this is unknown.

        With `is_retry`, it is unknown whether an earlier attempt was stored.
        """
        if self._is_closed:
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        try:
            async with asyncio.timeout(_ATTEMPT_TIMEOUT_S):
                connection = await self._connect()
                if is_retry and was_stored and await self._confirm(connection, was_stored):
                    return True
        except (JournalUnavailableError, *ERRORS) as error:
            self._disconnect()
            if is_retry:
                return False
            raise JournalUnavailableError(self._database.name, str(error)) from error
        self._has_warning = False
        try:
            async with asyncio.timeout(_ATTEMPT_TIMEOUT_S):
                holds_fence = await work(connection)
        except ERRORS as error:
            if isinstance(error, asyncpg.PostgresError) and not _is_in_doubt(error):
                problem = str(error) or type(error).__name__
                raise JournalUnavailableError(self._database.name, problem) from error
            self._disconnect()
            extra = {"journal": self._journal_id, "problem": repr(error)}
            logger.warning("journal.commit_in_doubt", extra=extra)
            return False
        if not holds_fence:
            raise FencedError(self._journal_id)
        return not self._has_warning

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
            self._connection.add_log_listener(self._note_message)
            if self._has_last is not None and not await self._has_last(self._connection):
                logger.error("journal.commits_lost", extra={"journal": self._journal_id})
                raise FencedError(self._journal_id)
        return self._connection

    async def _confirm(self, connection: Connection, was_stored: _Ask) -> bool:
        """Return whether an earlier attempt was stored.

        The transaction writes, so that its end waits for a synchronous standby, and with it for all
        earlier commits.
        """
        async with connection.transaction():
            if await connection.fetchval(SELECT_FENCE, self._journal_id, self._epoch) is None:
                raise FencedError(self._journal_id)
            is_stored = await was_stored(connection)
            await connection.execute(
                "UPDATE leases SET time_ns = time_ns WHERE journal_id = $1", self._journal_id
            )
        return is_stored

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _note_message(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.sqlstate == _WARNING:
            self._has_warning = True


def _is_in_doubt(error: asyncpg.PostgresError) -> bool:
    """Return whether the transaction may be stored although this error ended it.

    An error of the statement itself says that nothing is stored. The classes 08 and 57P mean that
    the connection or the server is gone.
    """
    sqlstate = error.sqlstate or ""
    return not sqlstate or sqlstate.startswith(("08", "57P"))
