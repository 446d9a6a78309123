"""One delivery attempt: the receiver's response, the result, and the span."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from opentelemetry.trace import Span, SpanKind

from trunkline.core.network import parse_retry_after
from trunkline.mesh.client.safe_fetch.address_guard import CheckedUrl
from trunkline.observe import telemetry
from trunkline.v1 import webhook_service_pb2
from trunkline_bridge.http.tracing import SERVICE_NAME

_SPAN_NAME: Final = "POST webhook"
_GONE_STATUS: Final = 410
# Statuses that may have a Retry-After header.
_RETRY_AFTER_STATUSES: Final = (429, 503)


class ReceiverResponse(NamedTuple):
    """A receiver's response, without its body."""

    status: int
    retry_after: str = ""
    """The header of that name; empty without it."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of a delivery attempt."""

    problem: str = ""
    """The reason of the failure, for operators, without content and secrets; empty on success."""
    failure: str = ""
    """The error type on the span; empty on success."""
    is_gone: bool = False
    """True after 410 Gone: the webhook must not be called again."""
    retry_after_s: float = 0.0
    """The delay in the response's Retry-After, which the host limits; 0 without the header."""


class NoResponseError(Exception):
    """There was no response. The text has the reason without an address."""


def classify_response(response: ReceiverResponse) -> AttemptResult:
    """Convert a response to a result. Only 2xx is success."""
    status = response.status
    if 200 <= status < 300:
        return AttemptResult()
    problem = f"it answered {status}"
    if 300 <= status < 400:
        problem += "; redirects are not followed"
    has_pause = status in _RETRY_AFTER_STATUSES
    pause_s = parse_retry_after(response.retry_after) if has_pause else 0.0
    return AttemptResult(problem, str(status), status == _GONE_STATUS, pause_s)


@contextmanager
def attempt_span(webhook: webhook_service_pb2.Webhook) -> Iterator[Span]:
    """Open the span of one attempt, in the trace of the task's submission.

    It names the receiver by its host only, because a path or a query may hold a secret.
    """
    attributes = {
        telemetry.HTTP_REQUEST_METHOD: "POST",
        telemetry.A2A_TASK_ID: webhook.config.task_id,
        telemetry.A2A_PROTOCOL_VERSION: webhook.version,
        telemetry.GEN_AI_AGENT_NAME: webhook.agent,
    }
    with telemetry.span(
        _SPAN_NAME,
        kind=SpanKind.CLIENT,
        attributes=attributes,
        context=telemetry.extract({"traceparent": webhook.traceparent}),
        service=SERVICE_NAME,
    ) as span:
        if webhook.attempts:
            span.set_attribute(telemetry.HTTP_REQUEST_RESEND_COUNT, webhook.attempts)
        yield span


def record_receiver(span: Span, endpoint: CheckedUrl) -> None:
    """Record the receiver's address on the span."""
    span.set_attribute(telemetry.SERVER_ADDRESS, endpoint.host)
    span.set_attribute(telemetry.SERVER_PORT, endpoint.port)


def record_status(span: Span, status: int) -> None:
    """Record the HTTP status on the span."""
    span.set_attribute(telemetry.HTTP_RESPONSE_STATUS_CODE, status)
