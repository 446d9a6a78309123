"""Traces: the OpenTelemetry SDK of a process, and the mesh's span store."""

from trunkline.traces.exporters import MeshTarget
from trunkline.traces.sdk import Tracing, configure_tracing
from trunkline.traces.store import SpanStore
from trunkline.traces.trace_servicer import OtlpServicer, TraceServicer

__all__ = [
    "MeshTarget",
    "OtlpServicer",
    "SpanStore",
    "TraceServicer",
    "Tracing",
    "configure_tracing",
]
