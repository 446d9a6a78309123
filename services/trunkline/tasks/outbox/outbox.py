"""Queues webhooks with pending events, leases them to senders, and records the outcomes."""

import asyncio
import contextlib
import heapq
import itertools
import logging
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from trunkline.core.runtime import finish
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.events import is_allocated_id, parse_journal_id
from trunkline.journal.journal import Journal
from trunkline.journal.store import LIVE_WEBHOOKS, TaskRow, WebhookKey
from trunkline.journal.stored_tasks import StoredTasks
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.tasks.change_watchers import ChangeWatchers, PendingChanges
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
    PENDING,
    WAITING,
    Config,
    Webhook,
    WebhookStateValue,
    from_row,
    redact_webhook,
    to_row,
)
from trunkline.v1 import webhook_service_pb2

logger = logging.getLogger(__name__)

_LEASE_S: Final = (1.0, 30.0, 600.0)
_WAIT_S: Final = 50.0
_CLAIM_LIMIT: Final = 1000
_LIST_LIMIT: Final = 1000

# The class defines a method `list`.
Claims: TypeAlias = list[webhook_service_pb2.WebhookClaim]


@dataclass(frozen=True, slots=True)
class _OpenJournal:
    """A journal whose webhooks are loaded."""

    journal: Journal
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """See `Outbox.changing`."""


class Outbox:
    """The webhooks of all journals that a process serves.

    Only live webhooks are in memory, and appending events costs extra only for their tasks. Cursors
    and attempts are durable. Claims are not: a restart or a takeover ends them, and posts in flight
    are sent again.
    """

    def __init__(self, retry: RetryPolicy, stored: StoredTasks | None = None) -> None:
        """With `stored`, webhooks of other journals in the store are read as well."""
        self.retry: RetryPolicy = retry
        self.stored: StoredTasks | None = stored
        self._journals: dict[str, _OpenJournal] = {}
        # The ids of journals that were closed. Calls for their tasks raise a retryable error.
        self._released: set[str] = set()
        self._deliveries: dict[WebhookKey, WebhookDelivery] = {}
        self._ready: dict[WebhookKey, WebhookDelivery] = {}
        self._claimed: dict[str, WebhookDelivery] = {}
        # A heap of the times at which a pause or a claim ends.
        self._timers: list[tuple[float, int, WebhookDelivery]] = []
        self._counter = itertools.count()
        self._changed = asyncio.Event()
        self._is_draining = False
        self._watchers = ChangeWatchers[WebhookKey, WebhookKey]()
        instruments.WEBHOOKS_PENDING.watch(self, Outbox._count_pending)

    async def open(self, journal: Journal) -> None:
        """Load the webhooks of a journal.

        Raises:
            JournalUnavailableError: the journal can't be read.
        """
        rows = await journal.webhooks.find(states=LIVE_WEBHOOKS)
        self._journals[journal.id] = _OpenJournal(journal)
        self._released.discard(journal.id)
        for row in reversed(rows):
            try:
                self.activate(journal, from_row(row))
            except (DecodeError, InvalidArgumentError):
                extra = {"task": row.task_id, "webhook": row.config_id}
                logger.error("webhook.unreadable", extra=extra)

    def close(self, journal: Journal) -> None:
        """Release the webhooks of a journal to its next host; claims end."""
        opened = self._journals.get(journal.id)
        if opened is not None and opened.journal is journal:
            # The journal was not opened again in the meantime.
            del self._journals[journal.id]
            self._released.add(journal.id)
        for key in [
            queued.key for queued in self._deliveries.values() if queued.journal is journal
        ]:
            self._deactivate(key)
        self._notify_claimants()

    def _count_pending(self) -> Sequence[Reading]:
        return [((), len(self._deliveries))]

    def drain(self) -> None:
        """End the waits in `claim`. Webhooks that are ready can still be claimed."""
        self._is_draining = True
        self._notify_claimants()

    def has_journal(self, task_id: str) -> bool:
        """Return whether the journal of a task is open here."""
        return parse_journal_id(task_id) in self._journals

    def get_journal(self, task_id: str) -> Journal:
        """Return the journal of a task.

        Raises:
            PeerUnavailableError: the journal has moved to another host.
            TaskNotFoundError: no journal has such a task.
        """
        journal_id = parse_journal_id(task_id)
        opened = self._journals.get(journal_id)
        if opened is None:
            if journal_id in self._released or is_allocated_id(task_id):
                raise journal_moved_error()
            raise TaskNotFoundError(task_id)
        return opened.journal

    def changing(self, journal: Journal) -> asyncio.Lock:
        """Return the lock of the webhooks of a journal.

        It is held from the look-up of webhooks to the end of the write that changes them, so that
        a webhook that is removed meanwhile is not stored again. Senders record without it: they
        have a claim, which each change ends.

        Raises:
            PeerUnavailableError: the journal has moved to another host.
        """
        opened = self._journals.get(journal.id)
        if opened is None:
            raise journal_moved_error()
        return opened.changing

    def find(self, key: WebhookKey) -> WebhookDelivery | None:
        """Return a webhook that is live: neither done, nor dead, nor unknown."""
        return self._deliveries.get(key)

    def activate(self, journal: Journal, webhook: Webhook) -> None:
        """Start delivery for a stored webhook, in place of the webhook with the same id."""
        if journal.id not in self._journals:
            return
        delivery = WebhookDelivery(journal, webhook, self.retry)
        self._deactivate(delivery.key)
        self._deliveries[delivery.key] = delivery
        delivery.listener = lambda: self._on_events(delivery)
        journal.subscribe(delivery.key[0], delivery.listener)
        self._enqueue(delivery)

    async def claim(self, *, limit: int, lease_s: float = 0.0, wait_s: float = 0.0) -> Claims:
        """Claim webhooks with pending events, in the order they became ready; wait for the first.

        A claim lasts for the lease (30 s if 0, at most 600 s). Each `sent` record renews it.

        Raises:
            PeerUnavailableError: no webhook is ready, and the host is shutting down or has no
                journal.
        """
        shortest_s, usual_s, longest_s = _LEASE_S
        lease_s = min(longest_s, max(shortest_s, lease_s or usual_s))
        until_s = self.retry.now_s() + min(_WAIT_S, wait_s)
        while True:
            changed = self._changed
            claims = await self._claim_ready(min(_CLAIM_LIMIT, max(1, limit)), lease_s)
            remaining_s = until_s - self.retry.now_s()
            if claims:
                return claims
            if self._is_draining or not self._journals:
                raise PeerUnavailableError("this host", "it is shutting down; ask again later")
            if remaining_s <= 0:
                return []
            if self._timers:
                remaining_s = min(remaining_s, self._timers[0][0] - self.retry.now_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining_s):
                    await changed.wait()

    async def record(self, request: webhook_service_pb2.RecordDeliveryRequest) -> None:
        """Record the outcome of a post; returns when it is in the journal.

        Raises:
            FencedError: the claim has ended.
            InvalidArgumentError: the event id is malformed, or before the last event that was sent.
            JournalUnavailableError: it can't be written; after a restart, the same events are sent
                again.
        """
        delivery = self._claimed.get(request.claim_id)
        if delivery is None or delivery.claim is None:
            raise FencedError(request.claim_id)
        try:
            task = await delivery.journal.row(delivery.key[0])
        except TaskNotFoundError:
            # Retention has deleted the task and its webhooks.
            self._deactivate(delivery.key)
            raise FencedError(request.claim_id) from None
        if self._claimed.get(request.claim_id) is not delivery:
            raise FencedError(request.claim_id)
        before = to_row(delivery.webhook)
        self._apply_outcome(delivery, request, task)
        after = to_row(delivery.webhook)
        write = delivery.journal.webhooks.save(after) if after != before else None
        if write is None:
            self._publish(delivery.webhook.account, delivery.key)
        else:
            write.add_done_callback(lambda _: self._publish(delivery.webhook.account, delivery.key))
        if request.HasField("sent"):
            delivery.claimed_until_s = self.retry.now_s() + delivery.lease_s
        else:
            self._end_claim(delivery)
            if delivery.is_over:
                self._deactivate(delivery.key)
            else:
                self._enqueue(delivery)
        if write is not None:
            await asyncio.shield(write)

    async def list(
        self,
        *,
        task_id: str = "",
        state: WebhookStateValue = ANY,
        account: str = "",
        whole_store: bool = False,
    ) -> list[Webhook]:
        """Return webhooks of one task or of all, newest first, without their secrets.

        With an account, returns only the webhooks of its tasks. With `whole_store`, or a task whose
        journal is not here, returns those of all journals in the store, if hosts share it.
        """
        webhooks: list[Webhook] = []
        is_elsewhere = bool(task_id) and not self.has_journal(task_id)
        if self.stored is not None and (whole_store or is_elsewhere):
            finders = [self.stored.find_webhooks]
        else:
            finders = [opened.journal.webhooks.find for opened in self._journals.values()]
        for find in finders:
            states = (state,) if state in (DEAD, DONE) else LIVE_WEBHOOKS if state else ()
            # The current state of live webhooks is in memory, and the account is in the content of
            # a row, so rows are filtered here.
            limit = None if states == LIVE_WEBHOOKS or account else _LIST_LIMIT
            for row in await find(task_id=task_id, states=states, limit=limit):
                webhook = self._current_view(from_row(row))
                if account in ("", webhook.account) and (not state or webhook.state == state):
                    webhooks.append(webhook)
        webhooks.sort(key=lambda webhook: webhook.created.ToNanoseconds(), reverse=True)
        return webhooks[:_LIST_LIMIT]

    def watch(
        self, account: str = ""
    ) -> AbstractContextManager[PendingChanges[WebhookKey, WebhookKey]]:
        """Collect the keys of webhooks that change, of an account or of all, in a block."""
        return self._watchers.watch(account)

    async def describe(self, key: WebhookKey) -> Webhook:
        """Return a webhook as it is now, without its secrets; only the ids if it is deleted."""
        task_id, config_id = key
        delivery = self._deliveries.get(key)
        if delivery is not None:
            return self._current_view(delivery.webhook)
        opened = self._journals.get(parse_journal_id(task_id))
        rows = [] if opened is None else await opened.journal.webhooks.find(task_id=task_id)
        for row in rows:
            if row.key == key:
                return redact_webhook(from_row(row))
        return Webhook(config=Config(task_id=task_id, id=config_id))

    async def replay(self, task_id: str, config_id: str = "", *, from_start: bool = False) -> int:
        """Restart the webhooks of a task; return their count.

        Failing and dead webhooks continue after the last event they sent. With `from_start`, all
        webhooks start at the first event.

        Raises:
            TaskNotFoundError: no such webhook.
            JournalUnavailableError.
        """
        journal = self.get_journal(task_id)
        async with self.changing(journal):
            rows = [
                row
                for row in await journal.webhooks.find(task_id=task_id)
                if config_id in ("", row.config_id)
            ]
            if not rows:
                raise TaskNotFoundError(task_id)
            writes: list[asyncio.Future[None]] = []
            for row in reversed(rows):
                delivery = self._deliveries.get(row.key)
                webhook = from_row(row) if delivery is None else delivery.webhook
                if not from_start and webhook.state not in (DEAD, WAITING):
                    continue
                replayed = Webhook()
                replayed.CopyFrom(webhook)
                clear_failures(replayed)
                replayed.state = PENDING
                if from_start:
                    replayed.cursor = ""
                writes.append(self._save(journal, replayed))
            for write in writes:
                # One commit has all of them, so they end together.
                await finish(write)
        return len(writes)

    async def store(self, journal: Journal, webhook: Webhook) -> None:
        """Store a webhook and start delivery, even if the caller is canceled.

        The caller holds the lock `changing` of the journal.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        await finish(self._save(journal, webhook))

    async def remove(self, journal: Journal, key: WebhookKey, *, account: str) -> None:
        """Delete a webhook of a task of the account if it exists, even if the caller is canceled.

        Raises:
            PeerUnavailableError: the journal has moved to another host.
            JournalUnavailableError.
        """
        async with self.changing(journal):
            rows = await journal.webhooks.find(task_id=key[0])
            if any(row.key == key for row in rows):
                write = self._replace(journal.webhooks.delete(*key), journal, key, webhook=None)
                # Watchers look the webhook up, so they see whether the write succeeded.
                write.add_done_callback(lambda _: self._publish(account, key))
                await finish(write)

    def _save(self, journal: Journal, webhook: Webhook) -> asyncio.Future[None]:
        row = to_row(webhook)
        return self._replace(journal.webhooks.save(row), journal, row.key, webhook)

    def _replace(
        self,
        write: asyncio.Future[None],
        journal: Journal,
        key: WebhookKey,
        webhook: Webhook | None,
    ) -> asyncio.Future[None]:
        """Stop delivery of a webhook until the write that replaces it, or deletes it, has ended.

        If the write fails, delivery of the previous webhook goes on. Return the write.
        """
        # Deactivating ends the claim, so that a late record does not overwrite the new state.
        previous = self._deactivate(key)

        def on_written(done: asyncio.Future[None]) -> None:
            is_written = not done.cancelled() and done.exception() is None
            if is_written:
                # An earlier write of the same commit may have activated it.
                self._deactivate(key)
            active = webhook if is_written else previous
            if active is not None:
                self.activate(journal, active)

        write.add_done_callback(on_written)
        return write

    async def _claim_ready(self, limit: int, lease_s: float) -> Claims:
        """Claim webhooks that are ready; return no claim only if no webhook is ready."""
        self._process_timers()
        claims: Claims = []
        while self._ready and not claims:
            # While the heads are read, other claimants may claim all of these webhooks.
            ready = list(itertools.islice(self._ready.values(), limit))
            heads = [await _read_head(delivery) for delivery in ready]
            # Nothing is awaited from the first claim on, because a canceled caller would lose it.
            claims = self._claim_each(ready, heads, lease_s)
        return claims

    def _claim_each(
        self, ready: Sequence[WebhookDelivery], heads: Sequence[int | None], lease_s: float
    ) -> Claims:
        """Claim the webhooks whose heads are known. The others are no longer ready after that."""
        claims: Claims = []
        for delivery, head in zip(ready, heads, strict=True):
            key = delivery.key
            if self._ready.get(key) is not delivery:
                continue  # It was claimed or replaced meanwhile.
            del self._ready[key]
            if head is None:
                # Retried after a pause, so that it does not delay the other webhooks.
                delivery.due_s = self.retry.now_s() + self.retry.pause_s(1)
                self._enqueue(delivery)
                continue
            if not head:
                # Retention has deleted the task and its webhooks.
                self._deactivate(key)
                continue
            claim = DeliveryClaim(f"{delivery.journal.id}-{secrets.token_hex(8)}", head)
            delivery.claim, delivery.lease_s = claim, lease_s
            delivery.claimed_until_s = self.retry.now_s() + lease_s
            self._claimed[claim.id] = delivery
            self._wake_at(delivery.claimed_until_s, delivery)
            claims.append(
                webhook_service_pb2.WebhookClaim(claim_id=claim.id, webhook=delivery.webhook)
            )
        return claims

    def _apply_outcome(
        self,
        delivery: WebhookDelivery,
        request: webhook_service_pb2.RecordDeliveryRequest,
        task: TaskRow,
    ) -> None:
        match request.WhichOneof("outcome"):
            case "sent":
                delivery.record_sent(request.sent)
            case "finished":
                delivery.record_finished(request.finished, task)
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
            self._enqueue(delivery)

    def _enqueue(self, delivery: WebhookDelivery) -> None:
        """Queue an unclaimed webhook: on its timer if paused, as ready if it has events."""
        self._publish(delivery.webhook.account, delivery.key)
        if delivery.due_s > self.retry.now_s():
            self._wake_at(delivery.due_s, delivery)
            return
        delivery.due_s = 0.0
        if delivery.may_have_events():
            self._ready[delivery.key] = delivery
            self._notify_claimants()

    def _process_timers(self) -> None:
        """End claims that were not renewed, and pauses whose time is over."""
        now_s = self.retry.now_s()
        while self._timers and self._timers[0][0] <= now_s:
            delivery = heapq.heappop(self._timers)[2]
            if self._deliveries.get(delivery.key) is not delivery:
                continue
            if delivery.claim is not None:
                if delivery.claimed_until_s > now_s:
                    self._wake_at(delivery.claimed_until_s, delivery)
                    continue
                self._end_claim(delivery)
            if delivery.key not in self._ready and delivery.due_s <= now_s:
                self._enqueue(delivery)

    def _wake_at(self, time_s: float, delivery: WebhookDelivery) -> None:
        heapq.heappush(self._timers, (time_s, next(self._counter), delivery))
        if self._timers[0][2] is delivery:
            self._notify_claimants()

    def _end_claim(self, delivery: WebhookDelivery) -> None:
        if delivery.claim is not None:
            del self._claimed[delivery.claim.id]
            delivery.claim = None

    def _deactivate(self, key: WebhookKey) -> Webhook | None:
        """Stop delivery of a webhook and end its claim; return its state, None if inactive."""
        delivery = self._deliveries.pop(key, None)
        if delivery is None:
            return None
        self._end_claim(delivery)
        self._ready.pop(key, None)
        if delivery.listener is not None:
            delivery.journal.unsubscribe(key[0], delivery.listener)
        return delivery.webhook

    def _current_view(self, webhook: Webhook) -> Webhook:
        """Return a webhook with its current state and without its secrets."""
        key = (webhook.config.task_id, webhook.config.id)
        delivery = self._deliveries.get(key)
        copy = redact_webhook(webhook if delivery is None else delivery.webhook)
        if delivery is not None:
            copy.state = delivery.current_state()
        return copy

    def _publish(self, account: str, key: WebhookKey) -> None:
        """Tell the watchers of an account and of all accounts that a webhook changed."""
        if not self._watchers.is_empty:
            for watched in {account, ""}:
                self._watchers.publish(watched, key, key)

    def _notify_claimants(self) -> None:
        """Wake all claimants; each checks again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _read_head(delivery: WebhookDelivery) -> int | None:
    """Return the last sequence of a webhook's task: 0 if it was deleted, None if it is unknown."""
    try:
        return await delivery.journal.head(delivery.key[0])
    except TaskNotFoundError:
        return 0
    except JournalUnavailableError:
        return None
