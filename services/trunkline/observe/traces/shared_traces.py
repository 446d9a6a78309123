"""Shares the traces of a mesh between its registries, by a log in the database.

Each registry has the traces in its own file, from which it answers. New spans that it receives are
appended to the log, and it follows what others append. So any registry shows all traces, and a
registry whose file is lost reads them again.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.core.postgres.database import PostgresDatabase
from trunkline.core.postgres.shared_log import SharedLog, log_schema
from trunkline.core.runtime import run_in_background
from trunkline.errors import JournalUnavailableError
from trunkline.observe.traces.store import SpanStore

logger = logging.getLogger(__name__)

SPANS: Final = log_schema("spans")
"""The tables of the log of spans. An entry has the spans of one trace that arrived together."""
# With the limit of traces, it limits the log: an average trace is smaller.
_TRACE_BYTES: Final = 32 * 1024
# Spans beyond it are dropped while the database is slow or away.
_QUEUE_BYTES: Final = 8 * 1024 * 1024
_BATCH_LIMIT: Final = 500
# Spans wait this long, so that several batches are appended together.
_BATCH_S: Final = 0.2
_RETRY_S: Final = 1.0
_FOLLOW_S: Final = 2.0
_CLOSE_S: Final = 2.0


class SharedTraces:
    """The log of spans of one registry. `put` does not wait, and never fails."""

    def __init__(self, database: PostgresDatabase, *, max_traces: int, retention_s: float) -> None:
        self._log = SharedLog(
            database, SPANS, size_bytes=max_traces * _TRACE_BYTES, age_s=retention_s
        )
        self._loop = asyncio.get_running_loop()
        self._has_spans = asyncio.Event()
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._dropped_count = 0
        # What is being appended, or could not be appended.
        self._batch: list[bytes] = []

    def put(self, contents: Sequence[bytes]) -> None:
        """Append contents later. They are dropped and counted if too many wait. Thread-safe."""
        with self._lock:
            for content in contents:
                if self._queue_bytes + len(content) > _QUEUE_BYTES:
                    self._dropped_count += 1
                else:
                    self._queue.append(content)
                    self._queue_bytes += len(content)
        # The loop may have ended, at the end of the process.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._has_spans.set)

    @asynccontextmanager
    async def run(self, store: SpanStore) -> AsyncIterator[None]:
        """Append and follow in the `async with` block. At its end, the rest is appended."""
        async with (
            run_in_background(self._log.delete_old_entries()),
            run_in_background(self._follow(store)),
        ):
            async with run_in_background(self._append_forever()):
                yield
            with suppress(TimeoutError, JournalUnavailableError):
                async with asyncio.timeout(_CLOSE_S):
                    while await self._append_batch():
                        pass
        self._report_dropped(len(self._batch) + len(self._queue))

    async def _append_forever(self) -> None:
        is_failing = False
        while True:
            await self._has_spans.wait()
            await asyncio.sleep(_RETRY_S if is_failing else _BATCH_S)
            self._has_spans.clear()
            try:
                while await self._append_batch():
                    pass
            except JournalUnavailableError as error:
                if not is_failing:
                    logger.warning("traces.not_shared", extra={"problem": error.problem})
                is_failing = True
                self._has_spans.set()
            else:
                is_failing = False
                self._report_dropped(0)

    async def _append_batch(self) -> bool:
        """Append the oldest contents. Return False if there are none."""
        if not self._batch:
            with self._lock:
                self._batch = list(islice(self._queue, _BATCH_LIMIT))
                for content in self._batch:
                    self._queue.popleft()
                    self._queue_bytes -= len(content)
        if not self._batch:
            return False
        await self._log.append(self._batch)
        self._batch = []
        return True

    def _report_dropped(self, waiting: int) -> None:
        with self._lock:
            count, self._dropped_count = self._dropped_count + waiting, 0
        if count:
            logger.warning("traces.dropped", extra={"count": count})

    async def _follow(self, store: SpanStore) -> None:
        log_id = ""
        position = 0
        while True:
            try:
                if not log_id:
                    log_id = await self._log.read_id()
                    position = await store.run_in_thread(store.read_position, log_id)
                while entries := await self._log.read(position, limit=_BATCH_LIMIT):
                    position = entries[-1].position
                    others = [each.body for each in entries if each.writer != self._log.writer]
                    await store.run_in_thread(store.add_shared, others, log_id, position)
            # Skipped, such as spans that a later version has written.
            except (ValueError, DecodeError) as error:
                logger.error("traces.not_readable", extra={"problem": str(error)})
            except JournalUnavailableError as error:
                logger.debug("traces.not_followed", extra={"problem": error.problem})
            await asyncio.sleep(_FOLLOW_S)
