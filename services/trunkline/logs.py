"""Logging of a process: to stderr, as plain lines or as JSON."""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from opentelemetry import trace

from trunkline import telemetry
from trunkline.printable import escape_controls, escape_json_controls

current_task_id: Final[ContextVar[str]] = ContextVar("current_task_id", default="")
"""The task whose turn the current code works for, which records are logged with."""

# Attributes of every record. All other attributes are fields of the event.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# uvicorn adds its messages in colour.
_STANDARD |= {"color_message"}

# Libraries that log session ids, URLs with keys in them, and contents of messages.
_SILENCED = ("mcp", "httpx2", "httpcore2")

# Values of fields that stand without quotes in plain lines.
_UNQUOTED = re.compile(r"[^\s\"=]+")
_MARKS_OF_FIELDS = re.compile(r"[\"=]")


def configure_logging(*, level: str, log_format: str) -> None:
    """Log to stderr from `level` up, in the format `json` or `plain`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    # Warnings would print their text unescaped.
    logging.captureWarnings(capture=True)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def make_event(event: str, **fields: object) -> logging.LogRecord:
    """Return the record of an event of the process, for output that has it at every level."""
    record = logging.makeLogRecord(
        {"name": "trunkline", "levelno": logging.INFO, "levelname": "INFO", "msg": event}
    )
    vars(record).update(fields)
    return record


def render_event(event: str, text: str, *, log_format: str, **fields: object) -> str:
    """Return the line of an event of the process: JSON among JSON logs, else `text`."""
    if log_format == "json":
        return JsonFormatter().format(make_event(event, **fields))
    return text


class PlainFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, event, fields.

    An exception follows, in indented lines. Logged text can't begin a line or a field.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        time = _record_time(record).strftime("%H:%M:%S")
        fields = "".join(f" {name}={_quote(value)}" for name, value in _own_fields(record).items())
        message = message_text(record)
        if _MARKS_OF_FIELDS.search(message):
            message = json.dumps(message, ensure_ascii=False)
        line = f"{time} {record.levelname.lower()} {record.name} {message}{fields}"
        details = "".join(f"\n    {escape_controls(row)}" for row in self._details(record))
        return escape_controls(line) + details

    def _details(self, record: logging.LogRecord) -> list[str]:
        texts = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            texts.append(record.stack_info)
        # Not `splitlines`, which also splits at characters that are escaped.
        return [row for text in texts for row in text.split("\n")]


class JsonFormatter(logging.Formatter):
    """Formats a record as one line with a JSON object, without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: dict[str, Any] = {
            "time": _record_time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": message_text(record),
        }
        # An event can't replace these, which come first.
        entry |= event_fields(record) | entry
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = record.stack_info
        return escape_json_controls(json.dumps(entry, ensure_ascii=False, default=str))


def message_text(record: logging.LogRecord) -> str:
    """Return the event of a record, or the message of a library."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  logging would print the arguments without escaping them
        return f"{record.msg} {record.args!r}"


def _quote(value: object) -> str:
    text = str(value)
    return text if _UNQUOTED.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _record_time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _own_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record, and the trace that it was logged in."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if trace_id := telemetry.current_trace_id():
        fields.setdefault("trace_id", trace_id)
    return fields


def event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record, and the trace, the span and the task it was logged in.

    Call it while the record is handled.
    """
    fields = _own_fields(record)
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        fields.setdefault("span_id", trace.format_span_id(span.span_id))
    if task_id := current_task_id.get():
        fields.setdefault("task_id", task_id)
    return fields
