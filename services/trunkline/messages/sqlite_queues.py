"""The queues of the local store: the deliveries to one recipient of one priority, in order.

A recipient that is away or slow fills only its own queues, and urgent messages have queues of their
own. All open deliveries of a conversation to a recipient are in one queue, so that they are made in
order. All methods run in the thread of the connection.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trunkline.messages.store import PREFETCH, DeliveryKey, Envelope, QueuedDelivery
from trunkline.v1 import envelope_pb2

_READ_LIMIT: Final = 500
_SELECT_OPEN: Final = """
SELECT d.position, d.recipient, d.attempt_count, d.task_id, d.not_before, d.state,
    m.account, m.caller, m.content
FROM deliveries d JOIN messages m USING (position)
WHERE d.state IN (1, 2) AND d.recipient = ? AND d.lane = ? AND d.position > ?
ORDER BY d.position LIMIT ?
"""


@dataclass(slots=True)
class _Queue:
    """The deliveries to one recipient of one priority, which are read in order of positions."""

    cursor: int = 0
    in_flight: int = 0
    """The number of deliveries that the dispatcher has."""
    has_more: bool = True
    """There may be deliveries behind the cursor."""


class DeliveryQueues:
    """Reads deliveries for the dispatcher, each once, and counts the deliveries in flight."""

    def __init__(
        self,
        database: sqlite3.Connection,
        build_delivery: Callable[[Sequence[Any]], QueuedDelivery],
    ) -> None:
        self._database = database
        self._build_delivery = build_delivery
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._in_flight: dict[DeliveryKey, _Queue] = {}

    def choose(self, account: str, correlation_id: str, recipient: str, envelope: Envelope) -> int:
        """Return the number of the queue of a new delivery.

        It is the queue of the conversation, or the queue of the message's priority if the
        conversation has no open delivery to the recipient.
        """
        priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
        waiting = self._database.execute(
            "SELECT lane FROM deliveries WHERE account = ? AND correlation_id = ? AND recipient = ?"
            " AND state IN (1, 2) ORDER BY position DESC LIMIT 1",
            (account, correlation_id, recipient),
        ).fetchone()
        number = priority if waiting is None else int(waiting[0])
        # A write that is rolled back leaves a queue that is read in vain, once.
        self._queues.setdefault((recipient, number), _Queue()).has_more = True
        return number

    def find(self) -> None:
        """Find the queues of the deliveries that have not ended."""
        for key in self._database.execute(
            "SELECT DISTINCT recipient, lane FROM deliveries WHERE state IN (1, 2)"
        ):
            self._queues[key] = _Queue()

    def read(self) -> list[QueuedDelivery]:
        """Return deliveries that the dispatcher does not have, of all queues below their limit."""
        batch: list[QueuedDelivery] = []
        for (recipient, number), queue in list(self._queues.items()):
            # Read last the next time, so that no queue starves.
            del self._queues[recipient, number]
            if queue.has_more or queue.in_flight:
                self._queues[recipient, number] = queue
            while queue.has_more and queue.in_flight < PREFETCH:
                limit = PREFETCH - queue.in_flight
                rows = self._database.execute(
                    _SELECT_OPEN, (recipient, number, queue.cursor, limit)
                ).fetchall()
                # Not before all rows can be read: an error leaves them for the next time.
                deliveries = [self._build_delivery(row) for row in rows]
                new = [each for each in deliveries if each.key not in self._in_flight]
                self._in_flight.update((each.key, queue) for each in new)
                queue.in_flight += len(new)
                queue.has_more = len(rows) == limit
                if deliveries:
                    queue.cursor = deliveries[-1].position
                batch += new
            if len(batch) >= _READ_LIMIT:
                break
        batch.sort(key=lambda each: each.position)
        return batch

    def remove(self, key: DeliveryKey) -> None:
        """Note that a delivery is no longer in flight."""
        queue = self._in_flight.pop(key, None)
        if queue is not None:
            queue.in_flight -= 1

    def read_again(self, deliveries: Sequence[tuple[int, str]]) -> None:
        """Set the cursors of queues before deliveries that wait again."""
        for position, recipient in deliveries:
            row = self._database.execute(
                "SELECT lane FROM deliveries WHERE position = ? AND recipient = ?",
                (position, recipient),
            ).fetchone()
            if row is not None:
                queue = self._queues.setdefault((recipient, int(row[0])), _Queue())
                queue.cursor = min(queue.cursor, position - 1)
                queue.has_more = True
