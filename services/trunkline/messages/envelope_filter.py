"""Filters of messages."""

from trunkline.errors import InvalidArgumentError
from trunkline.messages.store import EnvelopeFilter, StoredEnvelope


def matches(stored: StoredEnvelope, query: EnvelopeFilter) -> bool:
    """Return whether a message fulfils all conditions of a filter."""
    envelope = stored.envelope
    recipients = {envelope.recipient, *(delivery.recipient for delivery in stored.deliveries)}
    equal = (
        (query.envelope_id, envelope.envelope_id),
        (query.correlation_id, envelope.correlation_id),
        (query.causation_id, envelope.causation_id),
        (query.room, envelope.room),
        (query.type, envelope.type),
    )
    if any(wanted and wanted != value for wanted, value in equal):
        return False
    if query.recipient and query.recipient not in recipients:
        return False
    if query.participant and query.participant not in {envelope.sender, *recipients}:
        return False
    if query.states and not any(d.state in query.states for d in stored.deliveries):
        return False
    created = envelope.create_time.ToNanoseconds()
    if query.HasField("start_time") and created < query.start_time.ToNanoseconds():
        return False
    return not query.HasField("end_time") or created < query.end_time.ToNanoseconds()


def require_condition(query: EnvelopeFilter) -> None:
    """Check that a filter has a condition, because all messages of an account are rarely meant.

    Raises:
        InvalidArgumentError: it has none.
    """
    if not query.ByteSize():
        raise InvalidArgumentError("filter", "is empty; give at least one condition")
