"""The form of messages and deliveries in Redis."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from trunkline.core.settings import MessagingSettings
from trunkline.messages.store import (
    DeliveryKey,
    DeliveryState,
    Envelope,
    EnvelopeFilter,
    NewMessage,
    QueuedDelivery,
    StoredEnvelope,
)
from trunkline.messages.stored_form import PENDING, RUNNING, Codec, StoredAttempts, add_delivery
from trunkline.v1 import envelope_pb2

PARTITIONS: Final = 16
"""The number of streams of deliveries, and so of processes that can share them. The number can't
change while deliveries wait."""


def key_prefix(settings: MessagingSettings) -> str:
    """Return the prefix of all keys as a hash tag, by which a cluster has all keys in one slot."""
    return f"{{{settings.stream}}}"


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """The state of a delivery. The time makes each write unique, so equal records are one write."""

    state: DeliveryState
    update_ns: int
    attempt_count: int = 0
    task_id: str = ""
    not_before: float = 0.0

    def encode(self) -> bytes:
        """Return the stored form of the record. Scripts read its first word."""
        words = (self.state, self.update_ns, self.attempt_count, self.not_before, self.task_id)
        return " ".join(map(str, words)).encode()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Return a stored record."""
        state, update_ns, count, not_before, task_id = content.decode().split(" ", 4)
        known = envelope_pb2.DeliveryState.Name(envelope_pb2.DeliveryState.ValueType(int(state)))
        return cls(
            envelope_pb2.DeliveryState.Value(known),
            int(update_ns),
            int(count),
            task_id,
            float(not_before),
        )

    @property
    def is_open(self) -> bool:
        """The delivery has not ended."""
        return self.state in (PENDING, RUNNING)


@dataclass(frozen=True, order=True, slots=True)
class PartitionGrant:
    """The right to write the deliveries of a partition, until its lease is lost."""

    partition: str
    lease: str
    """`OWNER:TOKEN`. Every script that writes compares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedDelivery(QueuedDelivery):
    """A delivery under a lease, without which nothing about the delivery can be written."""

    grant: PartitionGrant
    entry: str
    """The id of its entry in the stream."""
    record: bytes
    attempts: StoredAttempts = field(default=(), repr=False)


class RedisCodec(Codec):
    """Encodes messages with their deliveries."""

    def encode_message(self, message: NewMessage) -> list[bytes | str | int]:
        """Return a message as the arguments of a script."""
        envelope, account = message.envelope, message.account
        create_ns = envelope.create_time.ToNanoseconds()
        recipients = list(dict.fromkeys(message.recipients))
        indexes = index_names(account, envelope)
        arguments: list[bytes | str | int] = [
            account,
            envelope.envelope_id,
            message.caller,
            f"{create_ns / 1e6:.4f}",
            envelope.correlation_id,
            self.encode_envelope(envelope, message_place(account, envelope.envelope_id)),
            len(indexes),
            *indexes,
            len(recipients),
        ]
        record = DeliveryRecord(PENDING, create_ns).encode()
        for recipient in recipients:
            arguments += [recipient, *routing(account, recipient, envelope), record]
        return arguments

    def decode_message(self, position: int, fields: Mapping[bytes, bytes]) -> StoredEnvelope:
        """Return a message with its deliveries from the fields of its hash."""
        account, envelope_id = fields[b"a"].decode(), fields[b"u"].decode()
        stored = StoredEnvelope(account=account, caller=fields[b"c"].decode(), position=position)
        content = self.decode_envelope(fields[b"e"], message_place(account, envelope_id))
        stored.envelope.CopyFrom(content)
        for name in sorted(name for name in fields if name.startswith(b"d:")):
            recipient = name[2:].decode()
            record = DeliveryRecord.decode(fields[name])
            attempts = fields.get(b"h:" + name[2:], b"")
            add_delivery(
                stored,
                recipient,
                record.state,
                attempt_count=record.attempt_count,
                update_ns=record.update_ns,
                not_before=record.not_before,
                attempts=self.decode_attempts(
                    attempts, attempts_place(DeliveryKey(account, envelope_id, recipient))
                ),
            )
        return stored


def routing(account: str, recipient: str, envelope: Envelope) -> tuple[int, str, int]:
    """Return the partition of a delivery, its conversation there, and its priority.

    All deliveries of a conversation to one recipient are in one partition, and so in order.
    """
    names = (account, recipient, envelope.correlation_id)
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
    return int.from_bytes(digest, "big") % PARTITIONS, digest.hex(), priority


def index_names(account: str, envelope: Envelope) -> list[str]:
    """Return the names of the indexes that contain a message."""
    names = [f"a{account}", f"c{account}\0{envelope.correlation_id}"]
    if envelope.causation_id:
        names.append(f"u{account}\0{envelope.causation_id}")
    if envelope.room:
        names.append(f"o{account}\0{envelope.room}")
    return names


def best_index(account: str, query: EnvelopeFilter) -> str:
    """Return the smallest index that contains all messages that match a filter."""
    if query.causation_id:
        return f"u{account}\0{query.causation_id}"
    if query.correlation_id:
        return f"c{account}\0{query.correlation_id}"
    if query.room:
        return f"o{account}\0{query.room}"
    return f"a{account}"


def message_place(account: str, envelope_id: str) -> str:
    """Return the place of a message, to which its ciphertext is bound."""
    return f"message {account}\0{envelope_id}"


def attempts_place(key: DeliveryKey) -> str:
    """Return the place of the attempts of a delivery, to which their ciphertext is bound."""
    return f"attempts {key.account}\0{key.envelope_id}\0{key.recipient}"
