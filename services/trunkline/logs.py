"""Logging of a process: to stderr, as plain lines or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from trunkline import telemetry

# Attributes of every record. All others are fields of the event.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Libraries that log session ids, URLs with keys in them, and contents of messages.
_SILENCED = ("mcp", "httpx2", "httpcore2")


def configure_logging(*, level: str, log_format: str) -> None:
    """Log to stderr from `level` up, in the format `json` or `plain`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class PlainFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, event, fields. An exception follows."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        time = _record_time(record).strftime("%H:%M:%S")
        fields = "".join(f" {name}={value}" for name, value in _event_fields(record).items())
        line = f"{time} {record.levelname.lower()} {record.name} {record.getMessage()}{fields}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: dict[str, Any] = {
            "time": _record_time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_event_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _record_time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _event_fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if trace_id := telemetry.current_trace_id():
        fields.setdefault("trace_id", trace_id)
    return fields
