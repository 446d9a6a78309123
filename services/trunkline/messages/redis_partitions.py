"""Reads the deliveries of the partitions that this process holds.

Processes share the partitions by leases. Every script that writes compares the lease of its caller,
so a process that was frozen until its lease lapsed is refused. An entry stays pending in the
consumer group until its delivery ends. The next owner of a partition claims the pending entries,
and continues their deliveries by the stored tasks.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trunkline.core.backoff import Backoff
from trunkline.core.settings import MessagingSettings
from trunkline.errors import PeerUnavailableError
from trunkline.messages import redis_scripts as scripts
from trunkline.messages.redis_connection import translate_errors
from trunkline.messages.redis_records import (
    PARTITIONS,
    DeliveryRecord,
    GrantedDelivery,
    PartitionGrant,
    RedisCodec,
    attempts_place,
    key_prefix,
    message_place,
)
from trunkline.messages.store import PREFETCH, DeliveryKey
from trunkline.messages.stored_form import RUNNING

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_READ_LIMIT: Final = 500
_RENEWALS_PER_LEASE: Final = 3
RunScript: TypeAlias = Callable[..., Awaitable[Any]]
_QueueKey: TypeAlias = tuple[str, str]


class _Entry(NamedTuple):
    """An entry of a partition's stream. Entries sort by the positions of their messages."""

    position: int
    id: str
    grant: PartitionGrant
    recipient: str
    conversation: str
    queue: _QueueKey


@dataclass(slots=True)
class _Queue:
    """The entries of one recipient and one priority.

    A recipient that is away or slow fills only its own queues.
    """

    waiting: list[_Entry] = field(default_factory=list)
    """A heap, because entries of several partitions are not in order."""
    in_flight: int = 0
    """The number of deliveries that the dispatcher has."""


@dataclass(slots=True)
class _Partition:
    """A partition that this process holds."""

    grant: PartitionGrant
    claim_from: str | None = "0-0"
    """The pending entry from which the claim continues, or None if all are claimed."""
    in_flight: dict[str, _Entry] = field(default_factory=dict)
    """The entries whose deliveries the dispatcher has, by id."""
    conversations: dict[str, tuple[_QueueKey, int]] = field(default_factory=dict)
    """The queue of each conversation that has entries here, and their number."""

    def add(self, entry: _Entry) -> None:
        """Count an entry for its conversation."""
        _, count = self.conversations.get(entry.conversation, (entry.queue, 0))
        self.conversations[entry.conversation] = (entry.queue, count + 1)

    def remove(self, entry: _Entry) -> None:
        """Stop counting an entry."""
        queue, count = self.conversations[entry.conversation]
        if count > 1:
            self.conversations[entry.conversation] = (queue, count - 1)
        else:
            del self.conversations[entry.conversation]


class PartitionReader:
    """Holds a share of the partitions, and reads their deliveries."""

    def __init__(
        self,
        client: "Redis",
        run_script: RunScript,
        codec: RedisCodec,
        *,
        owner: str,
        settings: MessagingSettings,
    ) -> None:
        self._client = client
        self._run = run_script
        self._codec = codec
        self._owner = owner
        self._prefix = key_prefix(settings)
        self._group = settings.group
        self._lease_s = settings.lease_s
        self._partitions: dict[str, _Partition] = {}
        self._queues: dict[_QueueKey, _Queue] = {}
        self._is_reading = asyncio.Event()
        self._shares_again = asyncio.Event()
        self._wake = asyncio.Event()
        self._has_new = True
        self._claims_again = False

    @property
    def partitions(self) -> list[int]:
        """The partitions that this process holds."""
        return sorted(map(int, self._partitions))

    def notify(self) -> None:
        """Note that there may be new entries."""
        self._has_new = True
        self._wake.set()

    def read_again(self) -> None:
        """Note that the server was away. Its successor may not know all ended deliveries."""
        self._claims_again = True
        self._wake.set()

    async def keep_leases(self) -> None:
        """Renew the leases, for as long as it runs, once deliveries are read."""
        backoff = Backoff()
        await self._is_reading.wait()
        while True:
            self._shares_again.clear()
            try:
                await self.share()
            except PeerUnavailableError as error:
                logger.debug("messages.not_renewed", extra={"problem": error.problem})
                await backoff.pause()
                continue
            backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / _RENEWALS_PER_LEASE):
                    await self._shares_again.wait()

    async def batches(self) -> AsyncIterator[Sequence[GrantedDelivery]]:
        """Yield deliveries of the partitions that this process holds; never ends.

        While the server is away, it waits.
        """
        for partition in list(self._partitions):
            self._drop(partition)
        self._is_reading.set()
        backoff = Backoff()
        while True:
            self._wake.clear()
            try:
                batch = await self.read_batch()
            except PeerUnavailableError as error:
                logger.debug("messages.not_read", extra={"problem": error.problem})
                self._claim_again()
                await backoff.pause()
                continue
            backoff.reset()
            if batch:
                yield batch
            else:
                await self._wake.wait()

    def remove(self, delivery: GrantedDelivery) -> None:
        """Note that a delivery is no longer in flight."""
        partition = self._partitions.get(delivery.grant.partition)
        if partition is None or partition.grant != delivery.grant:
            return
        entry = partition.in_flight.get(delivery.entry)
        if entry is not None:
            partition.remove(entry)
            self._return(entry)

    def _return(self, entry: _Entry) -> None:
        """Make room in the queue of an entry that is no longer in flight."""
        partition = self._partitions.get(entry.grant.partition)
        if partition is None or partition.grant != entry.grant:
            return
        if partition.in_flight.pop(entry.id, None) is None:
            return
        queue = self._queues[entry.queue]
        queue.in_flight -= 1
        if queue.waiting:
            self._wake.set()
        elif not queue.in_flight:
            del self._queues[entry.queue]

    async def release(self) -> None:
        """Give the partitions to other processes.

        Raises:
            PeerUnavailableError: the server does not answer.
        """
        held = _flatten(partition.grant for partition in self._partitions.values())
        await self._run(scripts.RELEASE, self._owner, *held)

    async def read_batch(self) -> list[GrantedDelivery]:
        """Return deliveries that can be made now."""
        if self._claims_again:
            self._claims_again = False
            self._claim_again()
        await self._claim_pending()
        # All new entries, before the first delivery is made: partitions are read one by one.
        while self._has_new:
            self._has_new = False
            await self._read_new()
        return await self._load()

    async def share(self) -> None:
        """Renew the leases, and take or give back partitions, so that each process has a share."""
        held = _flatten(partition.grant for partition in self._partitions.values())
        lease_ms = int(self._lease_s * 1000)
        answer = await self._run(
            scripts.SHARE, self._owner, lease_ms, PARTITIONS, self._group, *held
        )
        words = [word.decode() for word in answer]
        granted = dict(zip(words[::2], words[1::2], strict=True))
        before = self.partitions
        for number, partition in list(self._partitions.items()):
            if granted.get(number) != partition.grant.lease:
                self._drop(number)
        for number, lease in granted.items():
            if number not in self._partitions:
                self._partitions[number] = _Partition(PartitionGrant(number, lease))
                self.notify()
        if self.partitions != before:
            logger.info("messages.partitions", extra={"partitions": self.partitions})

    def _drop(self, number: str) -> None:
        """Forget a partition whose lease is lost. The server refuses writes of its deliveries."""
        partition = self._partitions.pop(number)
        for entry in partition.in_flight.values():
            self._queues[entry.queue].in_flight -= 1
        self._shares_again.set()

    def _drop_fenced(self, grant: PartitionGrant) -> None:
        """Forget a partition, unless it was granted anew meanwhile."""
        partition = self._partitions.get(grant.partition)
        if partition is not None and partition.grant == grant:
            self._drop(grant.partition)

    def _claim_again(self) -> None:
        """Read all entries again that are not in flight, because an answer may be lost."""
        for queue in self._queues.values():
            queue.waiting.clear()
        for partition in self._partitions.values():
            partition.claim_from = "0-0"
            partition.conversations.clear()
            for entry in partition.in_flight.values():
                partition.add(entry)
        self._has_new = True

    async def _claim_pending(self) -> None:
        for partition in list(self._partitions.values()):
            while partition.claim_from is not None:
                answer = await self._run(
                    scripts.CLAIM,
                    *_flatten([partition.grant]),
                    self._group,
                    self._owner,
                    _READ_LIMIT,
                    partition.claim_from,
                )
                if answer[0] == b"fenced":
                    self._drop_fenced(partition.grant)
                    break
                self._add(partition, answer[2])
                cursor = answer[1].decode()
                partition.claim_from = None if cursor == "0-0" else cursor

    async def _read_new(self) -> None:
        partitions = dict(self._partitions)
        held = _flatten(partition.grant for partition in partitions.values())
        if not held:
            return
        # Not repeated: entries of a lost answer stay pending, and are claimed.
        answer = await self._run(
            scripts.READ, self._group, self._owner, _READ_LIMIT, *held, is_repeatable=False
        )
        count = 0
        for number, outcome, *entries in answer:
            partition = partitions[number.decode()]
            if outcome == b"fenced":
                self._drop_fenced(partition.grant)
            else:
                self._add(partition, entries[0])
                count += len(entries[0])
        self._has_new |= count >= _READ_LIMIT

    def _add(self, partition: _Partition, entries: Iterable[tuple[bytes, Sequence[bytes]]]) -> None:
        for id_bytes, values in entries:
            entry_id = id_bytes.decode()
            if entry_id in partition.in_flight:
                continue
            fields = dict(zip(values[::2], values[1::2], strict=True))
            conversation, recipient = fields[b"c"].decode(), fields[b"r"].decode()
            own_queue = (recipient, fields[b"u"].decode())
            # A conversation is delivered in order, so all its entries are in one queue.
            queue, _ = partition.conversations.get(conversation, (own_queue, 0))
            position = int(fields[b"p"])
            entry = _Entry(position, entry_id, partition.grant, recipient, conversation, queue)
            partition.add(entry)
            heapq.heappush(self._queues.setdefault(queue, _Queue()).waiting, entry)

    async def _load(self) -> list[GrantedDelivery]:
        """Return the next deliveries of all queues that have room, with their messages."""
        entries: list[_Entry] = []
        for key, queue in list(self._queues.items()):
            while queue.waiting and queue.in_flight < PREFETCH and len(entries) < _READ_LIMIT:
                entry = heapq.heappop(queue.waiting)
                partition = self._partitions.get(entry.grant.partition)
                if partition is not None and partition.grant == entry.grant:
                    partition.in_flight[entry.id] = entry
                    queue.in_flight += 1
                    entries.append(entry)
            if not queue.waiting and not queue.in_flight:
                del self._queues[key]
        if not entries:
            return []
        try:
            found = await self._read_messages(entries)
            deliveries = [
                delivery
                for entry, fields in zip(entries, found, strict=True)
                if (delivery := await self._build(entry, fields)) is not None
            ]
        except BaseException:
            for entry in entries:
                self._return(entry)
            raise
        return sorted(deliveries, key=lambda delivery: delivery.position)

    async def _read_messages(self, entries: Sequence[_Entry]) -> list[Mapping[str, bytes]]:
        async with translate_errors():
            pipeline = self._client.pipeline(transaction=False)
            for entry in entries:
                names = ["e", "a", "c", "u", f"d:{entry.recipient}", f"h:{entry.recipient}"]
                pipeline.hmget(f"{self._prefix}:m:{entry.position}", names)
            rows: list[list[bytes]] = await pipeline.execute()
        return [dict(zip(("e", "a", "c", "u", "d", "h"), row, strict=True)) for row in rows]

    async def _build(self, entry: _Entry, fields: Mapping[str, bytes]) -> GrantedDelivery | None:
        """Return a delivery, or None if an operator has removed it from the server."""
        record = DeliveryRecord.decode(fields["d"]) if fields["d"] else None
        if record is None or not record.is_open:
            await self._run(scripts.DROP, *_flatten([entry.grant]), self._group, entry.id)
            self._return(entry)
            return None
        key = DeliveryKey(fields["a"].decode(), fields["u"].decode(), entry.recipient)
        place = message_place(key.account, key.envelope_id)
        return GrantedDelivery(
            key,
            entry.position,
            self._codec.decode_envelope(fields["e"], place),
            fields["c"].decode(),
            record.attempt_count,
            record.task_id if record.state == RUNNING else "",
            record.not_before,
            grant=entry.grant,
            entry=entry.id,
            record=fields["d"],
            attempts=self._codec.decode_attempts(fields["h"] or b"", attempts_place(key)),
        )


def _flatten(grants: Iterable[PartitionGrant]) -> list[str]:
    return [word for grant in grants for word in (grant.partition, grant.lease)]
