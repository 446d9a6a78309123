"""Delivers webhooks: claims them from the hosts of their tasks, posts, and records what became."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from trunkline import telemetry
from trunkline.client import Backoff, Directory, HostClient, run_in_background
from trunkline.errors import (
    CursorExpiredError,
    TaskNotFoundError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.v1 import webhook_service_pb2
from trunkline_bridge.projection import EventId, FileLinks, TextDelta, WireEvent
from trunkline_bridge.webhooks.attempt import AttemptResult
from trunkline_bridge.webhooks.notifications import (
    UnsentEvents,
    open_from_snapshot,
    open_unsent,
    render_notifications,
)
from trunkline_bridge.webhooks.sender import WebhookSender

logger = logging.getLogger(__name__)

# Webhooks at a time, of one host of the mesh, and how many of them are asked for at once: there may
# be other bridges.
_CLAIMS: Final = 512
_ASKED_FOR: Final = 64
# How long one question for claims waits at the host.
_WAIT_S: Final = 30.0
# A task that is silent for so long is left; its next event is another claim.
_SILENCE_S: Final = 2.0
# Text that trickles is posted no more often than this. Everything else goes at once.
_TEXT_PAUSE_S: Final = 0.25
# Text that comes in larger pieces has been waiting: it doesn't trickle.
_TRICKLE_LENGTH: Final = 2048


class WebhookDeliverer:
    """Delivers the webhooks of all hosts of a mesh, each one's events in order, at least once.

    A webhook is claimed while it is delivered, so that there may be several deliverers. What was
    posted and not recorded, because a process ended between the two, is posted again.
    """

    def __init__(
        self,
        directory: Directory,
        poster: WebhookSender,
        links: Callable[[], FileLinks],
        *,
        lease_s: float = 10.0,
    ) -> None:
        """`links` tells where files are for receivers, as soon as the bridge knows its address.

        A webhook rests for `lease_s` when the bridge that has claimed it was killed.
        """
        self._links = links
        self._directory = directory
        self._poster = poster
        self._lease_s = lease_s
        self._name = f"bridge-{uuid.uuid4().hex}"

    async def run(self) -> None:
        """Deliver until cancelled."""
        serving: dict[str, asyncio.Task[None]] = {}
        revision = 0
        async with self._poster, asyncio.TaskGroup() as group:
            while True:
                revision = await self._directory.wait_for_change(revision)
                hosts = self._directory.hosts
                addresses = {host.address for host in hosts if host.journal_ids}
                for address in serving.keys() - addresses:
                    serving.pop(address).cancel()
                for address in addresses - serving.keys():
                    serving[address] = group.create_task(self._serve(address))

    async def _serve(self, address: str) -> None:
        """Deliver the webhooks of one host."""
        backoff = Backoff()
        places = _DeliverySlots(_CLAIMS)
        async with asyncio.TaskGroup() as group:
            while True:
                free = await places.free()
                # Anew each time: the host may have left and come back.
                client = self._directory.client_at(address)
                try:
                    claims = await client.claim_webhooks(
                        self._name,
                        limit=min(free, _ASKED_FOR),
                        lease_s=self._lease_s,
                        wait_s=_WAIT_S,
                    )
                except UnsupportedOperationError:
                    # One of before there were webhooks.
                    return
                except TrunklineError as error:
                    fields = {"peer": address, "reason": error.reason}
                    logger.info("webhooks.unclaimed", extra=fields)
                    await backoff.pause()
                    continue
                backoff.reset()
                for claim in claims:
                    places.take()
                    delivery = group.create_task(self._deliver(client, claim))
                    delivery.add_done_callback(places.give_back)

    async def _deliver(self, client: HostClient, claimed: webhook_service_pb2.WebhookClaim) -> None:
        claim = _Claim(client, claimed)
        webhook = claimed.webhook
        # Each post makes a span of its own; what is read for it is nobody's concern.
        telemetry.continue_trace(webhook.traceparent, suppress_spans=True)
        fields = {"task_id": webhook.config.task_id, "config_id": webhook.config.id}
        try:
            async with run_in_background(claim.keep(self._lease_s / 3)):
                await self._send(claim)
        except* TrunklineError as errors:
            # The host, or the claim, is gone: what was not recorded is claimed again.
            logger.info("webhook.left", extra={**fields, "reason": str(errors.exceptions[0])})
        except* Exception:
            logger.exception("webhook.broken", extra=fields)
            with contextlib.suppress(TrunklineError):
                await claim.fail(
                    AttemptResult("an internal error of the bridge; its log says more")
                )

    async def _send(self, claim: "_Claim") -> None:
        try:
            async with open_unsent(claim.client, claim.webhook, self._links()) as waiting:
                await self._send_all(claim, waiting)
                return
        except TaskNotFoundError:
            # Its task was purged meanwhile.
            await claim.finish(None)
            return
        except CursorExpiredError:
            fields = {"task_id": claim.webhook.config.task_id}
            logger.info("webhook.skipped", extra=fields)
        async with open_from_snapshot(claim.client, claim.webhook, self._links()) as waiting:
            await self._send_all(claim, waiting)

    async def _send_all(self, claim: "_Claim", waiting: UnsentEvents) -> None:
        """Post what comes until nothing comes any more, and end the claim."""
        has_waited = False
        while True:
            try:
                events = await waiting.read_next(limit_s=_SILENCE_S)
            except TimeoutError:
                break
            if events is None:
                break
            if events and has_waited:
                # Meanwhile the webhook may have been removed, or this process have been frozen.
                await claim.renew()
            async for post in render_notifications(
                claim.client, claim.webhook, events, self._links(), is_again=not claim.is_sure
            ):
                outcome = await self._poster.send(claim.webhook, post)
                if outcome.problem:
                    await claim.fail(outcome)
                    return
                await claim.sent(post.id)
            if _is_trickle(events):
                await asyncio.sleep(_TEXT_PAUSE_S)
            has_waited = True
        await claim.finish(waiting.position)


class _Claim:
    """One webhook that is ours to deliver, until it is recorded that it isn't."""

    def __init__(self, client: HostClient, claimed: webhook_service_pb2.WebhookClaim) -> None:
        self.client = client
        self.webhook = claimed.webhook
        self.is_sure = claimed.webhook.state == webhook_service_pb2.WEBHOOK_STATE_IDLE
        """Whether nothing behind the cursor can have arrived: the last claim ended well."""
        self._id = claimed.claim_id
        self._cursor = claimed.webhook.cursor

    async def keep(self, interval_s: float) -> None:
        """Renew it while nothing is recorded: a receiver may be slow, a task silent."""
        while True:
            await asyncio.sleep(interval_s)
            await self.renew()

    async def renew(self) -> None:
        """See that it is still ours, and for how long. FencedError: it isn't."""
        await self.client.record_delivery(self._id, sent=self._cursor)

    async def sent(self, cursor: str) -> None:
        """Record that everything up to an event was taken."""
        self._cursor, self.is_sure = cursor, True
        self.webhook.attempts = 0
        await self.renew()

    async def finish(self, position: EventId | None) -> None:
        """Record that everything up to there was taken, and end the claim."""
        cursor = self._cursor if position is None else str(position)
        await self.client.record_delivery(self._id, finished=cursor)

    async def fail(self, outcome: AttemptResult) -> None:
        """Record that a post was not taken, and end the claim; the host says when to try again."""
        config, problem = self.webhook.config, outcome.problem
        fields = {"task_id": config.task_id, "config_id": config.id, "problem": problem}
        logger.info("webhook.failed", extra=fields)
        if outcome.is_gone:
            await self.client.record_delivery(self._id, gone=problem)
        else:
            await self.client.record_delivery(
                self._id, failed=problem, retry_after_s=outcome.retry_after_s
            )


class _DeliverySlots:
    """Room for so many deliveries."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._news = asyncio.Event()

    async def free(self) -> int:
        """Wait until there is room, and return for how many."""
        while self._free <= 0:
            self._news.clear()
            await self._news.wait()
        return self._free

    def take(self) -> None:
        """Fill one."""
        self._free -= 1

    def give_back(self, _delivery: object) -> None:
        """Empty one."""
        self._free += 1
        self._news.set()


def _is_trickle(events: Iterable[WireEvent]) -> bool:
    length = 0
    for event in events:
        if not isinstance(event, TextDelta):
            return False
        length += len(event.text)
    return 0 < length < _TRICKLE_LENGTH
