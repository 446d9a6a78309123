"""The order in which deliveries are made. Pure: no clock, no I/O.

Deliveries of one conversation to one recipient are made one after another. Across conversations,
each message has a due time: when it was accepted, plus an allowance by its priority. The
conversation with the earliest due time goes first, so urgent messages overtake, and no message is
overtaken for longer than its allowance. A conversation is as urgent as its most urgent message.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from trunkline.messages.store import DeliveryKey, QueuedDelivery
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading
from trunkline.v1 import envelope_pb2

ALLOWANCE_S: Final = {
    envelope_pb2.ENVELOPE_PRIORITY_HIGH: 0.0,
    envelope_pb2.ENVELOPE_PRIORITY_NORMAL: 60.0,
    envelope_pb2.ENVELOPE_PRIORITY_UNSPECIFIED: 60.0,
    envelope_pb2.ENVELOPE_PRIORITY_LOW: 300.0,
}
"""The seconds for which later messages may overtake a message, by its priority."""


_NEVER: Final = float("inf")


class _ConversationKey(NamedTuple):
    account: str
    recipient: str
    correlation_id: str


@dataclass(slots=True)
class _Conversation:
    """The deliveries of one conversation to one recipient, oldest first."""

    waiting: deque[QueuedDelivery] = field(default_factory=deque)
    is_running: bool = False
    has_slot: bool = False
    """The running delivery counts towards the limits."""
    due: float = _NEVER
    """The due time of the conversation in its recipient's heap."""
    not_before: float = 0.0


class Scheduler:
    """Chooses the next delivery to make."""

    def __init__(self, *, per_recipient: int, total: int) -> None:
        """`per_recipient` and `total` are the numbers of deliveries that may run at once."""
        self._per_recipient = per_recipient
        self._total = total
        self._conversations: dict[_ConversationKey, _Conversation] = {}
        self._heaps: dict[str, list[tuple[float, int, _ConversationKey]]] = defaultdict(list)
        self._postponed: list[tuple[float, int, _ConversationKey]] = []
        self._expiries: list[tuple[float, int, _ConversationKey, DeliveryKey]] = []
        # The deliveries that may still expire. Other entries in `_expiries` are stale.
        self._expiring: set[DeliveryKey] = set()
        self._running: dict[str, int] = defaultdict(int)
        self._running_total = 0
        self._numbers = count()
        instruments.DELIVERIES_WAITING.watch(self, Scheduler._count_waiting)
        instruments.DELIVERIES_RUNNING.watch(self, Scheduler._count_running)

    @property
    def running(self) -> int:
        """The number of running deliveries that count towards the limits."""
        return self._running_total

    @property
    def waiting(self) -> int:
        """The number of deliveries that wait."""
        # A copy, because metrics are read in another thread.
        conversations = tuple(self._conversations.values())
        return sum(len(each.waiting) - each.is_running for each in conversations)

    def _count_waiting(self) -> Sequence[Reading]:
        return [((), self.waiting)]

    def _count_running(self) -> Sequence[Reading]:
        return [((), self._running_total)]

    def add(self, deliveries: Iterable[QueuedDelivery]) -> None:
        """Add deliveries. A conversation's deliveries are made in the order of their positions."""
        for delivery in deliveries:
            key = _conversation_key(delivery)
            conversation = self._conversations.setdefault(key, _Conversation())
            self._insert(key, conversation, delivery)
            if delivery.envelope.HasField("expire_time"):
                self._expiring.add(delivery.key)
                self._push_expiry(delivery)

    def _insert(
        self, key: _ConversationKey, conversation: _Conversation, delivery: QueuedDelivery
    ) -> None:
        waiting = conversation.waiting
        first = 1 if conversation.is_running else 0
        index = len(waiting)
        # A dead letter that is delivered again is older than the waiting deliveries.
        while index > first and waiting[index - 1].position > delivery.position:
            index -= 1
        waiting.insert(index, delivery)
        if index == 0:
            self._offer_next(key, conversation)
        else:
            self._offer(key, conversation, _due_time(delivery))

    def take(
        self, now: float, *, is_available: Callable[[str], bool] = lambda _: True
    ) -> QueuedDelivery | None:
        """Return the next delivery, which then runs, or None if no delivery may run now.

        Recipients for which `is_available` is false get no deliveries.
        """
        # First, so that `next_time` is not in the past while the limit is reached.
        self._wake(now)
        if self._running_total >= self._total:
            return None
        best: tuple[float, int, _ConversationKey] | None = None
        for recipient, heap in self._heaps.items():
            self._drop_stale(heap)
            if not heap or self._running[recipient] >= self._per_recipient:
                continue
            if (best is None or heap[0] < best) and is_available(recipient):
                best = heap[0]
        if best is None:
            return None
        _, _, key = heapq.heappop(self._heaps[best[2].recipient])
        conversation = self._conversations[key]
        conversation.is_running = conversation.has_slot = True
        conversation.due = _NEVER
        self._running[key.recipient] += 1
        self._running_total += 1
        return conversation.waiting[0]

    def release(self, delivery: QueuedDelivery) -> None:
        """Let another delivery run beside a running delivery that waits.

        The running delivery waits for a person, or for a host that is gone. Its conversation waits
        for its end.
        """
        key = _conversation_key(delivery)
        self._release_slot(key, self._conversations[key])

    def next_time(self) -> float | None:
        """Return the earliest time at which a delivery may run again or expires, if any."""
        while self._expiries and self._expiries[0][3] not in self._expiring:
            heapq.heappop(self._expiries)
        times = [heap[0][0] for heap in (self._postponed, self._expiries) if heap]
        return min(times, default=None)

    def take_expired(self, now: float) -> list[QueuedDelivery]:
        """Remove and return the deliveries that have expired and do not run.

        A delivery with an unfinished attempt may have been handled. It is not expired but runs, so
        that the outcome of its task is known.
        """
        expired: list[QueuedDelivery] = []
        while self._expiries and self._expiries[0][0] <= now:
            _, _, key, delivery_key = heapq.heappop(self._expiries)
            conversation = self._conversations.get(key)
            if delivery_key not in self._expiring or conversation is None:
                continue
            for index, waiting in enumerate(conversation.waiting):
                if waiting.key != delivery_key:
                    continue
                if not waiting.task_id and not (index == 0 and conversation.is_running):
                    self._expiring.discard(delivery_key)
                    self._remove(conversation, index)
                    expired.append(waiting)
                break
        return expired

    def _remove(self, conversation: _Conversation, index: int) -> None:
        """Remove a waiting delivery from its conversation."""
        key = _conversation_key(conversation.waiting[index])
        del conversation.waiting[index]
        if not conversation.waiting:
            del self._conversations[key]
        elif index == 0:
            self._offer_next(key, conversation)

    def end(self, delivery: QueuedDelivery) -> None:
        """Note that a running delivery has ended. The next delivery of its conversation may run."""
        key = _conversation_key(delivery)
        conversation = self._stop(key)
        conversation.waiting.popleft()
        self._expiring.discard(delivery.key)
        self._drop_ended_expiries()
        if conversation.waiting:
            self._offer_next(key, conversation)
        else:
            del self._conversations[key]

    def postpone(self, delivery: QueuedDelivery) -> None:
        """Note that a running delivery, and its conversation, wait until its `not_before`."""
        key = _conversation_key(delivery)
        conversation = self._stop(key)
        conversation.waiting[0] = delivery
        if delivery.key in self._expiring:
            # The first entry is gone if the delivery expired while it ran.
            self._push_expiry(delivery)
            self._drop_ended_expiries()
        self._offer_next(key, conversation)

    def _push_expiry(self, delivery: QueuedDelivery) -> None:
        expiry = delivery.envelope.expire_time.ToNanoseconds() / 1e9
        entry = (expiry, next(self._numbers), _conversation_key(delivery), delivery.key)
        heapq.heappush(self._expiries, entry)

    def _drop_ended_expiries(self) -> None:
        """Bound the heap of expiries by the number of deliveries that may expire."""
        if len(self._expiries) <= 2 * len(self._expiring) + 64:
            return
        latest = {entry[3]: entry for entry in self._expiries if entry[3] in self._expiring}
        self._expiries = list(latest.values())
        heapq.heapify(self._expiries)

    def _stop(self, key: _ConversationKey) -> _Conversation:
        conversation = self._conversations[key]
        conversation.is_running = False
        self._release_slot(key, conversation)
        return conversation

    def _release_slot(self, key: _ConversationKey, conversation: _Conversation) -> None:
        if not conversation.has_slot:
            return
        conversation.has_slot = False
        self._running_total -= 1
        self._running[key.recipient] -= 1
        if not self._running[key.recipient]:
            del self._running[key.recipient]

    def _offer_next(self, key: _ConversationKey, conversation: _Conversation) -> None:
        """Put a conversation whose first delivery has changed into its heap."""
        conversation.due = _NEVER
        conversation.not_before = conversation.waiting[0].not_before
        self._offer(key, conversation, min(map(_due_time, conversation.waiting)))

    def _offer(self, key: _ConversationKey, conversation: _Conversation, due: float) -> None:
        """Put a conversation into its heap, unless it is there with an earlier due time."""
        if conversation.is_running or due >= conversation.due:
            return
        is_postponed = conversation.due != _NEVER and bool(conversation.not_before)
        conversation.due = due
        number = next(self._numbers)
        if is_postponed:
            return
        if conversation.not_before:
            heapq.heappush(self._postponed, (conversation.not_before, number, key))
        else:
            heapq.heappush(self._heaps[key.recipient], (due, number, key))

    def _wake(self, now: float) -> None:
        while self._postponed and self._postponed[0][0] <= now:
            not_before, number, key = heapq.heappop(self._postponed)
            conversation = self._conversations.get(key)
            if (
                conversation is not None
                and not conversation.is_running
                and conversation.not_before == not_before
            ):
                conversation.not_before = 0.0
                heapq.heappush(self._heaps[key.recipient], (conversation.due, number, key))

    def _drop_stale(self, heap: list[tuple[float, int, _ConversationKey]]) -> None:
        """Drop entries of conversations that run, have ended or have an earlier due time."""
        while heap:
            due, _, key = heap[0]
            conversation = self._conversations.get(key)
            if (
                conversation is not None
                and not conversation.is_running
                and not conversation.not_before
                and conversation.due == due
            ):
                return
            heapq.heappop(heap)


def _conversation_key(delivery: QueuedDelivery) -> _ConversationKey:
    key: DeliveryKey = delivery.key
    return _ConversationKey(key.account, key.recipient, delivery.envelope.correlation_id)


def _due_time(delivery: QueuedDelivery) -> float:
    envelope = delivery.envelope
    accepted = envelope.create_time.seconds + envelope.create_time.nanos / 1e9
    return accepted + ALLOWANCE_S[envelope.priority]
