"""The lanes of the local store: the deliveries to one recipient of one priority, in order.

A recipient that is away, or slow, fills its own lanes only, and what is urgent has a lane of its
own. All deliveries of a conversation to a recipient that wait are in one lane, so that they are
made in order. All methods run in the thread of the connection.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trunkline.messages.store import DeliveryKey, Envelope, QueuedDelivery
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
class _Lane:
    """The deliveries to one recipient of one priority, which are read in order of positions.

    A recipient that is away, or slow, fills its own lanes only.
    """

    cursor: int = 0
    given: int = 0
    """The deliveries that the dispatcher has."""
    has_more: bool = True
    """There may be deliveries behind the cursor."""


class Lanes:
    """Reads deliveries that the dispatcher does not have, and remembers those that it has."""

    def __init__(
        self,
        database: sqlite3.Connection,
        build_delivery: Callable[[Sequence[Any]], QueuedDelivery],
        *,
        prefetch: int,
    ) -> None:
        """`prefetch` is the number of deliveries of one lane that the dispatcher has at once."""
        self._database = database
        self._build_delivery = build_delivery
        self._limit = prefetch
        self._lanes: dict[tuple[str, int], _Lane] = {}
        # The deliveries that the dispatcher has, with their lanes.
        self._given: dict[DeliveryKey, _Lane] = {}

    def choose(self, account: str, correlation_id: str, recipient: str, envelope: Envelope) -> int:
        """Return the lane of a new delivery: that of its conversation, which is made in order."""
        priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
        waiting = self._database.execute(
            "SELECT lane FROM deliveries WHERE account = ? AND correlation_id = ? AND recipient = ?"
            " AND state IN (1, 2) ORDER BY position DESC LIMIT 1",
            (account, correlation_id, recipient),
        ).fetchone()
        lane = priority if waiting is None else int(waiting[0])
        # A write that is rolled back leaves a lane that is read in vain, once.
        self._lanes.setdefault((recipient, lane), _Lane()).has_more = True
        return lane

    def find(self) -> None:
        """Find the lanes of the deliveries that have not ended."""
        for key in self._database.execute(
            "SELECT DISTINCT recipient, lane FROM deliveries WHERE state IN (1, 2)"
        ):
            self._lanes[key] = _Lane()

    def read(self) -> list[QueuedDelivery]:
        """Return deliveries that the dispatcher does not have, of all lanes that have room."""
        batch: list[QueuedDelivery] = []
        for (recipient, number), lane in list(self._lanes.items()):
            # Read last the next time, so that no lane is left out.
            del self._lanes[recipient, number]
            if lane.has_more or lane.given:
                self._lanes[recipient, number] = lane
            while lane.has_more and lane.given < self._limit:
                limit = self._limit - lane.given
                rows = self._database.execute(
                    _SELECT_OPEN, (recipient, number, lane.cursor, limit)
                ).fetchall()
                # Not before all rows can be read: an error leaves them for the next time.
                deliveries = [self._build_delivery(row) for row in rows]
                new = [each for each in deliveries if each.key not in self._given]
                self._given.update((each.key, lane) for each in new)
                lane.given += len(new)
                lane.has_more = len(rows) == limit
                if deliveries:
                    lane.cursor = deliveries[-1].position
                batch += new
            if len(batch) >= _READ_LIMIT:
                break
        batch.sort(key=lambda each: each.position)
        return batch

    def take_back(self, key: DeliveryKey) -> None:
        """Note that the dispatcher is done with a delivery."""
        lane = self._given.pop(key, None)
        if lane is not None:
            lane.given -= 1

    def read_again(self, deliveries: Sequence[tuple[int, str]]) -> None:
        """Set the cursors of lanes before deliveries that wait again."""
        for position, recipient in deliveries:
            row = self._database.execute(
                "SELECT lane FROM deliveries WHERE position = ? AND recipient = ?",
                (position, recipient),
            ).fetchone()
            if row is not None:
                lane = self._lanes.setdefault((recipient, int(row[0])), _Lane())
                lane.cursor = min(lane.cursor, position - 1)
                lane.has_more = True
