"""Delivers webhooks: claims them from the hosts of their tasks and sends their notifications."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.errors import (
    CursorExpiredError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.mesh.client import Backoff, Directory, HostClient, run_in_background
from trunkline.observe import telemetry
from trunkline.v1 import webhook_service_pb2
from trunkline_bridge.a2a.projection import EventId, FileLinks, TextDelta, View, WireEvent
from trunkline_bridge.a2a.webhooks.attempt import AttemptResult
from trunkline_bridge.a2a.webhooks.notifications import (
    UnsentEvents,
    open_from_snapshot,
    open_unsent,
    render_notifications,
)
from trunkline_bridge.a2a.webhooks.sender import WebhookSender

logger = logging.getLogger(__name__)

# Concurrent claims on the webhooks of one host.
_MAX_CLAIMS: Final = 512
# Claims in one request: a small number leaves webhooks for other bridges.
_MAX_CLAIMS_PER_POLL: Final = 64
# Duration of one long poll for claims.
_POLL_S: Final = 30.0
# A claim ends when its task has no event for so long; the next event needs another claim.
_IDLE_S: Final = 2.0
# Short text is collected for so long before the next notification.
_TEXT_PAUSE_S: Final = 0.25
_SHORT_TEXT_LENGTH: Final = 2048


class WebhookDeliverer:
    """Delivers the webhooks of all hosts of a mesh, each in order and at least once.

    A bridge claims a webhook during delivery, so several bridges can deliver. If a bridge dies
    before it records a notification, that notification is sent again.
    """

    def __init__(
        self,
        directory: Directory,
        sender: WebhookSender,
        links: Callable[[], FileLinks],
        *,
        lease_s: float,
        agent_view: Callable[[str], str],
    ) -> None:
        """Prepare a deliverer.

        Args:
            directory: The hosts of the mesh.
            sender: Sends the notifications.
            links: Returns the file links for receivers, once the bridge knows its own address.
            lease_s: Time after which a claim expires if its bridge does not renew it.
            agent_view: Returns the view of an agent's tasks.
        """
        self._agent_view = agent_view
        self._links = links
        self._directory = directory
        self._sender = sender
        self._lease_s = lease_s
        self._name = f"bridge-{uuid.uuid4().hex}"

    def _view(self, claim: "_Claim") -> View:
        """Return the view of a webhook's task."""
        return View(self._agent_view(claim.webhook.agent))

    async def run(self) -> None:
        """Deliver until canceled."""
        deliveries: dict[str, asyncio.Task[None]] = {}
        revision = 0
        async with self._sender, asyncio.TaskGroup() as group:
            while True:
                revision = await self._directory.wait_for_change(revision)
                hosts = self._directory.hosts
                addresses = {host.address for host in hosts if host.journal_ids}
                for address in deliveries.keys() - addresses:
                    deliveries.pop(address).cancel()
                for address in addresses - deliveries.keys():
                    deliveries[address] = group.create_task(self._deliver_host(address))

    async def _deliver_host(self, address: str) -> None:
        """Deliver the webhooks of one host."""
        backoff = Backoff()
        slots = _DeliverySlots(_MAX_CLAIMS)
        async with asyncio.TaskGroup() as group:
            while True:
                free = await slots.wait_free()
                # Another host may listen at this address now.
                client = self._directory.client_at(address)
                try:
                    claims = await client.claim_webhooks(
                        self._name,
                        limit=min(free, _MAX_CLAIMS_PER_POLL),
                        lease_s=self._lease_s,
                        wait_s=_POLL_S,
                    )
                except UnsupportedOperationError:
                    # A host of a version without webhooks.
                    return
                except TrunklineError as error:
                    fields = {"peer": address, "reason": error.reason}
                    logger.info("webhooks.unclaimed", extra=fields)
                    await backoff.pause()
                    continue
                backoff.reset()
                for claim in claims:
                    slots.take()
                    delivery = group.create_task(self._deliver(client, claim))
                    delivery.add_done_callback(slots.release)

    async def _deliver(self, client: HostClient, claimed: webhook_service_pb2.WebhookClaim) -> None:
        claim = _Claim(client, claimed)
        webhook = claimed.webhook
        # Each attempt has a span. The calls to the host need no span.
        telemetry.continue_trace(webhook.traceparent, suppress_spans=True)
        fields = {"task_id": webhook.config.task_id, "config_id": webhook.config.id}
        try:
            async with run_in_background(claim.renew_regularly(self._lease_s / 3)):
                await self._send(claim)
        except* TrunklineError as errors:
            # The host or the claim is lost; unrecorded notifications are claimed again.
            logger.info("webhook.left", extra={**fields, "reason": str(errors.exceptions[0])})
        except* Exception:
            logger.exception("webhook.broken", extra=fields)
            with contextlib.suppress(TrunklineError):
                await claim.fail(
                    AttemptResult("an internal error of the bridge; its log has the details")
                )

    async def _send(self, claim: "_Claim") -> None:
        try:
            async with open_unsent(
                claim.client, claim.webhook, self._links(), self._view(claim)
            ) as unsent:
                await self._send_all(claim, unsent)
                return
        except TaskNotFoundError:
            # The task was purged.
            await claim.finish(None)
            return
        except CursorExpiredError:
            fields = {"task_id": claim.webhook.config.task_id}
            logger.info("webhook.skipped", extra=fields)
        async with open_from_snapshot(
            claim.client, claim.webhook, self._links(), self._view(claim)
        ) as unsent:
            await self._send_all(claim, unsent)

    async def _send_all(self, claim: "_Claim", unsent: UnsentEvents) -> None:
        """Send events until the task is idle or has ended, then end the claim."""
        has_waited = False
        while True:
            try:
                events = await unsent.read_next(limit_s=_IDLE_S)
            except TimeoutError:
                break
            if events is None:
                break
            if events and has_waited:
                # The webhook may have been removed, or the lease lost during a freeze.
                await claim.renew()
            may_repeat = not claim.is_cursor_exact
            async for notification in render_notifications(
                claim.client,
                claim.webhook,
                events,
                self._links(),
                may_repeat=may_repeat,
                view=self._view(claim),
            ):
                result = await self._sender.send(claim.webhook, notification)
                if result.problem:
                    await claim.fail(result)
                    return
                await claim.record_sent(notification.id)
            if _is_short_text(events):
                await asyncio.sleep(_TEXT_PAUSE_S)
            has_waited = True
        await claim.finish(unsent.position)


class _Claim:
    """The claim on one webhook, until its end is recorded."""

    def __init__(self, client: HostClient, claimed: webhook_service_pb2.WebhookClaim) -> None:
        self.client = client
        self.webhook = claimed.webhook
        self.is_cursor_exact = claimed.webhook.state == webhook_service_pb2.WEBHOOK_STATE_IDLE
        """True if no event after the cursor was sent, because the last claim ended normally."""
        self._id = claimed.claim_id
        self._cursor = claimed.webhook.cursor

    async def renew_regularly(self, interval_s: float) -> None:
        """Renew the claim at an interval until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.renew()

    async def renew(self) -> None:
        """Extend the claim. FencedError: it was lost."""
        await self.client.record_delivery(self._id, sent=self._cursor)

    async def record_sent(self, cursor: str) -> None:
        """Record that all events up to a cursor were delivered."""
        self._cursor, self.is_cursor_exact = cursor, True
        self.webhook.attempts = 0
        await self.renew()

    async def finish(self, position: EventId | None) -> None:
        """End the claim; all events up to `position`, or to the cursor, were delivered."""
        cursor = self._cursor if position is None else str(position)
        await self.client.record_delivery(self._id, finished=cursor)

    async def fail(self, result: AttemptResult) -> None:
        """Record a failed attempt and end the claim; the host schedules the retry."""
        config, problem = self.webhook.config, result.problem
        fields = {"task_id": config.task_id, "config_id": config.id, "problem": problem}
        logger.info("webhook.failed", extra=fields)
        if result.is_gone:
            await self.client.record_delivery(self._id, gone=problem)
        else:
            await self.client.record_delivery(
                self._id, failed=problem, retry_after_s=result.retry_after_s
            )


class _DeliverySlots:
    """Limits the number of concurrent deliveries."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._released = asyncio.Event()

    async def wait_free(self) -> int:
        """Wait for a free slot and return the number of free slots."""
        while self._free <= 0:
            self._released.clear()
            await self._released.wait()
        return self._free

    def take(self) -> None:
        """Take a slot."""
        self._free -= 1

    def release(self, _delivery: object) -> None:
        """Release a slot."""
        self._free += 1
        self._released.set()


def _is_short_text(events: Iterable[WireEvent]) -> bool:
    """Return whether events are only text deltas, and short ones."""
    length = 0
    for event in events:
        if not isinstance(event, TextDelta):
            return False
        length += len(event.text)
    return 0 < length < _SHORT_TEXT_LENGTH
