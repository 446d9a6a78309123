"""Traces: where a process sends its spans, and the store that keeps them."""

from trunkline.traces.configure import Telemetry, configure
from trunkline.traces.otlp_servicer import OtlpServicer
from trunkline.traces.store import SpanStore
from trunkline.traces.trace_servicer import TraceServicer
from trunkline.traces.tree import SpanNode, TraceTree

__all__ = [
    "OtlpServicer",
    "SpanNode",
    "SpanStore",
    "Telemetry",
    "TraceServicer",
    "TraceTree",
    "configure",
]
