"""One transaction of the message store in PostgreSQL, with the writes of several callers.

What the writes read is loaded at the beginning, and what they change is written at the end. So the
number of statements does not depend on the number of writes.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from trunkline.errors import FencedError, QueueFullError
from trunkline.messages.postgres_tables import (
    ClaimedDelivery,
    attempts_place,
    choose_partition,
    load_messages,
    message_place,
)
from trunkline.messages.store import DeliveryState, NewMessage, StoredEnvelope
from trunkline.messages.stored_form import (
    DEDUPLICATION_S,
    PENDING,
    RUNNING,
    Codec,
    StoredAttempts,
    build_accepted,
    check_repetition,
    deleted_id_error,
)
from trunkline.v1 import envelope_pb2

if TYPE_CHECKING:
    from trunkline.core.postgres import Connection
from trunkline.core.postgres.columns import split_columns

_T = TypeVar("_T")
_NANO: Final = 10**9
# All writes are one statement, because each further one is a round trip within the lock.
_FLUSH: Final = (
    "WITH new_messages AS (INSERT INTO trunkline_messages (position, account, envelope_id, "
    "correlation_id, causation_id, room, type, sender, recipient, caller, create_ns, content, "
    "change) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], "
    "$6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bytea[], "
    "$13::bigint[])), new_deliveries AS (INSERT INTO trunkline_deliveries (position, recipient, "
    "lane, partition, account, correlation_id, state, attempt_count, task_id, not_before, "
    "attempts, update_ns) SELECT p, r, l, n, a, c, 1, 0, '', 0, '', u FROM unnest($14::bigint[], "
    "$15::text[], $16::integer[], $17::integer[], $18::text[], $19::text[], $20::bigint[]) AS d "
    "(p, r, l, n, a, c, u)), changed_deliveries AS (UPDATE trunkline_deliveries SET state = d.s, "
    "attempt_count = d.c, task_id = d.t, not_before = d.n, attempts = d.a, update_ns = d.u FROM "
    "unnest($21::bigint[], $22::text[], $23::integer[], $24::integer[], $25::text[], $26::double "
    "precision[], $27::bytea[], $28::bigint[]) AS d (p, r, s, c, t, n, a, u) WHERE position = d.p "
    "AND recipient = d.r), changed_messages AS (UPDATE trunkline_messages SET change = c.n FROM "
    "unnest($29::bigint[], $30::bigint[]) AS c (p, n) WHERE position = c.p), noted AS (INSERT "
    "INTO trunkline_message_processes (process, commits) VALUES ($31, $32) ON CONFLICT (process) "
    "DO UPDATE SET commits = excluded.commits, changed = excluded.changed) UPDATE "
    "trunkline_message_counters SET position = $33, change = $34, open_count = $35 WHERE one = 1"
)
# Rows of used ids, with the positions of messages that are not deleted, and of lanes.
_LOAD_USED: Final = (
    "SELECT account, envelope_id, NULL AS recipient, position FROM trunkline_messages "
    "JOIN unnest($1::text[], $2::text[]) AS k (account, envelope_id) "
    "USING (account, envelope_id) UNION ALL "
    "SELECT account, envelope_id, NULL, NULL FROM trunkline_deleted_messages "
    "JOIN unnest($1::text[], $2::text[]) AS k (account, envelope_id) "
    "USING (account, envelope_id) WHERE create_ns > $3 UNION ALL "
    "SELECT DISTINCT account, correlation_id, recipient, lane::bigint FROM trunkline_deliveries "
    "JOIN unnest($4::text[], $5::text[], $6::text[]) AS k (account, correlation_id, recipient) "
    "USING (account, correlation_id, recipient) WHERE state IN (1, 2)"
)
_MESSAGE_COLUMNS: Final = 13
_DELIVERY_COLUMNS: Final = 7
_UPDATE_COLUMNS: Final = 8


class _Conversation(NamedTuple):
    account: str
    correlation_id: str
    recipient: str


@dataclass(slots=True)
class _Delivery:
    """A stored delivery, and the epoch of its partition if this process has that."""

    state: DeliveryState
    attempt_count: int
    attempts: StoredAttempts
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Write(Generic[_T]):
    """A write, and what it reads. Its function changes nothing of the batch if it raises."""

    work: Callable[["MessageBatch"], Awaitable[_T]]
    messages: Sequence[NewMessage] = ()
    """The messages that it may accept."""
    deliveries: Sequence[ClaimedDelivery] = ()
    """The deliveries that it may change."""


@dataclass(slots=True)
class MessageBatch:
    """The state of the store within a transaction that has the lock of all writes."""

    connection: "Connection"
    codec: Codec
    process: str
    queue_limit: int
    position: int
    change: int
    open_count: int
    _known: dict[tuple[str, str], StoredEnvelope | None] = field(default_factory=dict)
    """The messages of the ids that were used; None for a deleted message."""
    _lanes: dict[_Conversation, int] = field(default_factory=dict)
    _deliveries: dict[tuple[int, str], _Delivery] = field(default_factory=dict)
    _new_messages: list[tuple[Any, ...]] = field(default_factory=list)
    _new_deliveries: list[tuple[Any, ...]] = field(default_factory=list)
    _updates: dict[tuple[int, str], tuple[Any, ...]] = field(default_factory=dict)
    _changes: dict[int, int] = field(default_factory=dict)

    async def load(self, writes: Sequence[Write[Any]]) -> None:
        """Read what writes need."""
        messages = [message for write in writes for message in write.messages]
        if messages:
            await self._load_used(messages)
        keys = [
            (each.position, each.key.recipient) for write in writes for each in write.deliveries
        ]
        if keys:
            await self._load_deliveries(keys)

    # What writes call.

    def accept(
        self, messages: Sequence[NewMessage], *, is_limited: bool = True
    ) -> list[StoredEnvelope]:
        """Accept all messages or none; return them, or those that they repeat.

        Raises:
            QueueFullError: too many deliveries wait. Without `is_limited` there is no limit.
            InvalidArgumentError: an id was used for another message.
        """
        self.check(messages)
        if is_limited:
            count = sum(len(message.recipients) for message in messages)
            if count and self.open_count + count > self.queue_limit:
                raise QueueFullError(str(self.queue_limit))
        return [self._accept(message) for message in messages]

    def check(self, messages: Sequence[NewMessage]) -> None:
        """Check that no message has the id of another one. InvalidArgumentError: one has."""
        first: dict[tuple[str, str], NewMessage] = {}
        for message in messages:
            key = _message_key(message)
            check_repetition(first.setdefault(key, message).envelope, message.envelope)
            if key in self._known:
                if (stored := self._known[key]) is None:
                    raise deleted_id_error(message.envelope.envelope_id)
                check_repetition(stored.envelope, message.envelope)

    def find_open(self, delivery: ClaimedDelivery) -> tuple[int, StoredAttempts]:
        """Return the attempt count and the attempts of a delivery.

        Raises:
            FencedError: it has ended, or another process makes it.
        """
        stored = self._deliveries.get((delivery.position, delivery.key.recipient))
        is_open = stored is not None and stored.state in (PENDING, RUNNING)
        if stored is None or not is_open or stored.epoch != delivery.epoch:
            raise FencedError(delivery.task_id or delivery.key.envelope_id)
        return stored.attempt_count, stored.attempts

    def update(
        self,
        delivery: ClaimedDelivery,
        state: DeliveryState,
        count: int,
        attempts: StoredAttempts,
        *,
        task_id: str = "",
        not_before: float = 0.0,
    ) -> None:
        """Change a delivery that `find_open` has found."""
        key = (delivery.position, delivery.key.recipient)
        stored = self._deliveries[key]
        stored.state, stored.attempt_count, stored.attempts = state, count, attempts
        content = self.codec.encode_attempts(attempts, attempts_place(*key))
        self._updates[key] = (*key, state, count, task_id, not_before, content, time.time_ns())
        if state not in (PENDING, RUNNING):
            self.open_count -= 1
            self.note_change(delivery.position)

    def note_change(self, position: int) -> None:
        """Make watches of deliveries yield a message again."""
        self.change += 1
        self._changes[position] = self.change

    async def flush(self, number: int) -> None:
        """Write all changes, and the number of this transaction of the process."""
        await self.connection.execute(
            _FLUSH,
            *split_columns(self._new_messages, _MESSAGE_COLUMNS),
            *split_columns(self._new_deliveries, _DELIVERY_COLUMNS),
            *split_columns(list(self._updates.values()), _UPDATE_COLUMNS),
            list(self._changes),
            list(self._changes.values()),
            self.process,
            number,
            self.position,
            self.change,
            self.open_count,
        )

    def _accept(self, message: NewMessage) -> StoredEnvelope:
        key = _message_key(message)
        if (known := self._known.get(key)) is not None:
            return known
        self.position += 1
        self.change += 1
        envelope = message.envelope
        create_ns = envelope.create_time.ToNanoseconds()
        accepted = self._known[key] = build_accepted(message, self.position)
        self._new_messages.append(
            (
                self.position,
                *key,
                envelope.correlation_id,
                envelope.causation_id,
                envelope.room,
                envelope.type,
                envelope.sender,
                envelope.recipient,
                message.caller,
                create_ns,
                self.codec.encode_envelope(envelope, message_place(self.position)),
                self.change,
            )
        )
        priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
        for delivery in accepted.deliveries:
            conversation = _Conversation(
                message.account, envelope.correlation_id, delivery.recipient
            )
            self._new_deliveries.append(
                (
                    self.position,
                    delivery.recipient,
                    self._lanes.setdefault(conversation, priority),
                    choose_partition(message.account, delivery.recipient, envelope.correlation_id),
                    message.account,
                    envelope.correlation_id,
                    create_ns,
                )
            )
        self.open_count += len(accepted.deliveries)
        return accepted

    async def _load_used(self, messages: Sequence[NewMessage]) -> None:
        """Read which ids are used, and the lanes of conversations that have open deliveries.

        All open deliveries of a conversation to a recipient are in one lane, in their order.
        """
        keys = [_message_key(message) for message in messages]
        conversations = {
            _Conversation(message.account, message.envelope.correlation_id, recipient)
            for message in messages
            for recipient in message.recipients
        }
        rows = await self.connection.fetch(
            _LOAD_USED,
            *split_columns(keys, 2),
            time.time_ns() - DEDUPLICATION_S * _NANO,
            *split_columns(list(conversations), len(_Conversation._fields)),
        )
        positions: list[int] = []
        for account, name, recipient, number in rows:
            if recipient is not None:
                self._lanes[_Conversation(account, name, recipient)] = number
                continue
            self._known[account, name] = None
            if number is not None:
                positions.append(number)
        for stored in await load_messages(self.connection, positions, self.codec):
            self._known[stored.account, stored.envelope.envelope_id] = stored

    async def _load_deliveries(self, keys: Sequence[tuple[int, str]]) -> None:
        rows = await self.connection.fetch(
            "SELECT position, recipient, state, attempt_count, attempts, "
            "CASE WHEN owner = $3 THEN epoch END AS epoch FROM trunkline_deliveries "
            "JOIN unnest($1::bigint[], $2::text[]) AS k (position, recipient) "
            "USING (position, recipient) JOIN trunkline_message_partitions USING (partition)",
            *split_columns(keys, 2),
            self.process,
        )
        for position, recipient, state, count, content, epoch in rows:
            place = attempts_place(position, recipient)
            attempts = self.codec.decode_attempts(content, place)
            self._deliveries[position, recipient] = _Delivery(state, count, attempts, epoch)


def _message_key(message: NewMessage) -> tuple[str, str]:
    return message.account, message.envelope.envelope_id
