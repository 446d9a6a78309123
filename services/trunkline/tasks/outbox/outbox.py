"""Hands out webhooks that have something to send, one claimant at a time, and notes what became."""

import asyncio
import contextlib
import heapq
import itertools
import logging
import secrets
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.journal import Journal
from trunkline.journal.store import WebhookKey
from trunkline.tasks.journal_lease import journal_moved_error
from trunkline.tasks.outbox.delivery import (
    DeliveryClaim,
    RetryPolicy,
    WebhookDelivery,
    clear_failures,
)
from trunkline.tasks.outbox.webhook import (
    ANY,
    DEAD,
    DONE,
    LIVE,
    PENDING,
    WAITING,
    Webhook,
    WebhookState,
    from_row,
    redact_webhook,
    to_row,
)
from trunkline.v1 import webhook_service_pb2

logger = logging.getLogger(__name__)

_LEASE_S: Final = (1.0, 30.0, 600.0)
_WAIT_S: Final = 50.0
_CLAIMS: Final = 1000
_LISTED: Final = 1000


class Outbox:
    """The webhooks of all journals that a process serves.

    Only those to which something may still be sent are in memory, and only their tasks cost
    anything when events are appended. Claims are not durable: with a restart, or a takeover, they
    are over, and what was under way is sent again. Cursors and attempts are.
    """

    def __init__(self, pace: RetryPolicy | None = None) -> None:
        self.retry = pace or RetryPolicy()
        self._journals: dict[str, Journal] = {}
        # The ids of those that were here.
        self._left: set[str] = set()
        self._deliveries: dict[WebhookKey, WebhookDelivery] = {}
        self._ready: dict[WebhookKey, WebhookDelivery] = {}
        self._claimed: dict[str, WebhookDelivery] = {}
        # When something happens by itself: a pause is over, or a claim.
        self._timed: list[tuple[float, int, WebhookDelivery]] = []
        self._counter = itertools.count()
        self._news = asyncio.Event()
        self._is_draining = False

    def open(self, journal: Journal) -> None:
        """Load the webhooks of a journal. JournalUnavailableError."""
        found = journal.webhooks.find(states=LIVE)
        self._journals[journal.id] = journal
        self._left.discard(journal.id)
        for row in reversed(found):
            try:
                self.activate(journal, from_row(row))
            except (DecodeError, InvalidArgumentError):
                extra = {"task": row.task_id, "webhook": row.config_id}
                logger.error("webhook.unreadable", extra=extra)

    def close(self, journal: Journal) -> None:
        """Release the webhooks of a journal to its next host; claims end."""
        if self._journals.get(journal.id) is journal:
            # Else it was given back, and is here again.
            del self._journals[journal.id]
            self._left.add(journal.id)
        for key in [one.key for one in self._deliveries.values() if one.journal is journal]:
            self._leave(key)
        self._tell()

    def drain(self) -> None:
        """Let no claimant wait any more; pending deliveries are still handed out."""
        self._is_draining = True
        self._tell()

    def journal_of(self, task_id: str) -> Journal:
        """Return the journal of a task.

        Raises:
            PeerUnavailableError: it isn't here any more.
            TaskNotFoundError: it never was.
        """
        journal_id = task_id.partition("-")[0]
        journal = self._journals.get(journal_id)
        if journal is None:
            if journal_id in self._left:
                raise journal_moved_error()
            raise TaskNotFoundError(task_id)
        return journal

    def find(self, key: WebhookKey) -> WebhookDelivery | None:
        """Return a webhook to which something may still be sent."""
        return self._deliveries.get(key)

    def activate(self, journal: Journal, webhook: Webhook) -> None:
        """Deliver for a stored webhook, in place of the one with the same id."""
        if journal.id not in self._journals:
            return
        delivery = WebhookDelivery(journal, webhook, self.retry)
        self._leave(delivery.key)
        self._deliveries[delivery.key] = delivery
        delivery.listener = lambda: self._on_events(delivery)
        journal.subscribe(delivery.key[0], delivery.listener)
        self._place(delivery)

    async def claim(
        self, *, limit: int, lease_s: float = 0.0, wait_s: float = 0.0
    ) -> list[webhook_service_pb2.WebhookClaim]:
        """Hand out webhooks that have something to send; with none, wait for one.

        Those that became ready first go first. The claims hold for the lease (30 s if 0, at most
        600 s), which each record of something sent renews.

        Raises:
            PeerUnavailableError: nothing is here, and nobody should wait: the host is going away.
        """
        shortest_s, usual_s, longest_s = _LEASE_S
        lease_s = min(longest_s, max(shortest_s, lease_s or usual_s))
        until_s = self.retry.now_s() + min(_WAIT_S, wait_s)
        while True:
            found = list(self._claim_ready(min(_CLAIMS, max(1, limit)), lease_s))
            left_s = until_s - self.retry.now_s()
            if found:
                return found
            if self._is_draining or not self._journals:
                raise PeerUnavailableError("this host", "it is shutting down; ask again later")
            if left_s <= 0:
                return []
            if self._timed:
                left_s = min(left_s, self._timed[0][0] - self.retry.now_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()

    async def record(self, request: webhook_service_pb2.RecordDeliveryRequest) -> None:
        """Note what became of a post; it is in the journal when this returns.

        Raises:
            FencedError: the claim is over.
            InvalidArgumentError: the event id is none, or before what was sent.
            JournalUnavailableError: it couldn't be written; what was sent will be sent again after
                a restart.
        """
        delivery = self._claimed.get(request.claim_id)
        if delivery is None or delivery.claim is None:
            raise FencedError(request.claim_id)
        before = to_row(delivery.webhook)
        try:
            self._note(delivery, request)
        except TaskNotFoundError:
            # Past retention, and with it the webhook.
            self._leave(delivery.key)
            raise FencedError(request.claim_id) from None
        after = to_row(delivery.webhook)
        written = delivery.journal.webhooks.save(after) if after != before else None
        if request.HasField("sent"):
            delivery.claimed_until_s = self.retry.now_s() + delivery.lease_s
        else:
            self._end_claim(delivery)
            if delivery.is_over:
                self._leave(delivery.key)
            else:
                self._place(delivery)
        if written is not None:
            await asyncio.shield(written)

    def list(self, *, task_id: str = "", state: WebhookState = ANY) -> list[Webhook]:
        """Return webhooks of one task or of all, without their secrets, the last made first."""
        found: list[Webhook] = []
        for journal in self._journals.values():
            states = (state,) if state in (DEAD, DONE) else LIVE if state else ()
            # Which of those that live are in a state now is only known here.
            limit = None if states == LIVE else _LISTED
            for row in journal.webhooks.find(task_id=task_id, states=states, limit=limit):
                webhook = self._as_it_is(from_row(row))
                if not state or webhook.state == state:
                    found.append(webhook)
        found.sort(key=lambda webhook: webhook.created.ToNanoseconds(), reverse=True)
        return found[:_LISTED]

    async def replay(self, task_id: str, config_id: str = "", *, from_start: bool = False) -> int:
        """Send again what webhooks of a task were given up on, or all; return how many are tried.

        Without `from_start`, those that have failed go on behind what was sent last.

        Raises:
            TaskNotFoundError: no such webhook.
            JournalUnavailableError.
        """
        journal = self.journal_of(task_id)
        rows = [
            row
            for row in journal.webhooks.find(task_id=task_id)
            if config_id in ("", row.config_id)
        ]
        if not rows:
            raise TaskNotFoundError(task_id)
        count = 0
        for row in reversed(rows):
            live = self._deliveries.get(row.key)
            webhook = from_row(row) if live is None else live.webhook
            if not from_start and webhook.state not in (DEAD, WAITING):
                continue
            again = Webhook()
            again.CopyFrom(webhook)
            clear_failures(again)
            again.state = PENDING
            if from_start:
                again.cursor = ""
            await self.store(journal, again)
            count += 1
        return count

    async def store(self, journal: Journal, webhook: Webhook) -> None:
        """Keep a webhook and send what there is for it, also when the caller leaves meanwhile.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        key = (webhook.config.task_id, webhook.config.id)
        await self._write(journal.webhooks.save(to_row(webhook)), journal, key, webhook)

    async def remove(self, journal: Journal, key: WebhookKey) -> None:
        """Keep a webhook no longer; one that isn't there is as good as forgotten.

        Raises:
            JournalUnavailableError.
        """
        await self._write(journal.webhooks.delete(*key), journal, key, None)

    async def _write(
        self,
        written: asyncio.Future[None],
        journal: Journal,
        key: WebhookKey,
        webhook: Webhook | None,
    ) -> None:
        """Go on with what was written, or with what was before if it can't be."""
        # A record that came behind the write, by a claim on what was before, would undo it.
        before = self._leave(key)

        def on_written(done: asyncio.Future[None]) -> None:
            is_written = not done.cancelled() and done.exception() is None
            goes_on = webhook if is_written else before
            if goes_on is not None:
                self.activate(journal, goes_on)

        written.add_done_callback(on_written)
        await asyncio.shield(written)

    def _claim_ready(
        self, limit: int, lease_s: float
    ) -> Iterator[webhook_service_pb2.WebhookClaim]:
        self._let_time_pass()
        for key in tuple(itertools.islice(self._ready, limit)):
            delivery = self._ready.pop(key)
            try:
                head = delivery.journal.head(key[0])
            except TaskNotFoundError:
                # Past retention, and with it the webhook.
                self._leave(key)
                continue
            except JournalUnavailableError:
                # Behind the others, and not before it may be readable again.
                delivery.due_s = self.retry.now_s() + self.retry.backoff_s(1)
                self._place(delivery)
                continue
            claim = DeliveryClaim(f"{delivery.journal.id}-{secrets.token_hex(8)}", head)
            delivery.claim, delivery.lease_s = claim, lease_s
            delivery.claimed_until_s = self.retry.now_s() + lease_s
            self._claimed[claim.id] = delivery
            self._wake_at(delivery.claimed_until_s, delivery)
            yield webhook_service_pb2.WebhookClaim(claim_id=claim.id, webhook=delivery.webhook)

    def _note(
        self, delivery: WebhookDelivery, request: webhook_service_pb2.RecordDeliveryRequest
    ) -> None:
        match request.WhichOneof("outcome"):
            case "sent":
                delivery.record_sent(request.sent)
            case "finished":
                delivery.record_finished(request.finished)
            case "failed":
                delivery.record_failed(request.failed, request.retry_after.ToNanoseconds() / 1e9)
            case "gone":
                delivery.record_gone(request.gone)
            case _:
                raise InvalidArgumentError("outcome", "is missing")
        if delivery.webhook.state == DEAD:
            task_id, config_id = delivery.key
            logger.warning("webhook.given_up", extra={"task": task_id, "webhook": config_id})

    def _on_events(self, delivery: WebhookDelivery) -> None:
        if delivery.claim is None and not delivery.due_s and delivery.key not in self._ready:
            self._place(delivery)

    def _place(self, delivery: WebhookDelivery) -> None:
        """Put one that nobody has claimed where it belongs: it waits, is ready, or idle."""
        if delivery.due_s > self.retry.now_s():
            self._wake_at(delivery.due_s, delivery)
            return
        delivery.due_s = 0.0
        has_news = True
        # What is wrong with the journal is seen when it is claimed.
        with contextlib.suppress(TrunklineError):
            has_news = delivery.has_events()
        if has_news:
            self._ready[delivery.key] = delivery
            self._tell()

    def _let_time_pass(self) -> None:
        """End claims that weren't renewed, and pauses that are over."""
        now_s = self.retry.now_s()
        while self._timed and self._timed[0][0] <= now_s:
            delivery = heapq.heappop(self._timed)[2]
            if self._deliveries.get(delivery.key) is not delivery:
                continue
            if delivery.claim is not None:
                if delivery.claimed_until_s > now_s:
                    self._wake_at(delivery.claimed_until_s, delivery)
                    continue
                self._end_claim(delivery)
            if delivery.key not in self._ready and delivery.due_s <= now_s:
                self._place(delivery)

    def _wake_at(self, time_s: float, delivery: WebhookDelivery) -> None:
        heapq.heappush(self._timed, (time_s, next(self._counter), delivery))
        if self._timed[0][2] is delivery:
            self._tell()

    def _end_claim(self, delivery: WebhookDelivery) -> None:
        if delivery.claim is not None:
            del self._claimed[delivery.claim.id]
            delivery.claim = None

    def _leave(self, key: WebhookKey) -> Webhook | None:
        """Have nothing more to do with one, whose claim is over; return what was kept of it."""
        delivery = self._deliveries.pop(key, None)
        if delivery is None:
            return None
        self._end_claim(delivery)
        self._ready.pop(key, None)
        if delivery.listener is not None:
            delivery.journal.unsubscribe(key[0], delivery.listener)
        return delivery.webhook

    def _as_it_is(self, webhook: Webhook) -> Webhook:
        """Return a webhook as people see it."""
        key = (webhook.config.task_id, webhook.config.id)
        delivery = self._deliveries.get(key)
        copy = redact_webhook(webhook if delivery is None else delivery.webhook)
        if delivery is not None:
            with contextlib.suppress(TrunklineError):
                copy.state = delivery.current_state()
        return copy

    def _tell(self) -> None:
        """Wake all that wait, each to look for itself."""
        news, self._news = self._news, asyncio.Event()
        news.set()
