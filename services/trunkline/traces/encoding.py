"""Turns spans into OTLP: what an exporter's thread does for every span, so it has to be cheap."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

_KINDS: Final = {
    SpanKind.INTERNAL: trace_pb2.Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: trace_pb2.Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: trace_pb2.Span.SPAN_KIND_CLIENT,
    SpanKind.PRODUCER: trace_pb2.Span.SPAN_KIND_PRODUCER,
    SpanKind.CONSUMER: trace_pb2.Span.SPAN_KIND_CONSUMER,
}
_CODES: Final = {
    StatusCode.OK: trace_pb2.Status.STATUS_CODE_OK,
    StatusCode.ERROR: trace_pb2.Status.STATUS_CODE_ERROR,
}
_SCALARS: Final = (str, int, float)
_IS_REMOTE_KNOWN: Final = int(trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_IS_REMOTE: Final = int(trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)


def encoded(spans: Sequence[ReadableSpan]) -> otlp.ExportTraceServiceRequest:
    """Return what OpenTelemetry's own encoder does, for most spans in a tenth of its time."""
    request = otlp.ExportTraceServiceRequest()
    scopes: dict[tuple[int, int], trace_pb2.ScopeSpans] = {}
    for span in spans:
        # By identity: comparing resources takes longer than encoding the span.
        key = (id(span.resource), id(span.instrumentation_scope))
        if key not in scopes:
            whole = encode_spans([span])
            del whole.resource_spans[0].scope_spans[0].spans[:]
            request.resource_spans.extend(whole.resource_spans)
            scopes[key] = request.resource_spans[-1].scope_spans[0]
        scopes[key].spans.append(_encoded(span))
    return request


def _encoded(span: ReadableSpan) -> trace_pb2.Span:
    context, parent = span.context, span.parent
    attributes = span.attributes or {}
    if not (
        context.trace_state
        or span.events
        or span.links
        or span.dropped_attributes
        or not all(isinstance(value, _SCALARS) for value in attributes.values())
    ):
        return _plain(span, context, parent)
    return encode_spans([span]).resource_spans[0].scope_spans[0].spans[0]


def _plain(span: ReadableSpan, context: SpanContext, parent: SpanContext | None) -> trace_pb2.Span:
    made = trace_pb2.Span(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        flags=_IS_REMOTE_KNOWN,
    )
    if parent is not None:
        made.parent_span_id = parent.span_id.to_bytes(8, "big")
        if parent.is_remote:
            made.flags |= _IS_REMOTE
    status = span.status
    if status.status_code is not StatusCode.UNSET:
        made.status.code = _CODES[status.status_code]
        made.status.message = status.description or ""
    else:
        made.status.SetInParent()
    attributes = span.attributes
    if attributes:
        made.MergeFromString(b"".join([_attribute(*item) for item in attributes.items()]))
    return made


# Most attributes say the same of many spans.
@lru_cache(maxsize=1024, typed=True)
def _attribute(key: str, value: str | bool | float) -> bytes:  # noqa: FBT001  any value
    """Return an attribute as a part of a span's bytes."""
    if isinstance(value, str):
        said = common_pb2.AnyValue(string_value=value)
    elif isinstance(value, bool):
        said = common_pb2.AnyValue(bool_value=value)
    elif isinstance(value, int):
        said = common_pb2.AnyValue(int_value=value)
    else:
        said = common_pb2.AnyValue(double_value=value)
    one = trace_pb2.Span(attributes=[common_pb2.KeyValue(key=key, value=said)])
    return one.SerializeToString()
