"""Makes the spans of our own code: OpenTelemetry's in all they show, at a fraction of the cost.

The SDK's spans are locked, copied and checked for whatever strangers put into them, which is most
of what a quick call costs. Ours are written by one task at a time, with our own attributes.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util import types
from opentelemetry.util._decorator import _agnosticcontextmanager

from trunkline import telemetry

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status()


class MeshSpan(trace.Span, ReadableSpan):
    """A span that is being made, and what processors get once it has ended."""

    def __init__(  # noqa: PLR0913  what a span begins with, each by name
        self,
        name: str,
        *,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: types.Attributes,
        links: Sequence[Link],
        start_time: int,
        origin: "MeshTracer",
    ) -> None:
        # What ReadableSpan's own would set, without its checks.
        self._name = name
        self._ids = self._context = context
        self._parent = parent
        self._kind = kind
        self._said = self._attributes = _cut(attributes) if attributes else {}
        self._events: Sequence[Event] = ()
        self._links: Sequence[Link] = links
        self._status = _UNSET
        self._start_time = start_time
        self._end_time: int | None = None
        self._resource = origin.resource
        self._instrumentation_scope = origin.scope
        self._processor = origin.processor

    def get_span_context(self) -> SpanContext:
        """Return its ids."""
        return self._ids

    def is_recording(self) -> bool:
        """Whether it has not ended."""
        return self._end_time is None

    def set_attributes(self, attributes: Mapping[str, types.AttributeValue]) -> None:
        """Say more; nothing after its end."""
        if self._end_time is None:
            self._said.update(_cut(attributes))

    def set_attribute(self, key: str, value: types.AttributeValue) -> None:
        """Say one thing more; nothing after its end."""
        if self._end_time is None:
            self._said[key] = _shortened(value) if type(value) is str else value

    def add_event(
        self, name: str, attributes: types.Attributes = None, timestamp: int | None = None
    ) -> None:
        """Note that something happened meanwhile."""
        if self._end_time is None:
            said = _cut(attributes) if attributes else {}
            self._events = (*self._events, Event(name, said, timestamp))

    def add_link(self, context: SpanContext, attributes: types.Attributes = None) -> None:
        """Name another span that has to do with it."""
        if self._end_time is None and context.is_valid:
            self._links = (*self._links, Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Call it otherwise."""
        if self._end_time is None:
            self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Say how it went; that all is well is the last word."""
        made = status if isinstance(status, Status) else Status(status, description)
        is_settled = self._status.status_code is StatusCode.OK
        if self._end_time is None and not is_settled and not made.is_unset:
            self._status = made

    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,  # noqa: FBT001, FBT002  OpenTelemetry's signature
    ) -> None:
        """Note an exception by its type: its text may hold what is nobody's business."""
        said = {"exception.type": type(exception).__qualname__, **(attributes or {})}
        self.add_event("exception", said, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End it; processors get it now. Repeating this is harmless."""
        if self._end_time is None:
            self._end_time = end_time or time.time_ns()
            self._processor.on_end(self)


class MeshTracer(trace.Tracer):
    """Makes our spans: sampled if their parent is, or if they have none."""

    def __init__(
        self, processor: SpanProcessor, resource: Resource, scope: InstrumentationScope | None
    ) -> None:
        self.processor = processor
        self.resource = resource
        self.scope = scope

    def start_span(  # noqa: PLR0913  OpenTelemetry's signature
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: types.Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,  # noqa: FBT001, FBT002
        set_status_on_exception: bool = True,  # noqa: FBT001, FBT002
    ) -> trace.Span:
        """Start a span below the one of the context, or else of the current one."""
        parent: SpanContext | None = trace.get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            parent = None
            made = SpanContext(
                random.getrandbits(128) or 1, _span_id(), is_remote=False, trace_flags=_SAMPLED
            )
        else:
            made = SpanContext(
                parent.trace_id,
                _span_id(),
                is_remote=False,
                trace_flags=parent.trace_flags,
                trace_state=parent.trace_state,
            )
            if not parent.trace_flags.sampled:
                return trace.NonRecordingSpan(made)
        span = MeshSpan(
            name,
            context=made,
            parent=parent,
            kind=kind,
            attributes=attributes,
            links=links or (),
            start_time=start_time or time.time_ns(),
            origin=self,
        )
        self.processor.on_start(span, context)  # type: ignore[arg-type]  # theirs, in all it shows
        return span

    @_agnosticcontextmanager
    def start_as_current_span(  # noqa: PLR0913  OpenTelemetry's signature
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: types.Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,  # noqa: FBT001, FBT002
        set_status_on_exception: bool = True,  # noqa: FBT001, FBT002
        end_on_exit: bool = True,  # noqa: FBT001, FBT002
    ) -> Iterator[trace.Span]:
        """Start a span that is the current one inside the block."""
        span = self.start_span(name, context, kind, attributes, links, start_time)
        with trace.use_span(
            span,
            end_on_exit=end_on_exit,
            record_exception=record_exception,
            set_status_on_exception=set_status_on_exception,
        ):
            yield span


def _span_id() -> int:
    # Zero is no id.
    return random.getrandbits(64) or 1


def _cut(attributes: Mapping[str, types.AnyValue]) -> dict[str, types.AnyValue]:
    return {
        key: _shortened(value) if type(value) is str else value
        for key, value in attributes.items()
        if value is not None
    }


def _shortened(text: str) -> str:
    return (
        text
        if len(text) <= telemetry.ATTRIBUTE_LIMIT_CHARS
        else text[: telemetry.ATTRIBUTE_LIMIT_CHARS]
    )
