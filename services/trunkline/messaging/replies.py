"""The replies to a message, completed by what follows from it."""

from collections.abc import Sequence

from trunkline.messaging.store import DeliveryKey, Envelope


def complete_replies(
    replies: Sequence[Envelope], envelope: Envelope, key: DeliveryKey
) -> Sequence[Envelope]:
    """Complete the replies of a recipient by ids, the conversation and the way back; return them.

    Ids are derived from the delivery, so that a repeated one gives the same replies.
    """
    for number, reply in enumerate(replies, start=1):
        reply.envelope_id = f"{key.envelope_id}.{key.recipient}.{number}"[-128:]
        reply.causation_id = envelope.envelope_id
        reply.correlation_id = envelope.correlation_id
        reply.recipient = reply.recipient or envelope.sender
        reply.room = reply.room or envelope.room
        reply.is_reply = True
        if not reply.priority:
            reply.priority = envelope.priority
    return replies
