"""The stored form of messages and deliveries, and the rules of accepting them, of all stores."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trunkline.core.encryption import Cipher
from trunkline.errors import InvalidArgumentError
from trunkline.messages.store import (
    DeliveryState,
    Envelope,
    EnvelopeFilter,
    NewMessage,
    Room,
    StoredEnvelope,
)
from trunkline.v1 import envelope_pb2, messaging_service_pb2

PENDING: Final = envelope_pb2.DELIVERY_STATE_PENDING
RUNNING: Final = envelope_pb2.DELIVERY_STATE_RUNNING
DEAD: Final = envelope_pb2.DELIVERY_STATE_DEAD
AGENTS_LIMIT: Final = 10_000
"""The number of agents that a store remembers."""
DEDUPLICATION_S: Final = 24 * 3600
"""The time for which the id of a message can't be used for another message."""
_STORED_ATTEMPTS: Final = 20
_NANO: Final = 10**9


class StoredAttempt(NamedTuple):
    """An attempt to deliver a message."""

    task_id: str
    start_ns: int
    end_ns: int | None
    problem: str
    traceparent: str = ""


StoredAttempts: TypeAlias = tuple[StoredAttempt, ...]


def end_attempt(attempts: StoredAttempts, problem: str, now_ns: int) -> StoredAttempts:
    """End the last attempt. A delivery that ends with a problem has at least one attempt."""
    if attempts and attempts[-1].end_ns is None:
        return (*attempts[:-1], attempts[-1]._replace(end_ns=now_ns, problem=problem))
    return (*attempts, StoredAttempt("", now_ns, now_ns, problem)) if problem else attempts


class Codec:
    """Encodes messages and attempts, and encrypts them if there is a cipher.

    The cipher binds each content to its place, so that contents can't be exchanged.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher

    def encode_envelope(self, envelope: Envelope, place: str) -> bytes:
        """Return the stored form of a message."""
        return self._encrypt(envelope.SerializeToString(), place)

    def decode_envelope(self, content: bytes, place: str) -> Envelope:
        """Return a stored message."""
        return Envelope.FromString(self._decrypt(content, place))

    def encode_attempts(self, attempts: StoredAttempts, place: str) -> bytes:
        """Return the stored form of the newest attempts of a delivery."""
        content = json.dumps(attempts[-_STORED_ATTEMPTS:], ensure_ascii=False)
        return self._encrypt(content.encode(), place)

    def decode_attempts(self, content: bytes, place: str) -> StoredAttempts:
        """Return the stored attempts of a delivery."""
        if not content:
            return ()
        stored = json.loads(self._decrypt(content, place))
        return tuple(StoredAttempt(*fields) for fields in stored)

    def _encrypt(self, content: bytes, place: str) -> bytes:
        return content if self._cipher is None else self._cipher.encrypt(content, place)

    def _decrypt(self, content: bytes, place: str) -> bytes:
        return content if self._cipher is None else self._cipher.decrypt(content, place)


def build_accepted(message: NewMessage, position: int) -> StoredEnvelope:
    """Return a message that was just accepted."""
    stored = StoredEnvelope(
        envelope=message.envelope,
        position=position,
        account=message.account,
        caller=message.caller,
    )
    for recipient in dict.fromkeys(message.recipients):
        delivery = stored.deliveries.add(recipient=recipient, state=PENDING)
        delivery.update_time.CopyFrom(message.envelope.create_time)
    return stored


def add_delivery(  # noqa: PLR0913  the stored fields of a delivery
    stored: StoredEnvelope,
    recipient: str,
    state: DeliveryState,
    *,
    attempt_count: int,
    update_ns: int,
    not_before: float,
    attempts: StoredAttempts,
) -> None:
    """Add a delivery to a message that is read."""
    delivery = stored.deliveries.add(recipient=recipient, state=state, attempt_count=attempt_count)
    delivery.update_time.FromNanoseconds(update_ns)
    if not_before:
        delivery.next_attempt_time.FromNanoseconds(int(not_before * _NANO))
    for attempt in attempts:
        added = delivery.attempts.add(task_id=attempt.task_id, problem=attempt.problem)
        added.start_time.FromNanoseconds(attempt.start_ns)
        if attempt.end_ns is not None:
            added.end_time.FromNanoseconds(attempt.end_ns)


def check_repetition(stored: Envelope, repeated: Envelope) -> None:
    """Check that a message that has the id of a stored message is the same message.

    Raises:
        InvalidArgumentError: the messages differ.
    """
    if stored is not repeated and _content(stored) != _content(repeated):
        problem = f"{repeated.envelope_id!r} was used for another message; choose a new one"
        raise InvalidArgumentError("envelope_id", problem)


def _content(envelope: Envelope) -> Envelope:
    """Return a message without the fields that a sender may set anew when it repeats it."""
    content = Envelope()
    content.CopyFrom(envelope)
    for name in ("create_time", "traceparent", "expire_time", "correlation_id"):
        content.ClearField(name)
    return content


def deleted_id_error(envelope_id: str) -> InvalidArgumentError:
    """Return the error for the id of a message that was deleted within the last 24 hours."""
    problem = f"{envelope_id!r} was used for a deleted message; choose a new one"
    return InvalidArgumentError("envelope_id", problem)


def dead_letters(query: EnvelopeFilter) -> EnvelopeFilter:
    """Return a filter for the dead letters among the messages that match a filter."""
    dead = EnvelopeFilter()
    dead.CopyFrom(query)
    dead.ClearField("states")
    dead.states.append(DEAD)
    return dead


def list_dead_recipients(stored: StoredEnvelope, query: EnvelopeFilter) -> Sequence[str]:
    """Return the recipients that match a filter and for whom a message is a dead letter."""
    return [
        delivery.recipient
        for delivery in stored.deliveries
        if delivery.state == DEAD
        and query.recipient in ("", stored.envelope.recipient, delivery.recipient)
    ]


def build_room(name: str, join_times_ns: Mapping[str, int]) -> Room:
    """Return a room from its members and the times at which they joined."""
    room = messaging_service_pb2.Room(name=name, members=sorted(join_times_ns))
    if join_times_ns:
        room.create_time.FromNanoseconds(min(join_times_ns.values()))
    return room
