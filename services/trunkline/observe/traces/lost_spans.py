"""Stand-ins for spans that no process exported, because theirs was killed.

A process exports its open spans about once a second. Spans that other processes made below a span
of the last second before a kill are then without their parent.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from trunkline.core.json_values import update_struct
from trunkline.observe import telemetry
from trunkline.v1 import trace_service_pb2

NAME: Final = "lost span"
# The service whose spans of requests have callers outside the mesh as parents.
_ENTRANCE: Final = "bridge"


def add_lost_spans(spans: Iterable[trace_service_pb2.Span]) -> list[trace_service_pb2.Span]:
    """Return the spans with a stand-in for each parent that is missing, by start time.

    A stand-in is below the root, since all that is known of it is that it was in this trace. It has
    no end. Parents of requests from outside are not missing: they are in the caller's own traces.
    """
    by_trace = groupby(sorted(spans, key=_order), key=lambda span: span.trace_id)
    complete = [span for _, each in by_trace for span in _complete(list(each))]
    return sorted(complete, key=lambda span: _order(span)[1:])


def _complete(spans: Sequence[trace_service_pb2.Span]) -> list[trace_service_pb2.Span]:
    known = {span.span_id for span in spans}
    tops = [span for span in spans if span.parent_span_id not in known]
    # No span is a root if the caller has begun the trace, or if the root was lost.
    root = next((span for span in tops if not span.parent_span_id), tops[0] if tops else None)
    stand_ins: dict[str, trace_service_pb2.Span] = {}
    for span in tops:
        if root is None or span.parent_span_id in ("", root.parent_span_id) or _is_request(span):
            continue
        # Spans are in the order of their starts, so it begins with the first span below it.
        if span.parent_span_id not in stand_ins:
            stand_ins[span.parent_span_id] = _make(span, root)
    return [*spans, *stand_ins.values()]


def _make(child: trace_service_pb2.Span, root: trace_service_pb2.Span) -> trace_service_pb2.Span:
    made = trace_service_pb2.Span(
        trace_id=child.trace_id,
        span_id=child.parent_span_id,
        parent_span_id=root.span_id,
        name=NAME,
        kind=trace_service_pb2.SPAN_KIND_INTERNAL,
        service="unknown",
        start_time=child.start_time,
    )
    update_struct(made.attributes, {telemetry.LOST: True})
    return made


def _is_request(span: trace_service_pb2.Span) -> bool:
    return span.kind == trace_service_pb2.SPAN_KIND_SERVER and span.service == _ENTRANCE


def _order(span: trace_service_pb2.Span) -> tuple[str, int, str]:
    return span.trace_id, span.start_time.ToNanoseconds(), span.span_id
