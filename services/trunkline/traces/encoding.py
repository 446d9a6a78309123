"""Turns spans into OTLP: what an exporter's thread does for every span, so it has to be cheap."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from opentelemetry.util import types

from trunkline.journal.events import prefix_length

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
# How fields begin on the wire, ids with their lengths, and what many spans say in the same bytes.
_SPAN: Final = trace_pb2.ScopeSpans(spans=[trace_pb2.Span()]).SerializeToString()[:1]
_TRACE_ID: Final = trace_pb2.Span(trace_id=bytes(16)).SerializeToString()[:2]
_SPAN_ID: Final = trace_pb2.Span(span_id=bytes(8)).SerializeToString()[:2]
_PARENT_ID: Final = trace_pb2.Span(parent_span_id=bytes(8)).SerializeToString()[:2]
_START: Final = trace_pb2.Span(start_time_unix_nano=1).SerializeToString()[:1]
_END: Final = trace_pb2.Span(end_time_unix_nano=1).SerializeToString()[:1]
_TIMES: Final = struct.Struct("<cQcQ")
_ATTRIBUTE: Final = trace_pb2.Span(attributes=[common_pb2.KeyValue()]).SerializeToString()[:1]
_KEY: Final = common_pb2.KeyValue(key="k").SerializeToString()[:1]
_VALUE: Final = common_pb2.KeyValue(value=common_pb2.AnyValue()).SerializeToString()[:1]
_TEXT: Final = common_pb2.AnyValue(string_value="v").SerializeToString()[:1]
_HERE: Final = trace_pb2.Span(flags=_IS_REMOTE_KNOWN).SerializeToString()
_BELOW_REMOTE: Final = trace_pb2.Span(flags=_IS_REMOTE_KNOWN | _IS_REMOTE).SerializeToString()
_UNSET: Final = trace_pb2.Span(status=trace_pb2.Status()).SerializeToString()


def encoded(spans: Sequence[ReadableSpan]) -> otlp.ExportTraceServiceRequest:
    """Return what OpenTelemetry's own encoder does, for most spans in an eighth of its time."""
    request = otlp.ExportTraceServiceRequest()
    scopes: dict[tuple[int, int], tuple[trace_pb2.ScopeSpans, list[bytes]]] = {}
    for span in spans:
        # By identity: comparing resources takes longer than encoding the span.
        key = (id(span.resource), id(span.instrumentation_scope))
        if key not in scopes:
            whole = encode_spans([span])
            del whole.resource_spans[0].scope_spans[0].spans[:]
            request.resource_spans.extend(whole.resource_spans)
            scopes[key] = (request.resource_spans[-1].scope_spans[0], [])
        scopes[key][1].extend((_SPAN, prefix_length(_encoded(span))))
    for scope, pieces in scopes.values():
        scope.MergeFromString(b"".join(pieces))
    return request


def _encoded(span: ReadableSpan) -> bytes:
    context, parent = span.context, span.parent
    attributes = span.attributes or {}
    if not (
        context.trace_state
        or span.events
        or span.links
        or span.dropped_attributes
        or not all(isinstance(value, _SCALARS) for value in attributes.values())
    ):
        return _plain(span, context, parent, attributes)
    whole = encode_spans([span]).resource_spans[0].scope_spans[0].spans[0]
    return whole.SerializeToString()


def _plain(
    span: ReadableSpan,
    context: SpanContext,
    parent: SpanContext | None,
    attributes: types.Attributes,
) -> bytes:
    pieces = [_TRACE_ID, context.trace_id.to_bytes(16, "big")]
    pieces += (_SPAN_ID, context.span_id.to_bytes(8, "big"))
    if parent is not None:
        pieces += (_PARENT_ID, parent.span_id.to_bytes(8, "big"))
    pieces.append(_BELOW_REMOTE if parent is not None and parent.is_remote else _HERE)
    pieces.append(_named(span.name, span.kind))
    pieces.append(_TIMES.pack(_START, span.start_time or 0, _END, span.end_time or 0))
    pieces += [_attribute(*item) for item in (attributes or {}).items()]
    status = span.status
    if status.status_code is StatusCode.UNSET:
        pieces.append(_UNSET)
    else:
        pieces.append(_ended(_CODES[status.status_code], status.description or ""))
    return b"".join(pieces)


# Most spans are called the same, and most attributes say the same, as others before.
@lru_cache(maxsize=1024)
def _named(name: str, kind: SpanKind) -> bytes:
    return trace_pb2.Span(name=name, kind=_KINDS[kind]).SerializeToString()


def _ended(code: trace_pb2.Status.StatusCode.ValueType, message: str) -> bytes:
    status = trace_pb2.Status(code=code, message=message)
    return trace_pb2.Span(status=status).SerializeToString()


@lru_cache(maxsize=1024, typed=True)
def _attribute(key: str, value: str | bool | float) -> bytes:  # noqa: FBT001  any value
    """Return an attribute as a part of a span's bytes."""
    if isinstance(value, str):
        said = _TEXT + prefix_length(value.encode())
    elif isinstance(value, bool):
        said = common_pb2.AnyValue(bool_value=value).SerializeToString()
    elif isinstance(value, int):
        said = common_pb2.AnyValue(int_value=value).SerializeToString()
    else:
        said = common_pb2.AnyValue(double_value=value).SerializeToString()
    return _ATTRIBUTE + prefix_length(
        b"".join((_KEY, prefix_length(key.encode()), _VALUE, prefix_length(said)))
    )
