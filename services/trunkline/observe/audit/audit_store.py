"""The places of the audit log: files of a data directory, or the database of the mesh."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

from trunkline.errors import JournalUnavailableError
from trunkline.observe.audit.audit_file import (
    AuditFile,
    ReadRecord,
    RecordPosition,
    follow_records,
    read_records,
    read_records_backwards,
)
from trunkline.observe.audit.record import AuditRecord

_T = TypeVar("_T")

# The lines that are read in a thread at once.
_BLOCK: Final = 200


class AuditWriter(Protocol):
    """Appends records to the log. Other processes append to the same log."""

    @property
    def place(self) -> str:
        """The place of the log for people, without secrets."""

    async def append(self, records: Sequence[AuditRecord], process: str) -> None:
        """Append records as this process writes them.

        After an error, the same records are appended again before any others.

        Raises:
            OSError, ConfigurationError, JournalUnavailableError: they can't be written.
        """

    def close(self) -> None:
        """Close the log. A write that hangs does not delay it."""


class AuditReader(Protocol):
    """Reads the records of all processes.

    All methods raise JournalUnavailableError if the log can't be read.
    """

    @property
    def place(self) -> str:
        """The place of the log for people, without secrets."""

    def exists(self) -> bool:
        """Return whether there may be a log at the place. It may read a folder."""

    def read(self, *, follows: bool = False) -> AsyncGenerator[Sequence[ReadRecord]]:
        """Yield all records, the oldest first. With `follows`, new ones after them."""

    def read_backwards(
        self, before: RecordPosition | None = None
    ) -> AsyncGenerator[Sequence[tuple[ReadRecord, RecordPosition]]]:
        """Yield the records before a position, the newest first, each with its position.

        Nothing is yielded if the file of the position is deleted.
        """


class FileAuditWriter:
    """An `AuditWriter` of a file, in a thread."""

    def __init__(self, file: AuditFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")

    @property
    def place(self) -> str:
        """The path of the current file."""
        return str(self._file.path)

    async def append(self, records: Sequence[AuditRecord], process: str) -> None:
        """Append records; see `AuditWriter`."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._append, records, process)

    def _append(self, records: Sequence[AuditRecord], process: str) -> None:
        self._file.append(b"".join(record.to_line(process) for record in records))

    def close(self) -> None:
        """Close the file after the write in flight."""
        self._thread.submit(self._file.close)
        self._thread.shutdown(wait=False)


class FileAuditReader:
    """An `AuditReader` of the current file and the earlier files that it was rotated to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        """The path of the current file."""
        return str(self._path)

    def exists(self) -> bool:
        """Return whether there is a current file."""
        return self._path.exists()

    async def read(self, *, follows: bool = False) -> AsyncGenerator[Sequence[ReadRecord]]:
        """Yield all records, the oldest first; see `AuditReader`."""
        if not follows:
            async for block in self._iterate(read_records(self._path)):
                yield block
            return
        records = follow_records(self._path)
        with self._translate_errors():
            while True:
                # It ends at the last line, and the next one waits for new lines.
                yield await asyncio.to_thread(_take_until_none, records)

    async def read_backwards(
        self, before: RecordPosition | None = None
    ) -> AsyncGenerator[Sequence[tuple[ReadRecord, RecordPosition]]]:
        """Yield the records before a position; see `AuditReader`."""
        async for block in self._iterate(read_records_backwards(self._path, before)):
            yield block

    async def _iterate(self, records: Iterator[_T]) -> AsyncGenerator[Sequence[_T]]:
        with self._translate_errors():
            while block := await asyncio.to_thread(lambda: list(islice(records, _BLOCK))):
                yield block

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # The reader of the output of a command, such as `head`, has left.
            raise
        except OSError as error:
            problem = f"can't be read: {error.strerror or error}"
            raise JournalUnavailableError(self.place, problem) from error


def _take_until_none(records: Iterator[ReadRecord | None]) -> list[ReadRecord]:
    block: list[ReadRecord] = []
    for record in islice(records, _BLOCK):
        if record is None:
            break
        block.append(record)
    return block
