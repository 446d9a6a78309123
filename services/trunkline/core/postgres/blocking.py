"""A database for code that blocks, in the thread that uses it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.errors import JournalUnavailableError

_T = TypeVar("_T")


class BlockingDatabase:
    """A database with an event loop of its own. Only one thread may use it at a time."""

    def __init__(self, database: PostgresDatabase, *, timeout_s: float) -> None:
        """Use a database that nothing else uses. `close` closes it.

        A call fails after `timeout_s` seconds, also if the network swallows all packets.
        """
        self.database: PostgresDatabase = database
        self._timeout_s = timeout_s
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of work with the database.

        Raises:
            JournalUnavailableError: the database can't be reached, or takes too long.
        """
        return self._runner.run(self._finish_in_time(work))

    def close(self) -> None:
        """Close the database."""
        try:
            self._runner.run(self.database.__aexit__(None, None, None))
        finally:
            self._runner.close()

    async def _finish_in_time(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            problem = f"it did not answer within {self._timeout_s:g} s"
            raise JournalUnavailableError(self.database.name, problem) from None
