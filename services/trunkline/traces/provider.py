"""The process's tracer provider: one for its whole life, with targets that come and go."""

from collections.abc import Iterable
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Tracer
from opentelemetry.util import types

from trunkline import telemetry
from trunkline.traces.delivery import DeliveryProcessor
from trunkline.traces.tracer import MeshTracer


class CollectorProcessor(DeliveryProcessor):
    """What leads to the user's collector, and so takes other processes' spans, too."""


class MeshTracerProvider(TracerProvider):
    """A provider whose processors can be taken away again; OpenTelemetry itself lets none go."""

    def __init__(self, service_name: str) -> None:
        resource = Resource.create(
            {
                telemetry.SERVICE_NAME: service_name,
                telemetry.SERVICE_VERSION: version("trunkline"),
            }
        )
        super().__init__(
            sampler=ParentBased(ALWAYS_ON),
            resource=resource,
            # Whoever configured it shuts down what it added.
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_attribute_length=telemetry.ATTRIBUTE_LIMIT_CHARS),
        )
        self._targets = _Targets()
        super().add_span_processor(self._targets)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Send spans that end from now on to a processor, too."""
        self._targets.processors = (*self._targets.processors, span_processor)

    def remove(self, processors: Iterable[SpanProcessor]) -> None:
        """Send no more spans to these processors."""
        gone = set(processors)
        self._targets.processors = tuple(one for one in self._targets.processors if one not in gone)

    def get_tracer(  # noqa: D102  OpenTelemetry's
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: types.Attributes = None,
    ) -> Tracer:
        made = super().get_tracer(
            instrumenting_module_name, instrumenting_library_version, schema_url, attributes
        )
        if instrumenting_module_name != telemetry.TRACER_NAME or not isinstance(made, SdkTracer):
            # Other people's spans; or OpenTelemetry is turned off.
            return made
        return MeshTracer(self._targets, self.resource, InstrumentationScope(telemetry.TRACER_NAME))

    @property
    def collector(self) -> CollectorProcessor | None:
        """The way to the user's collector, if there is one."""
        targets = self._targets.processors
        return next((one for one in targets if isinstance(one, CollectorProcessor)), None)


class _Targets(SpanProcessor):
    """Passes spans to whatever processors there are at the time."""

    def __init__(self) -> None:
        self.processors: tuple[SpanProcessor, ...] = ()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        for processor in self.processors:
            processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        for processor in self.processors:
            processor.on_end(span)

    def shutdown(self) -> None:
        for processor in self.processors:
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return all(processor.force_flush(timeout_millis) for processor in self.processors)
