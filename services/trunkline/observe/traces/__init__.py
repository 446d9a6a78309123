"""Traces: the OpenTelemetry SDK of a process, and the mesh's span store."""

from trunkline.observe.traces.exporters import MeshTarget
from trunkline.observe.traces.sdk import Tracing, configure_tracing
from trunkline.observe.traces.store import SpanStore

__all__ = [
    "MeshTarget",
    "SpanStore",
    "Tracing",
    "configure_tracing",
]
