"""One client span for each attempt to post, in the trace of the task that is told of."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind

from trunkline import telemetry
from trunkline.client.web.addresses import Endpoint
from trunkline.v1 import webhook_service_pb2
from trunkline_bridge.inbound.tracing import SERVICE

_NAME = "POST webhook"


@contextmanager
def attempt(webhook: webhook_service_pb2.Webhook) -> Iterator[Span]:
    """Make the span of one attempt, below the task's submission.

    It names the receiver by its host alone: a path or a query may hold a secret.
    """
    attributes = {
        telemetry.HTTP_REQUEST_METHOD: "POST",
        telemetry.A2A_TASK_ID: webhook.config.task_id,
        telemetry.A2A_PROTOCOL_VERSION: webhook.version,
        telemetry.GEN_AI_AGENT_NAME: webhook.agent,
    }
    with telemetry.span(
        _NAME,
        kind=SpanKind.CLIENT,
        attributes=attributes,
        context=telemetry.extract({"traceparent": webhook.traceparent}),
        service=SERVICE,
    ) as span:
        if webhook.attempts:
            span.set_attribute(telemetry.HTTP_REQUEST_RESEND_COUNT, webhook.attempts)
        yield span


def note_receiver(span: Span, endpoint: Endpoint) -> None:
    """Say who is posted to."""
    span.set_attribute(telemetry.SERVER_ADDRESS, endpoint.host)
    span.set_attribute(telemetry.SERVER_PORT, endpoint.port)


def note_answer(span: Span, status: int) -> None:
    """Say what was answered."""
    span.set_attribute(telemetry.HTTP_RESPONSE_STATUS_CODE, status)
