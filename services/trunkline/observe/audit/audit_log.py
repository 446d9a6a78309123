"""The audit log of a process: a bounded queue of records that wait for being written."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.core.private_files import PRIVATE_FOLDER, check_data_folder
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, TrunklineError
from trunkline.observe import telemetry
from trunkline.observe.audit.audit_file import AuditFile
from trunkline.observe.audit.audit_store import (
    AuditReader,
    AuditWriter,
    FileAuditReader,
    FileAuditWriter,
)
from trunkline.observe.audit.record import (
    DENIED,
    FAILED,
    OK,
    READS,
    Action,
    Actor,
    ActorKind,
    AuditRecord,
    outcome_of,
)

if TYPE_CHECKING:
    from trunkline.core.postgres.database import PostgresDatabase
    from trunkline.observe.audit.postgres_audit import PostgresAudit

logger = logging.getLogger(__name__)

FILE_NAME: Final = "audit.jsonl"

_QUEUE_LIMIT: Final = 10_000
_BATCH_LIMIT: Final = 500
# Records wait this long, so that several records are written together.
_BATCH_S: Final = 0.2
_RETRY_S: Final = 1.0
# The longest wait for the disk when the process stops.
_CLOSE_TIMEOUT_S: Final = 5.0
# Refusals of one actor within this time are one record, so that they can't fill the log.
_MERGE_S: Final = 60.0
_MERGED_ACTORS: Final = 100
_OTHER_ADDRESSES: Final = "(others)"


class AuditLog:
    """Records acts without waiting for the disk. An async context manager; see `open_audit_log`.

    While the log can't be written, up to 10,000 records wait in memory. Further ones are counted,
    and the first record after that says how many were lost.
    """

    def __init__(
        self,
        writer: AuditWriter,
        reader: AuditReader,
        *,
        process: str,
        records_reads: bool,
        spare: Callable[[], AuditFile] | None = None,
    ) -> None:
        """`spare` opens a file for records that can't be written when the log is closed."""
        self.records_reads = records_reads
        self.reader: AuditReader = reader
        """Reads the records of all processes that share the log."""
        self._writer = writer
        self._spare = spare
        self._process = process
        self._queue: deque[AuditRecord] = deque()
        self._lost_count = 0
        self._is_failing = False
        # The records that are being written, or could not be written.
        self._batch: list[AuditRecord] = []
        self._writing: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        # The number of refusals since the last record of an actor and act, and the newest one.
        self._refusals: dict[tuple[Actor, Action], tuple[int, AuditRecord]] = {}

    @property
    def process(self) -> str:
        """The name of this process in its records."""
        return self._process

    def covers(self, action: Action) -> bool:
        """Return True if acts of this kind are recorded."""
        return self.records_reads or action not in READS

    def record(
        self,
        action: Action,
        actor: Actor,
        *,
        outcome: str = OK,
        decision: str = "",
        **objects: str,
    ) -> None:
        """Record an act. `objects` are ids by the kinds of objects."""
        self._put(
            AuditRecord(
                action=action,
                actor=actor,
                outcome=outcome,
                objects=objects,
                decision=decision,
                trace_id=telemetry.current_trace_id(),
            )
        )

    def record_refusal(
        self, action: Action, actor: Actor, *, outcome: str = DENIED, **objects: str
    ) -> None:
        """Record that an actor was refused. Soon repeated refusals of one act are one record."""
        key = (actor, action)
        if key not in self._refusals and len(self._refusals) >= _MERGED_ACTORS:
            actor = Actor(kind=actor.kind, address=_OTHER_ADDRESSES)
            key = (actor, action)
        refusal = AuditRecord(
            action=action,
            actor=actor,
            outcome=outcome,
            objects=objects,
            trace_id=telemetry.current_trace_id(),
        )
        if key in self._refusals:
            count, _ = self._refusals[key]
            self._refusals[key] = (count + 1, refusal)
            return
        self._put(refusal)
        self._refusals[key] = (0, refusal)
        asyncio.get_running_loop().call_later(_MERGE_S, self._end_merge, key)

    async def run(self) -> None:
        """Write records until cancelled."""
        while True:
            await self._wake.wait()
            # Acts come in groups.
            await asyncio.sleep(_RETRY_S if self._is_failing else _BATCH_S)
            self._wake.clear()
            await self._write()

    async def close(self) -> None:
        """Write the remaining records, for a limited time, and close the log."""
        for key in list(self._refusals):
            self._end_merge(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                if self._writing is not None:
                    await asyncio.wait([self._writing])
                while self._batch or self._queue or self._lost_count:
                    await self._write()
                    if self._is_failing:
                        break
        if (writing := self._writing) is not None:
            writing.cancel()
            await asyncio.wait([writing])
        self._writer.close()
        if (remaining := [*self._batch, *self._queue]) and self._spare is not None:
            try:
                await asyncio.to_thread(self._write_to_spare, remaining)
            except (OSError, ConfigurationError) as error:
                logger.error("audit.not_written", extra={"problem": str(error)})
            else:
                remaining = []
        if lost := sum(map(_count_records, remaining)) + self._lost_count:
            logger.error("audit.lost", extra={"count": lost})

    def _write_to_spare(self, records: Sequence[AuditRecord]) -> None:
        """Write records to the local file, because the database is away."""
        if self._spare is not None:
            file = self._spare()
            try:
                file.append(b"".join(record.to_line(self._process) for record in records))
            finally:
                file.close()
            logger.warning(
                "audit.left_in_file", extra={"file": str(file.path), "count": len(records)}
            )

    def _put(self, record: AuditRecord) -> None:
        if len(self._queue) + len(self._batch) >= _QUEUE_LIMIT:
            self._lost_count += 1
            return
        self._queue.append(record)
        self._wake.set()

    def _end_merge(self, key: tuple[Actor, Action]) -> None:
        count, refusal = self._refusals.pop(key, (0, None))
        if refusal is not None and count:
            self._put(replace(refusal, count=count))

    async def _write(self) -> None:
        """Write the oldest records. If that fails, they are the batch of the next time, too."""
        if not self._batch:
            if self._lost_count:
                self._batch.append(_lost_record(self._lost_count))
                self._lost_count = 0
            while self._queue and len(self._batch) < _BATCH_LIMIT:
                self._batch.append(self._queue.popleft())
        if not self._batch:
            return
        writing = self._writing = asyncio.get_running_loop().create_task(
            self._writer.append(self._batch, self._process)
        )
        writing.add_done_callback(self._finish)
        # If this is cancelled, the write continues.
        await asyncio.wait([writing])

    def _finish(self, writing: asyncio.Task[None]) -> None:
        """Forget the written records, or log why they are not written."""
        self._writing = None
        if writing.cancelled():
            return
        error = writing.exception()
        if error is None:
            self._batch = []
        elif not self._is_failing:
            extra = {"file": self._writer.place, "problem": str(error)}
            logger.error("audit.not_written", extra=extra)
        self._is_failing = error is not None
        if self._batch or self._queue or self._lost_count:
            self._wake.set()


@contextmanager
def recording(
    audit: AuditLog | None,
    action: Action,
    actor: Callable[[], Actor],
    *,
    decision: str = "",
    is_recorded: bool = True,
    **objects: str,
) -> Iterator[None]:
    """Record the act of a block and its outcome, if there is an audit log.

    With `is_recorded=False`, the act is recorded only if it is refused.
    """
    if audit is None:
        yield
        return
    outcome = OK
    try:
        yield
    except BaseException as error:
        outcome = outcome_of(error.reason) if isinstance(error, TrunklineError) else FAILED
        raise
    finally:
        if outcome == DENIED:
            audit.record_refusal(action, actor(), **objects)
        elif is_recorded:
            audit.record(action, actor(), outcome=outcome, decision=decision, **objects)


@asynccontextmanager
async def open_audit_log(
    settings: Settings, database: "PostgresDatabase | None" = None, *, process: str
) -> AsyncIterator[AuditLog | None]:
    """Open the audit log of a process, or yield None if the settings turn it off.

    It is in the database, if there is one and the settings name no file.

    A process opens the log before other files of its data directory, so this also checks the
    directory.

    Raises:
        ConfigurationError: the file can't be used, or another user may replace the data directory
            or its content.
    """
    check_data_folder(settings.data_dir)
    if not settings.audit:
        yield None
        return
    writer: AuditWriter
    reader: AuditReader
    async with AsyncExitStack() as stack:
        if (stored := find_postgres_audit(settings, database)) is not None:
            writer = reader = stored
            spare = partial(open_audit_file, settings)
            await stack.enter_async_context(run_in_background(stored.delete_old_records()))
        else:
            file = await asyncio.to_thread(open_audit_file, settings)
            writer, reader, spare = FileAuditWriter(file), FileAuditReader(file.path), None
        log = AuditLog(
            writer, reader, process=process, records_reads=settings.audit_reads, spare=spare
        )
        stack.push_async_callback(log.close)
        await stack.enter_async_context(run_in_background(log.run()))
        yield log


def find_postgres_audit(
    settings: Settings, database: "PostgresDatabase | None"
) -> "PostgresAudit | None":
    """Return the log in the database, or None if the log is in files."""
    if database is None or settings.audit_file is not None:
        return None
    from trunkline.observe.audit.postgres_audit import PostgresAudit

    return PostgresAudit(
        database,
        size_bytes=settings.audit_size_bytes * settings.audit_files,
        age_s=settings.audit_age_s * settings.audit_files,
    )


def audit_path(settings: Settings) -> Path:
    """Return the path of the audit log's current file."""
    return settings.audit_file or settings.data_dir / PRIVATE_FOLDER / FILE_NAME


def open_audit_file(settings: Settings) -> AuditFile:
    """Open the file of the audit log.

    Raises:
        ConfigurationError: another user may change it, or it can't be opened.
    """
    path = audit_path(settings)
    try:
        return AuditFile(
            path,
            size_bytes=settings.audit_size_bytes,
            age_s=settings.audit_age_s,
            files=settings.audit_files,
        )
    except OSError as error:
        reason = error.strerror or str(error)
        if settings.audit_file is None:
            problem = f"can't be used: {reason}; choose another with --data"
            raise ConfigurationError(f"data directory {settings.data_dir}", problem) from error
        problem = f"can't be opened: {reason}; choose another audit_file, or set audit = false"
        raise ConfigurationError(f"audit log {path}", problem) from error


def _count_records(record: AuditRecord) -> int:
    return record.count if record.action is Action.AUDIT_LOST else 1


def _lost_record(count: int) -> AuditRecord:
    actor = Actor(kind=ActorKind.PROCESS)
    return AuditRecord(action=Action.AUDIT_LOST, actor=actor, count=count)
