"""Sends notifications to webhooks: signed, with limits of time and concurrency."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.a2a_wire.protocol import NOTIFICATION_TOKEN_HEADER, VERSION_HEADER
from trunkline.client.safe_fetch.address_guard import (
    AddressGuard,
    AddressRefusedError,
    HostUnresolvedError,
)
from trunkline.metrics import instruments
from trunkline.v1 import push_notification_pb2, webhook_service_pb2
from trunkline_bridge.a2a.webhooks.attempt import (
    AttemptResult,
    NoResponseError,
    attempt_span,
    classify_response,
    record_receiver,
    record_status,
)
from trunkline_bridge.a2a.webhooks.signatures import WebhookSigner

if TYPE_CHECKING:
    from trunkline_bridge.a2a.webhooks.connections import ReceiverConnections

# Limit of one attempt.
SEND_TIMEOUT_S: Final = 15.0
# Concurrent requests of this process, and to one host.
MAX_CONCURRENT: Final = 64
MAX_CONCURRENT_PER_HOST: Final = 8
# Active and waiting requests to one host. Further ones fail and are retried later.
MAX_PENDING_PER_HOST: Final = 256


class Notification(NamedTuple):
    """A rendered notification."""

    id: str
    """The event's id within its task."""
    body: bytes
    content_type: str


class WebhookSender:
    """Sends notifications with limits on concurrency. Redirects are not followed."""

    def __init__(
        self,
        guard: AddressGuard,
        signer: WebhookSigner | None = None,
        *,
        limit_s: float = SEND_TIMEOUT_S,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare a sender.

        Without a `signer`, webhooks are not signed. `limit_s` limits one attempt, in seconds.
        `ssl_context` has the trusted certificates.
        """
        self._guard = guard
        self._signer = signer
        self._limit_s = limit_s
        self._ssl_context = ssl_context
        self._limits = _SendLimits()
        self._connections: ReceiverConnections | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._connections is not None:
            await self._connections.close()

    async def send(
        self, webhook: webhook_service_pb2.Webhook, notification: Notification
    ) -> AttemptResult:
        """Send a notification once, in the trace of its task, and return the result."""
        started_s = time.perf_counter()
        with attempt_span(webhook) as span:
            result = await self._post(webhook, notification, span)
            if result.failure:
                telemetry.mark_error(span, result.failure)
            duration_s = time.perf_counter() - started_s
            instruments.WEBHOOK_DURATION.record(duration_s, webhook.agent, result.failure)
        return result

    async def _post(
        self, webhook: webhook_service_pb2.Webhook, notification: Notification, span: Span
    ) -> AttemptResult:
        connections = self._open()
        try:
            endpoint = self._guard.parse_url(webhook.config.url)
            record_receiver(span, endpoint)
            async with self._limits.slot(endpoint.host):
                headers = self._headers(webhook.config, notification)
                headers |= {VERSION_HEADER: webhook.version, **telemetry.inject()}
                async with asyncio.timeout(self._limit_s):
                    response = await connections.post(endpoint, headers, notification.body)
        except HostUnresolvedError:
            return AttemptResult("its host can't be resolved now", "name_resolution_error")
        except AddressRefusedError as error:
            return AttemptResult(f"its URL {error}", "address_refused")
        except TimeoutError:
            return AttemptResult(f"no answer within {self._limit_s:g} s", "timeout")
        except _TooManyPendingError:
            return AttemptResult("too many posts wait for its host already", "too_many_posts")
        except NoResponseError as error:
            return AttemptResult(str(error), "no_answer")
        record_status(span, response.status)
        return classify_response(response)

    def _open(self) -> "ReceiverConnections":
        """Return the connections; the first call loads the HTTP client."""
        if self._connections is None:
            from trunkline_bridge.a2a.webhooks.connections import ReceiverConnections

            self._connections = ReceiverConnections(
                self._guard, limit=MAX_CONCURRENT, ssl_context=self._ssl_context
            )
        return self._connections

    def _headers(
        self, config: push_notification_pb2.TaskPushNotificationConfig, notification: Notification
    ) -> dict[str, str]:
        message_id = f"{config.task_id}.{notification.id}"
        timestamp_s = int(datetime.now(UTC).timestamp())
        headers = {
            "content-type": notification.content_type,
            "content-length": str(len(notification.body)),
            "user-agent": "Trunkline",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp_s),
        }
        if self._signer is not None:
            headers |= self._signer.headers(message_id, timestamp_s, notification.body)
        if config.token:
            headers[NOTIFICATION_TOKEN_HEADER] = config.token
        authentication = config.authentication
        if authentication.scheme and authentication.credentials:
            headers["authorization"] = f"{authentication.scheme} {authentication.credentials}"
        return headers


class _TooManyPendingError(Exception):
    """Too many requests to one host are active or waiting."""


class _SendLimits:
    """Limits concurrent requests, so that a slow host delays only its own notifications."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_CONCURRENT)
        self._of_host: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        """Wait for a free slot for a host. _TooManyPendingError: too many wait already."""
        if self._waiting[host] >= MAX_PENDING_PER_HOST:
            raise _TooManyPendingError
        self._waiting[host] += 1
        async with AsyncExitStack() as stack:
            stack.callback(self._release, host)
            slots = self._of_host.setdefault(host, asyncio.Semaphore(MAX_CONCURRENT_PER_HOST))
            await stack.enter_async_context(slots)
            await stack.enter_async_context(self._all)
            yield

    def _release(self, host: str) -> None:
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host], self._of_host[host]
