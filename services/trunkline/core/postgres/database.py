"""Connections to PostgreSQL, and the meaning of its errors."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeAlias, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from trunkline.core.backoff import Backoff
from trunkline.core.postgres.errors import build_error
from trunkline.core.postgres.schema import Schema
from trunkline.core.settings.postgres_url import describe_postgres_url
from trunkline.errors import JournalUnavailableError, JournalUnusableError

logger = logging.getLogger(__name__)

Connection: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)
_Result = TypeVar("_Result")

# InternalClientError is what asyncpg usually raises if the server dies during a statement, and
# OSError includes TimeoutError. A server that has become read-only is not the primary any more.
_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
_NOT_PREPARED: Final = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
ERRORS: Final = (asyncpg.PostgresError, *_LOST)
"""All errors of a call of asyncpg."""
UNREPLICATED: Final = "01000"
"""The code of the warning that a commit was stored, but does not wait for the synchronous standby
any more."""
_POOL_SIZE: Final = 4
# How often work runs that other transactions are in the way of.
_CONFLICT_TRIES: Final = 20
# The prepared statements of a connection. It is the default of asyncpg.
_STATEMENT_CACHE_SIZE: Final = 100
_CONNECT_TIMEOUT_S: Final = 5.0
# The time for a statement other than a commit.
_STATEMENT_TIMEOUT_S: Final = 30.0
# A process that is frozen in a transaction may not hold its locks for longer, and nobody waits
# longer for them. Settings of a connection would not pass a pooler.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '3s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '5s'"
)
# A process that is frozen between the parts of a statement does not count as idle. Servers before
# version 17 have no limit for it.
_BEGIN_LIMITED: Final = f"{_BEGIN}; SET LOCAL transaction_timeout = '15s'"
_LIMITED_VERSION: Final = 17
# A connection whose peer is gone ends within about 20 s, also if it waits for the end of a commit.
_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 20_000,
}


class _Connection(asyncpg.Connection):
    """A connection that notices the loss of its network."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401  as asyncpg makes it
        super().__init__(*arguments)
        transport: asyncio.Transport = arguments[1]
        found: socket.socket = transport.get_extra_info("socket")
        if found.family != socket.AF_UNIX:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                # Not every system has all of them.
                if hasattr(socket, name):
                    found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class PostgresDatabase:
    """A pool of connections, which the stores of a process share. An async context manager.

    It connects when it is used, and its end closes the pool.

    All methods raise JournalUnavailableError if the database can't be reached.
    """

    def __init__(self, url: str) -> None:
        """Use the database of a URL.

        Raises:
            ValueError: the URL is invalid.
        """
        self.name: str = describe_postgres_url(url)
        """The hosts, ports and database of the URL, without its user and password."""
        self._url = url
        # Of several hosts, the primary. A URL can name another kind of host, for example to read.
        self._session_attrs = (
            None if "target_session_attrs=" in url else SessionAttribute.read_write
        )
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._prepared: set[str] = set()
        self._preparing = asyncio.Lock()
        self._statement_cache_size = _STATEMENT_CACHE_SIZE

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def wait_until_reachable(self) -> None:
        """Wait until the database accepts connections.

        Raises:
            JournalUnusableError: it refuses the user, the password or the name of the database.
        """
        backoff = Backoff()
        is_reported = False
        while True:
            try:
                connection = await self.connect()
            except JournalUnusableError:
                raise
            except JournalUnavailableError as error:
                if not is_reported:
                    extra = {"database": self.name, "problem": error.problem}
                    logger.warning("database.awaited", extra=extra)
                is_reported = True
                await backoff.pause()
            else:
                connection.terminate()
                return

    async def prepare(self, schema: Schema) -> None:
        """Create or check the tables of a store once in this process.

        Raises:
            JournalUnusableError: the tables are of another version, or the role may not create
                them.
        """
        async with self._preparing:
            if schema.part in self._prepared:
                return
            if problem := await self.run(schema.prepare):
                raise JournalUnusableError(self.name, problem)
            self._prepared.add(schema.part)

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection that the caller closes. Its statements have no deadline."""
        with self.translate_errors():
            connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
                self._url,
                timeout=_CONNECT_TIMEOUT_S,
                connection_class=_Connection,
                statement_cache_size=self._statement_cache_size,
                target_session_attrs=self._session_attrs,
            )
            return connection

    async def run(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Run statements on a connection of the pool.

        They may run several times, because a connection may have been lost since its last use, and
        because statements conflict at another default isolation level than READ COMMITTED.
        """
        backoff = Backoff(first_s=0.005, limit_s=0.1)
        with self.translate_errors():
            for _ in range(_CONFLICT_TRIES - 1):
                try:
                    return await self._run_connected(work)
                except asyncpg.TransactionRollbackError:
                    await backoff.pause()
            return await self._run_connected(work)

    async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]:
        """Return the rows of a query."""
        return await self.run(lambda connection: connection.fetch(query, *values))

    async def fetchrow(self, query: str, *values: object) -> asyncpg.Record | None:
        """Return the first row of a statement."""
        return await self.run(lambda connection: connection.fetchrow(query, *values))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Run a block in one transaction on a connection of the pool.

        A statement that waits for a lock for 3 s fails, and a block that runs no statement for 5 s.
        """
        with self.translate_errors():
            async with self._acquire() as connection, begin(connection):
                yield connection

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise JournalUnavailableError for the errors of asyncpg."""
        try:
            yield
        except ERRORS as error:
            self.adapt(error)
            raise build_error(self.name, error) from error

    def adapt(self, error: BaseException) -> bool:
        """Return whether a statement that failed should be tried again on a new connection.

        That is so if a pooler has lost its prepared statement, or has given it a connection on
        which another process prepared one with the same name. Neither has run. No connection
        prepares statements then.
        """
        if not isinstance(error, _NOT_PREPARED):
            return False
        if not self._statement_cache_size:
            # A statement on another connection had the same error before.
            return True
        self._statement_cache_size = 0
        extra = {"database": self.name, "problem": str(error)}
        logger.warning("database.without_prepared_statements", extra=extra)
        if self._pool is not None:
            # Statements in flight fail, or run again.
            pool, self._pool = self._pool, None
            pool.terminate()
        return True

    async def _run_connected(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Run statements, once more on another connection if theirs was lost."""
        try:
            async with self._acquire() as connection:
                return await work(connection)
        except TimeoutError:
            raise
        except ERRORS as error:
            if not isinstance(error, _LOST) and not self.adapt(error):
                raise
        async with self._acquire() as connection:
            return await work(connection)

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[Connection]:
        """Lend a connection of the pool. If its state is unknown afterwards, it is closed."""
        pool = await self._open_pool()
        connection = await pool.acquire(timeout=_CONNECT_TIMEOUT_S)
        warnings: list[str] = []

        def note(_connection: object, message: asyncpg.PostgresLogMessage) -> None:
            if message.sqlstate == UNREPLICATED:
                warnings.append(str(message))

        connection.add_log_listener(note)
        try:
            yield connection
        except BaseException as error:
            if not is_usable_after(error):
                with contextlib.suppress(asyncpg.InterfaceError):
                    # The pool has taken back a connection that was lost.
                    connection.terminate()
                raise
            connection.remove_log_listener(note)
            await pool.release(connection)
            raise
        connection.remove_log_listener(note)
        await pool.release(connection)
        if warnings:
            raise JournalUnavailableError(self.name, warnings[0])

    async def _open_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_POOL_SIZE,
                    timeout=_CONNECT_TIMEOUT_S,
                    command_timeout=_STATEMENT_TIMEOUT_S,
                    connection_class=_Connection,
                    # The statements leave no state on a connection, so no reset is sent.
                    reset=_reset_nothing,
                    statement_cache_size=self._statement_cache_size,
                    target_session_attrs=self._session_attrs,
                )
            return self._pool


@asynccontextmanager
async def begin(connection: Connection) -> AsyncIterator[None]:
    """Run a block in one transaction on this connection; see `PostgresDatabase.transaction`."""
    is_limited = connection.get_server_version().major >= _LIMITED_VERSION
    await connection.execute(_BEGIN_LIMITED if is_limited else _BEGIN)
    try:
        yield
    except BaseException as error:
        if is_usable_after(error):
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


def is_usable_after(error: BaseException) -> bool:
    """Return whether a connection can run further statements after this error in a block."""
    return isinstance(error, Exception) and not isinstance(error, _LOST)


async def _reset_nothing(_connection: object) -> None:
    """Keep a connection as it is when it returns to the pool."""
