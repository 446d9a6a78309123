"""Traces: where a process sends its spans, and the store that keeps them."""

from trunkline.traces.sdk import Tracing, configure_tracing
from trunkline.traces.store import SpanStore
from trunkline.traces.trace_servicer import OtlpServicer, TraceServicer
from trunkline.traces.tree import SpanNode, TraceTree

__all__ = [
    "OtlpServicer",
    "SpanNode",
    "SpanStore",
    "TraceServicer",
    "TraceTree",
    "Tracing",
    "configure_tracing",
]
