"""Traces: the OpenTelemetry SDK of a process, and the mesh's span store."""

from trunkline.traces.exporters import MeshTarget
from trunkline.traces.sdk import Tracing, configure_tracing
from trunkline.traces.store import SpanStore
from trunkline.traces.trace_servicer import OtlpServicer, TraceServicer
from trunkline.traces.tree import SpanNode, SpanTiming, TraceTree, measure

__all__ = [
    "MeshTarget",
    "OtlpServicer",
    "SpanNode",
    "SpanStore",
    "SpanTiming",
    "TraceServicer",
    "TraceTree",
    "Tracing",
    "configure_tracing",
    "measure",
]
