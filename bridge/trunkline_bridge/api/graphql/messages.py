"""Messages between agents: their queries, mutations and subscription."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.messages.store import Envelope, EnvelopeFilter, StoredEnvelope
from trunkline.v1 import envelope_pb2
from trunkline_bridge.a2a.operations.request_parser import parse_message
from trunkline_bridge.api.graphql.context import OperationContext
from trunkline_bridge.api.graphql.fields import Node
from trunkline_bridge.api.messages.http import parse_envelope, parse_position


class MessageNode(Node):
    """A message between agents, with its deliveries if it is a stored one."""

    def __init__(self, envelope: Envelope, deliveries: Sequence[envelope_pb2.Delivery]) -> None:
        super().__init__(envelope)
        self.id: str = envelope.envelope_id
        self.priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
        self.deliveries = deliveries

    @staticmethod
    def of_stored(stored: StoredEnvelope) -> "MessageNode":
        """Return a stored message."""
        return MessageNode(stored.envelope, stored.deliveries)

    async def replies(
        self, context: OperationContext, first: int, after: str | None
    ) -> dict[str, Any]:
        """Return the messages that answer this one or were sent for it, newest first."""
        return await read_messages(context, EnvelopeFilter(causation_id=self.id), first, after)


async def read_messages(
    context: OperationContext, query: EnvelopeFilter, first: int, after: str | None
) -> dict[str, Any]:
    """Return a page of the messages that match, newest first."""
    page = await context.call(
        context.messages.read_page,
        query,
        page_size=context.check_page_size(first),
        page_token=after or "",
    )
    return {
        "nodes": list(map(MessageNode.of_stored, page.envelopes)),
        "end_cursor": page.next_page_token or None,
    }


class MessageQueries:
    """Queries of messages."""

    async def message(self, context: OperationContext, id: str) -> MessageNode:  # noqa: A002
        """Return a message."""
        return MessageNode.of_stored(await context.call(context.messages.get, id))

    async def messages(
        self,
        context: OperationContext,
        filter: Json | None,  # noqa: A002  an argument of the schema
        first: int,
        after: str | None,
    ) -> dict[str, Any]:
        """Return the messages that match, newest first."""
        return await read_messages(context, _parse_filter(filter), first, after)

    async def dead_letters(
        self,
        context: OperationContext,
        filter: Json | None,  # noqa: A002  an argument of the schema
        first: int,
        after: str | None,
    ) -> dict[str, Any]:
        """Return the messages with a delivery that was given up, newest first."""
        query = _parse_filter(filter)
        query.ClearField("states")
        query.states.append(envelope_pb2.DELIVERY_STATE_DEAD)
        return await read_messages(context, query, first, after)


class MessageMutations:
    """Mutations of messages."""

    async def send_messages(
        self, context: OperationContext, messages: Sequence[Json]
    ) -> list[MessageNode]:
        """Send messages, all or none. They are stored when the mutation returns."""
        sent = await context.call(context.messages.send, list(map(_parse_message, messages)))
        return list(map(MessageNode.of_stored, sent))

    async def send_message(self, context: OperationContext, message: Json) -> MessageNode:
        """Send a message. It is stored when the mutation returns."""
        return await _send(context, _parse_message(message))

    async def publish(self, context: OperationContext, room: str, message: Json) -> MessageNode:
        """Send a message to the members of a room, and to its listeners."""
        envelope = _parse_message(message)
        envelope.recipient = f"room:{room}"
        return await _send(context, envelope)

    async def request(
        self, context: OperationContext, message: Json, timeout_seconds: float | None
    ) -> MessageNode:
        """Send a message and return the first reply to it.

        After the time the message stays, and may be answered later.
        """
        # The deadline of the operation would hide the error that names the message.
        limit_s = context.remaining_s * 0.95
        wait_s = limit_s if timeout_seconds is None else min(timeout_seconds, limit_s)
        if not wait_s > 0:
            raise invalid_params(("timeoutSeconds", "must be above 0"))
        envelope = _parse_message(message)
        reply = await context.call(context.messages.request, envelope, timeout_s=wait_s)
        return MessageNode(reply, ())

    async def reply(self, context: OperationContext, to: str, message: Json) -> MessageNode:
        """Answer a message that the caller, or a room of the caller, got."""
        cause = (await context.call(context.messages.get, to)).envelope
        envelope = _parse_message(message)
        envelope.recipient = envelope.recipient or cause.sender
        envelope.causation_id, envelope.is_reply = cause.envelope_id, True
        return await _send(context, envelope)

    async def replay_messages(
        self,
        context: OperationContext,
        filter: Json,  # noqa: A002  an argument of the schema
        recipient: str,
        dry_run: bool,  # noqa: FBT001  an argument of the schema
    ) -> list[str]:
        """Send messages again, to their recipients or to another one; return the new ids.

        A dry run returns the ids of the messages that it would send again.
        """
        query = _parse_filter(filter)
        return await context.call(
            context.messages.replay, query, recipient=recipient, dry_run=dry_run
        )

    async def redrive_dead_letters(
        self,
        context: OperationContext,
        filter: Json,  # noqa: A002  an argument of the schema
    ) -> int:
        """Deliver dead letters again; return the number of deliveries."""
        return await context.call(context.messages.redrive, _parse_filter(filter))

    async def purge_messages(
        self,
        context: OperationContext,
        filter: Json,  # noqa: A002  an argument of the schema
    ) -> int:
        """Delete messages whose deliveries have ended; return their number."""
        return await context.call(context.messages.purge, _parse_filter(filter))


class MessageSubscriptions:
    """Subscriptions to messages."""

    async def messages(
        self,
        context: OperationContext,
        filter: Json | None,  # noqa: A002  an argument of the schema
        after: str | None,
        with_deliveries: bool,  # noqa: FBT001  an argument of the schema
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the messages that match as they are accepted, after a cursor or from now on."""
        start = None if after is None else parse_position(after, field="after")
        stream = context.messages.watch(
            context.caller,
            _parse_filter(filter),
            after_position=start,
            with_deliveries=with_deliveries,
        )
        async with stream as updates:
            position = -1
            async for batch in updates:
                for update in batch:
                    for stored in update.envelopes:
                        # A message that changed has an earlier position.
                        position = max(position, stored.position, start or 0)
                        message = MessageNode.of_stored(stored)
                        yield {"cursor": str(position), "message": message}
                    if update.position > position:
                        position = update.position
                        yield {"cursor": str(position), "message": None}


async def _send(context: OperationContext, envelope: Envelope) -> MessageNode:
    (sent,) = await context.call(context.messages.send, [envelope])
    return MessageNode.of_stored(sent)


def _parse_message(fields: Json) -> Envelope:
    """Return a message that is sent. WireError: a value is wrong."""
    return parse_envelope(_set_fields(fields))


def _parse_filter(fields: Json | None) -> EnvelopeFilter:
    """Return the filter of the contract. WireError: a value is wrong."""
    return parse_message(_set_fields(fields or {}), message_type=EnvelopeFilter)


def _set_fields(fields: Json) -> Json:
    """Return the fields of an input that are set, by their names in the contract."""
    return {
        "envelopeId" if name == "id" else name: value
        for name, value in fields.items()
        # An empty text is a payload.
        if value is not None and (value != "" or name == "text")
    }
