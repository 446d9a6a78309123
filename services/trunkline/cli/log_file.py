"""The log file of serving processes, and how commands select and print its lines.

Processes with one data directory share the file. It has lines of JSON, and is rotated.
"""

import copy
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from trunkline.cli.options import choose
from trunkline.cli.record_lines import print_entry
from trunkline.cli.terminal import paint_level
from trunkline.cli.times import parse_since
from trunkline.core.printable import escape_controls
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.observe.audit import AuditFile, ReadRecord, follow_records
from trunkline.observe.logs import JsonFormatter, make_event

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_SIZE_BYTES: Final = 4 * 1024 * 1024
_AGE_S: Final = 30 * 86400.0
_FILES: Final = 4
# Fields that a line begins with.
_HEAD: Final = frozenset({"time", "level", "logger", "event", "service", "exception", "stack"})


def log_path(settings: Settings) -> Path:
    """Return the path of the log file of a data directory."""
    return settings.data_dir / PRIVATE_FOLDER / "log.jsonl"


class LogFileHandler(logging.Handler):
    """Appends records to the log file. It is opened by the first record.

    A file that can't be written loses records; stderr still has them.
    """

    def __init__(self, path: Path, *, service: str) -> None:
        """`service` names the process in each line."""
        super().__init__()
        self._path = path
        self._service = service
        self._file: AuditFile | None = None
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record."""
        # Other handlers get the record without the field.
        own = copy.copy(record)
        own.service = self._service
        try:
            if self._file is None:
                self._file = AuditFile(
                    self._path, size_bytes=_SIZE_BYTES, age_s=_AGE_S, files=_FILES
                )
            self._file.append(f"{self.format(own)}\n".encode())
        except (ConfigurationError, OSError):
            return

    def note(self, event: str, **fields: str) -> None:
        """Append an event that is written at every level."""
        self.handle(make_event(event, **fields))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Selects lines of the log."""

    since: datetime | None
    level: int
    """An index into `LEVELS`: the lowest one."""
    task_id: str
    """Only lines about this task. If it is empty, lines about any task."""
    trace_id: str
    """Only lines of this trace. If it is empty, lines of any trace."""

    @classmethod
    def parse(cls, *, since: str, level: str, task_id: str = "", trace_id: str = "") -> Self:
        """Return the query of a command's options.

        Raises:
            InvalidArgumentError: `since` is no time, or there is no such level.
        """
        lowest = choose("--level", level, {name: index for index, name in enumerate(LEVELS)})
        return cls(parse_since(since) if since else None, lowest, task_id, trace_id)

    def selects(self, record: ReadRecord) -> bool:
        """Return True if a line is selected. A damaged one is not."""
        entry = record.entry
        if entry is None:
            return False
        level = str(entry.get("level"))
        if level in LEVELS and LEVELS.index(level) < self.level:
            return False
        if self.task_id not in ("", entry.get("task_id")):
            return False
        if self.trace_id not in ("", entry.get("trace_id")):
            return False
        return self.since is None or _parse_time(entry) >= self.since


def follow_log(path: Path, query: LogQuery, *, lines: int) -> Iterator[ReadRecord | None]:
    """Yield the last selected lines, then new lines as they are written.

    None is yielded whenever no line is waiting.

    Raises:
        OSError: a file can't be read.
    """
    last: deque[ReadRecord] | None = deque(maxlen=lines)
    for record in follow_records(path):
        if record is None:
            yield from last or ()
            last = None
            yield None
        elif query.selects(record):
            if last is None:
                yield record
            else:
                last.append(record)


def print_record(record: ReadRecord, *, as_json: bool) -> None:
    """Print a line of the log."""
    if record.entry is not None:
        print_entry(record.entry, _render_plain, as_json=as_json)


def _render_plain(entry: Mapping[str, Any]) -> str:
    level = str(entry.get("level", ""))
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _HEAD)
    line = f"{entry.get('service', '')} {entry.get('event', '')} {fields}".rstrip()
    time = _parse_time(entry).astimezone().strftime("%m-%d %H:%M:%S")
    details = [
        f"\n    {escape_controls(row)}"
        for name in ("exception", "stack")
        for row in str(entry.get(name, "")).splitlines()
    ]
    return f"{time} {paint_level(f'{level:<7}')} {escape_controls(line)}{''.join(details)}"


def _parse_time(entry: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(str(entry.get("time")))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
