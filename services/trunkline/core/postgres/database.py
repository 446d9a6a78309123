"""Connections to PostgreSQL, and the meaning of its errors."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import asyncpg

from trunkline.core.postgres.schema import Schema
from trunkline.errors import JournalUnavailableError

Connection: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)
_Result = TypeVar("_Result")

# InternalClientError is what asyncpg usually raises if the server dies during a statement.
ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""All errors of a call of asyncpg."""
_POOL_SIZE: Final = 4
_CONNECT_TIMEOUT_S: Final = 10.0
# The time for a statement other than a commit.
_STATEMENT_TIMEOUT_S: Final = 30.0


class PostgresDatabase:
    """A pool of connections, which the stores of a process share. An async context manager.

    It connects when it is used, and its end closes the pool.

    All methods raise JournalUnavailableError if the database can't be reached.
    """

    def __init__(self, url: str) -> None:
        self.name: str = _hide_password(url)
        """The URL without a password."""
        self.recovered_s: float = -float("inf")
        """When the database answered again after an error, by the monotonic clock."""
        self._url = url
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._is_failing = False
        self._prepared: set[str] = set()
        self._preparing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def prepare(self, schema: Schema) -> None:
        """Create or check the tables of a store once in this process.

        Raises:
            JournalUnavailableError: the tables are of another version, or the role may not create
                them.
        """
        async with self._preparing:
            if schema.part in self._prepared:
                return
            if problem := await self.run(schema.prepare):
                raise JournalUnavailableError(self.name, problem)
            self._prepared.add(schema.part)

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection that the caller closes."""
        with self.translate_errors():
            return await asyncpg.connect(self._url, timeout=_CONNECT_TIMEOUT_S)

    async def run(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Run statements on a connection of the pool.

        They may run twice, because a connection may have been lost since its last use.
        """
        with self.translate_errors():
            pool = await self._open_pool()
            for is_last in (False, True):
                async with pool.acquire() as connection:
                    try:
                        result = await work(connection)
                    except ERRORS:
                        if is_last or not connection.is_closed():
                            raise
                    else:
                        break
            if self._is_failing:
                self._is_failing = False
                self.recovered_s = time.monotonic()
            return result

    async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]:
        """Return the rows of a query."""
        return await self.run(lambda connection: connection.fetch(query, *values))

    async def fetchrow(self, query: str, *values: object) -> asyncpg.Record | None:
        """Return the first row of a statement."""
        return await self.run(lambda connection: connection.fetchrow(query, *values))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Run a block in one transaction on a connection of the pool."""
        with self.translate_errors():
            pool = await self._open_pool()
            async with pool.acquire() as connection, connection.transaction():
                yield connection

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise JournalUnavailableError for the errors of asyncpg."""
        try:
            yield
        except ERRORS as error:
            self._is_failing = True
            problem = str(error) or type(error).__name__
            raise JournalUnavailableError(self.name, problem) from error

    async def _open_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=_POOL_SIZE,
                    timeout=_CONNECT_TIMEOUT_S,
                    command_timeout=_STATEMENT_TIMEOUT_S,
                    # The statements leave no state on a connection, so no reset is sent.
                    reset=_reset_nothing,
                )
            return self._pool


async def _reset_nothing(_connection: object) -> None:
    """Keep a connection as it is when it returns to the pool."""


def _hide_password(url: str) -> str:
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    return f"postgresql://{address}{parts.path}"
