"""Where the log of a process goes: stderr, as lines for people or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from trunkline import telemetry

# What every record has; the rest are the fields of the event.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# These log ids of sessions, addresses with keys in them, and what was said.
_TALKATIVE = ("mcp", "httpx2", "httpcore2")


def configure_logging(*, level: str, log_format: str) -> None:
    """Send the log of this process to stderr, from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class PlainFormatter(logging.Formatter):
    """One line for people: time, level, event, fields; an exception follows."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        time = _time_of(record).strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in _fields_of(record).items())
        line = f"{time} {record.levelname.lower()} {record.name} {record.getMessage()}{fields}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: dict[str, Any] = {
            "time": _time_of(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if trace_id := telemetry.current_trace_id():
        fields.setdefault("trace_id", trace_id)
    return fields
