"""The writes of one process to the message store in PostgreSQL."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from trunkline.core.backoff import PATIENCE_S, RetryWindow
from trunkline.core.postgres import Connection, PostgresDatabase
from trunkline.errors import JournalUnavailableError, TrunklineError
from trunkline.messages.postgres_batch import MessageBatch, Write
from trunkline.messages.stored_form import Codec

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Result: TypeAlias = tuple[Any, Exception | None]
_WRITE_LIMIT: Final = 500
_LOCK: Final = (
    "SELECT position, change, open_count FROM trunkline_message_counters WHERE one = 1 FOR UPDATE"
)


async def lock_writes(connection: Connection) -> tuple[int, int, int]:
    """Take the lock of all writes for a transaction. Its later statements see all earlier writes.

    Return the last position, the last change and the number of open deliveries.
    """
    ((position, change, open_count),) = await connection.fetch(_LOCK)
    return position, change, open_count


class PostgresMessageWriter:
    """Makes writes one transaction at a time. Waiting writes are one transaction.

    If a connection is lost while a transaction ends, the next transaction looks whether it was
    stored, and repeats it only if it was not.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        codec: Codec,
        *,
        process: str,
        queue_limit: int,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after each transaction with changes that others may watch."""
        self._database = database
        self._codec = codec
        self._process = process
        self._queue_limit = queue_limit
        self._on_change = on_change
        self._waiting: deque[tuple[Write[Any], asyncio.Future[Any]]] = deque()
        self._has_writes = asyncio.Event()
        self._commits = 0

    async def write(self, write: Write[_T]) -> _T:
        """Make a write; return its result once it is stored.

        Raises:
            JournalUnavailableError: nothing is stored, or the database was away for so long that
                this is not known.
        """
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, future))
        self._has_writes.set()
        return await future

    async def run(self) -> None:
        """Make the writes until canceled."""
        group: list[tuple[Write[Any], asyncio.Future[Any]]] = []
        try:
            while True:
                await self._has_writes.wait()
                group = [
                    self._waiting.popleft() for _ in range(min(len(self._waiting), _WRITE_LIMIT))
                ]
                if not self._waiting:
                    self._has_writes.clear()
                await self._make(group)
        finally:
            error = JournalUnavailableError(self._database.name, "the store is closed")
            for _, future in (*group, *self._waiting):
                if not future.done():
                    future.set_exception(error)

    async def _make(self, group: Sequence[tuple[Write[Any], asyncio.Future[Any]]]) -> None:
        pending = [(write, future) for write, future in group if not future.done()]
        try:
            results = await self._store([write for write, _ in pending])
        # A defect must not end the writer either.
        except Exception as error:  # noqa: BLE001  the callers get it
            results = [(None, error)] * len(pending)
        for (_, future), (result, failure) in zip(pending, results, strict=True):
            if future.done():
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)

    async def _store(self, writes: Sequence[Write[Any]]) -> Sequence[_Result]:
        """Make writes in one transaction; return the result or the error of each."""
        # A number is used once: that of a write that was given up may be stored.
        self._commits += 1
        number = self._commits
        # The results of a transaction that may be stored.
        results: list[_Result] | None = None
        has_changed = False
        has_failed = False
        retries = RetryWindow(PATIENCE_S)
        while True:
            try:
                async with self._database.transaction() as connection:
                    counters = await lock_writes(connection)
                    batch = MessageBatch(
                        connection, self._codec, self._process, self._queue_limit, *counters
                    )
                    made = results
                    if made is None or not await self._has_stored(connection, number):
                        results = None
                        made = await _run_all(batch, writes)
                        has_changed = batch.change != counters[1]
                    # Also if the writes are stored, so that the end of this transaction waits for
                    # a synchronous standby, and with it for theirs.
                    await batch.flush(number)
                    results = made
            except JournalUnavailableError as error:
                # Nothing is stored. A first failure may be of a connection that was lost before.
                if results is None and has_failed:
                    raise
                has_failed = True
                if results is not None:
                    logger.warning("messages.commit_in_doubt", extra={"problem": error.problem})
                    await asyncio.sleep(retries.next_pause_s(error))
            else:
                if has_changed:
                    self._on_change()
                return results

    async def _has_stored(self, connection: Connection, number: int) -> bool:
        """Return whether a transaction was stored. The lock says that it has ended."""
        return bool(
            await connection.fetchval(
                "SELECT 1 FROM trunkline_message_processes WHERE process = $1 AND commits = $2",
                self._process,
                number,
            )
        )


async def _run_all(batch: MessageBatch, writes: Sequence[Write[Any]]) -> list[_Result]:
    await batch.load(writes)
    results: list[_Result] = []
    for write in writes:
        try:
            results.append((await write.work(batch), None))
        # Such a write has changed nothing, and fails no other.
        except TrunklineError as error:
            results.append((None, error))
    return results
