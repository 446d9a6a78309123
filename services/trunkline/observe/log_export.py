"""Exports the log of a process to a collector, as the standard `OTEL_*` variables say.

The same records as on stderr are exported, from the same level up. Fields are attributes. The type
and the frames of an exception are exported. Its text is not, because it may hold private data.
"""

import logging
import time
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry._logs import LogRecord, SeverityNumber

from trunkline.observe.flushing import finish_exports
from trunkline.observe.logs import event_fields, message_text
from trunkline.observe.otel_environment import is_sdk_disabled, make_exporters, make_resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk._logs import LoggerProvider

# Records of exporters are not exported, because each export would cause the next export.
_OWN_LOGGERS: Final = ("opentelemetry", "grpc", "urllib3", "requests")
_SEVERITIES: Final[Mapping[int, tuple[str, SeverityNumber]]] = {
    logging.DEBUG: ("DEBUG", SeverityNumber.DEBUG),
    logging.INFO: ("INFO", SeverityNumber.INFO),
    logging.WARNING: ("WARN", SeverityNumber.WARN),
    logging.ERROR: ("ERROR", SeverityNumber.ERROR),
    logging.CRITICAL: ("FATAL", SeverityNumber.FATAL),
}


def configure_log_export(service_name: str) -> "Callable[[], None]":
    """Export what this process logs from now on, if the environment names a collector for logs.

    Return the function that exports the rest and ends the export. It blocks for three seconds at
    most.
    """
    exporters = [] if is_sdk_disabled() else [exporter for _, exporter in make_exporters("logs")]
    if not exporters:
        return lambda: None
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=make_resource(service_name), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    handler = ExportHandler(provider)
    logging.getLogger().addHandler(handler)

    def end() -> None:
        logging.getLogger().removeHandler(handler)
        finish_exports([provider.shutdown])

    return end


class ExportHandler(logging.Handler):
    """Passes records to OpenTelemetry's SDK, with the trace that they were logged in."""

    def __init__(self, provider: "LoggerProvider") -> None:
        super().__init__()
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on, unless an exporter logged it."""
        if record.name.partition(".")[0] in _OWN_LOGGERS:
            return
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        text, severity = _SEVERITIES.get(level, ("DEBUG", SeverityNumber.DEBUG))
        self._provider.get_logger(record.name).emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                observed_timestamp=time.time_ns(),
                context=otel_context.get_current(),
                severity_text=text,
                severity_number=severity,
                body=message_text(record),
                attributes={**_attributes(record), **_describe_exception(record)},
            )
        )


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    fields = event_fields(record)
    for name in ("trace_id", "span_id"):
        # The record itself has them.
        fields.pop(name, None)
    return {
        name: value if isinstance(value, str | bool | int | float) else str(value)
        for name, value in fields.items()
    }


def _describe_exception(record: logging.LogRecord) -> dict[str, str]:
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    kind, _, frames = record.exc_info
    return {
        "exception.type": kind.__qualname__,
        "exception.stacktrace": "".join(traceback.format_tb(frames)),
    }
