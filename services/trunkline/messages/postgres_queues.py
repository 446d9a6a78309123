"""The deliveries that one of several processes makes from the message store in PostgreSQL.

Deliveries are in partitions, and each partition belongs to one process under a lease. Within its
partitions, a process has a queue for each recipient and priority, as the local store has.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres import PostgresDatabase
from trunkline.messages.postgres_tables import PARTITIONS, ClaimedDelivery, message_place
from trunkline.messages.postgres_writer import lock_writes
from trunkline.messages.store import PREFETCH, DeliveryKey
from trunkline.messages.stored_form import RUNNING, Codec

if TYPE_CHECKING:
    import asyncpg

logger = logging.getLogger(__name__)

_READ_LIMIT: Final = 500
_SELECT_OPEN: Final = """
SELECT d.position, d.recipient, d.partition, d.attempt_count, d.task_id, d.not_before, d.state,
    m.account, m.caller, m.content
FROM trunkline_deliveries d JOIN trunkline_messages m USING (position)
WHERE d.state IN (1, 2) AND d.recipient = $1 AND d.lane = $2 AND d.position > $3
    AND d.partition = ANY($4)
ORDER BY d.position LIMIT $5
"""
# The queues with deliveries that wait since a change, and the first position of each.
_FIND_CHANGED: Final = """
SELECT recipient, lane, min(position) FROM trunkline_deliveries
WHERE state IN (1, 2) AND partition = ANY($1)
    AND position IN (SELECT position FROM trunkline_messages WHERE change > $2)
GROUP BY recipient, lane
"""
_FIND_ALL: Final = """
SELECT recipient, lane, min(position) FROM trunkline_deliveries
WHERE state IN (1, 2) AND partition = ANY($1) GROUP BY recipient, lane
"""
# The row of a process that is only slow still tells it which of its writes were stored.
_END_LEASES: Final = "UPDATE trunkline_message_processes SET renewals = 0 WHERE process = ANY($1)"
# A process without deliveries has no lease; its row is needed no longer after a day.
_DELETE_PROCESSES: Final = (
    "DELETE FROM trunkline_message_processes "
    "WHERE renewals = 0 AND changed < now() - interval '1 day'"
)


class _LeaseWatch:
    """Finds the processes whose leases are over, by its own clock and without theirs.

    A lease is over if its process has not renewed it for so long. The clock moves on by at most
    half a lease between two looks, so it stands still while the database is away and nobody can
    renew a lease.
    """

    def __init__(self, process: str, lease_s: float) -> None:
        self._process = process
        self._lease_s = lease_s
        self._clock_s = 0.0
        self._looked_s = time.monotonic()
        self._renewed: dict[str, tuple[int, float]] = {}

    def find_live(self, renewals: Mapping[str, int]) -> list[str]:
        """Return the processes with a lease, sorted, from the numbers of all renewals."""
        now_s = time.monotonic()
        self._clock_s += min(now_s - self._looked_s, self._lease_s / 2)
        self._looked_s = now_s
        before = self._renewed
        self._renewed = {
            process: before[process]
            if before.get(process, (0, 0.0))[0] == number
            else (number, self._clock_s)
            for process, number in renewals.items()
        }
        return sorted(
            process
            for process, (_, renewed_s) in self._renewed.items()
            if process == self._process or self._clock_s - renewed_s < self._lease_s
        )


@dataclass(slots=True)
class _Queue:
    """The deliveries to one recipient of one priority, which are read in order of positions."""

    cursor: int = 0
    first_changed: int | None = None
    """The first position that may be read anew, because its delivery waits again."""
    in_flight: int = 0
    """The number of deliveries that the dispatcher has."""
    has_more: bool = True
    """There may be deliveries behind the cursor."""


class PostgresQueues:
    """Holds a share of the partitions, and reads their deliveries, each once."""

    def __init__(
        self, database: PostgresDatabase, codec: Codec, *, process: str, lease_s: float
    ) -> None:
        self._database = database
        self._codec = codec
        self._process = process
        self._watch = _LeaseWatch(process, lease_s)
        self._epochs: dict[int, int] = {}
        self._unread: set[int] = set()
        # The number of the last change that was seen.
        self._change: int | None = None
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._in_flight: dict[DeliveryKey, tuple[ClaimedDelivery, _Queue]] = {}

    @property
    def partitions(self) -> list[int]:
        """The partitions whose deliveries this process makes."""
        return sorted(self._epochs)

    async def share(self) -> bool:
        """Renew the lease, and take or give back partitions, so that each process has a share.

        Return whether partitions have changed their owners.

        Raises:
            JournalUnavailableError: nothing is changed, or this is not known.
        """
        async with self._database.transaction() as connection:
            await lock_writes(connection)
            await connection.execute(
                "INSERT INTO trunkline_message_processes AS p (process, renewals) VALUES ($1, 1) "
                "ON CONFLICT (process) DO UPDATE SET renewals = p.renewals + 1, "
                "changed = excluded.changed",
                self._process,
            )
            renewals = await connection.fetch(
                "SELECT process, renewals FROM trunkline_message_processes WHERE renewals > 0"
            )
            live = self._watch.find_live(dict(map(tuple, renewals)))
            rows = await connection.fetch(
                "SELECT partition, owner, epoch FROM trunkline_message_partitions"
            )
            changed = self._divide(rows, live)
            await connection.execute(
                "UPDATE trunkline_message_partitions p SET owner = c.o, epoch = epoch + 1 "
                "FROM unnest($1::integer[], $2::text[]) AS c (p, o) WHERE partition = c.p",
                list(changed),
                list(changed.values()),
            )
            await connection.execute(
                _END_LEASES, [row[0] for row in renewals if row[0] not in live]
            )
            await connection.execute(_DELETE_PROCESSES)
        owned = {
            number: epoch + (number in changed)
            for number, owner, epoch in rows
            if changed.get(number, owner) == self._process
        }
        self._own(owned)
        return bool(changed)

    async def release(self) -> None:
        """Give the partitions to other processes."""
        self._own({})
        async with self._database.transaction() as connection:
            await lock_writes(connection)
            await connection.execute(
                "UPDATE trunkline_message_partitions SET owner = '', epoch = epoch + 1 WHERE "
                "owner = $1",
                self._process,
            )
            await connection.execute(
                "DELETE FROM trunkline_message_processes WHERE process = $1", self._process
            )

    async def read(self) -> list[ClaimedDelivery]:
        """Return deliveries that the dispatcher does not have, of all queues below their limit."""
        await self._find_changed()
        batch: list[ClaimedDelivery] = []
        for key, queue in list(self._queues.items()):
            # Read last the next time, so that no queue starves.
            del self._queues[key]
            if queue.has_more or queue.in_flight:
                self._queues[key] = queue
            while queue.has_more and queue.in_flight < PREFETCH:
                batch += await self._read_queue(*key, queue)
            if len(batch) >= _READ_LIMIT:
                break
        return sorted(batch, key=lambda each: each.position)

    def remove(self, delivery: ClaimedDelivery) -> None:
        """Note that a delivery is no longer in flight."""
        known = self._in_flight.get(delivery.key)
        if known is not None and known[0].epoch == delivery.epoch:
            del self._in_flight[delivery.key]
            known[1].in_flight -= 1

    def _divide(self, rows: Iterable["asyncpg.Record"], live: Sequence[str]) -> dict[int, str]:
        """Return the new owners of the partitions that this process takes or gives back."""
        own = [number for number, owner, _ in rows if owner == self._process]
        free = [number for number, owner, _ in rows if owner not in live]
        rank, count = live.index(self._process), len(live)
        share = PARTITIONS // count + (rank < PARTITIONS % count)
        given: dict[int, str] = dict.fromkeys(own[share:], "")
        return given or dict.fromkeys(free[: share - len(own)], self._process)

    def _own(self, epochs: Mapping[int, int]) -> None:
        """Use these partitions. Deliveries of others are no longer in flight."""
        before = self._epochs
        self._epochs = dict(epochs)
        self._unread = {
            number
            for number, epoch in epochs.items()
            if before.get(number) != epoch or number in self._unread
        }
        for delivery, _ in list(self._in_flight.values()):
            if epochs.get(delivery.partition) != delivery.epoch:
                self.remove(delivery)
        if before.keys() != epochs.keys():
            logger.info("messages.partitions", extra={"partitions": self.partitions})

    async def _find_changed(self) -> None:
        """Find the queues with deliveries that wait since the last call."""
        ((newest,),) = await self._database.fetch("SELECT change FROM trunkline_message_counters")
        if self._unread:
            unread, self._unread = self._unread, set()
            try:
                self._note(await self._database.fetch(_FIND_ALL, list(unread)))
            except BaseException:
                self._unread |= unread
                raise
        if self._change is not None and newest != self._change:
            owned = list(self._epochs)
            self._note(await self._database.fetch(_FIND_CHANGED, owned, self._change))
        self._change = newest

    def _note(self, rows: Collection["asyncpg.Record"]) -> None:
        for recipient, lane, first in rows:
            queue = self._queues.setdefault((recipient, lane), _Queue(cursor=first - 1))
            queue.has_more = True
            if queue.first_changed is None or first < queue.first_changed:
                queue.first_changed = first

    async def _read_queue(self, recipient: str, lane: int, queue: _Queue) -> list[ClaimedDelivery]:
        epochs = self._epochs
        if queue.first_changed is not None:
            queue.cursor = min(queue.cursor, queue.first_changed - 1)
        queue.first_changed, queue.has_more = None, False
        limit = PREFETCH - queue.in_flight
        try:
            rows = await self._database.fetch(
                _SELECT_OPEN, recipient, lane, queue.cursor, list(epochs), limit
            )
            deliveries = [self._build(row, epochs) for row in rows]
        except BaseException:
            # The rows are left for the next time.
            queue.has_more = True
            raise
        new = [
            each
            for each in deliveries
            # The partition may have been lost during the query.
            if each.key not in self._in_flight and self._epochs.get(each.partition) == each.epoch
        ]
        self._in_flight.update((each.key, (each, queue)) for each in new)
        queue.in_flight += len(new)
        queue.has_more |= len(rows) == limit
        if deliveries:
            queue.cursor = deliveries[-1].position
        return new

    def _build(self, row: "asyncpg.Record", epochs: Mapping[int, int]) -> ClaimedDelivery:
        position, partition = row["position"], row["partition"]
        envelope = self._codec.decode_envelope(row["content"], message_place(position))
        return ClaimedDelivery(
            DeliveryKey(row["account"], envelope.envelope_id, row["recipient"]),
            position,
            envelope,
            row["caller"],
            row["attempt_count"],
            row["task_id"] if row["state"] == RUNNING else "",
            row["not_before"],
            partition=partition,
            epoch=epochs[partition],
        )
