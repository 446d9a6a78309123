"""Messages between agents: their types, queries, mutations and subscription."""

from collections.abc import AsyncGenerator
from datetime import datetime
from enum import Enum
from typing import Final

import strawberry
from pydantic.alias_generators import to_camel
from strawberry.scalars import JSON

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_values import struct_json
from trunkline.messages.store import Envelope, EnvelopeFilter, StoredEnvelope
from trunkline.v1 import envelope_pb2
from trunkline_bridge.a2a.operations.request_parser import parse_message
from trunkline_bridge.api.graphql.context import DEFAULT_PAGE_SIZE, Info, to_time
from trunkline_bridge.api.graphql.declarations import field, input_type, object_type, subscription
from trunkline_bridge.api.messages.http import parse_envelope, parse_position

_STATE: Final = "DELIVERY_STATE_"
_PRIORITY: Final = "ENVELOPE_PRIORITY_"


@strawberry.enum(name="DeliveryState", description="The state of a delivery.")
class DeliveryStateName(Enum):
    """The states of a delivery, by their names in the contract."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    HANDLED = "HANDLED"
    DEAD = "DEAD"
    EXPIRED = "EXPIRED"
    CANCELED = "CANCELED"


@strawberry.enum(name="MessagePriority", description="How urgent a message is.")
class PriorityName(Enum):
    """The priorities of a message, by their names in the contract."""

    LOW = "LOW"
    NORMAL = "NORMAL"
    HIGH = "HIGH"


@object_type(name="DeliveryAttempt")
class AttemptNode:
    """An attempt to deliver a message: a task of its recipient."""

    task_id: strawberry.ID
    start_time: datetime | None
    end_time: datetime | None
    problem: str

    @staticmethod
    def build(attempt: envelope_pb2.DeliveryAttempt) -> "AttemptNode":
        """Return an attempt."""
        return AttemptNode(
            task_id=strawberry.ID(attempt.task_id),
            start_time=to_time(attempt.start_time),
            end_time=to_time(attempt.end_time),
            problem=attempt.problem,
        )


@object_type(name="Delivery")
class DeliveryNode:
    """The way of a message to one recipient. Its attempts are at most the newest 20."""

    recipient: str
    state: DeliveryStateName
    attempts: list[AttemptNode]
    attempt_count: int
    next_attempt_time: datetime | None
    update_time: datetime | None

    @staticmethod
    def build(delivery: envelope_pb2.Delivery) -> "DeliveryNode":
        """Return a delivery."""
        state = envelope_pb2.DeliveryState.Name(delivery.state).removeprefix(_STATE)
        return DeliveryNode(
            recipient=delivery.recipient,
            state=DeliveryStateName(state),
            attempts=[AttemptNode.build(attempt) for attempt in delivery.attempts],
            attempt_count=delivery.attempt_count,
            next_attempt_time=to_time(delivery.next_attempt_time),
            update_time=to_time(delivery.update_time),
        )


@object_type(name="Message")
class MessageNode:
    """A message between agents. Its payload is `text` or `data`."""

    id: strawberry.ID
    correlation_id: str
    causation_id: str
    sender: str
    recipient: str
    room: str
    type: str
    type_version: int
    text: str | None
    data: JSON | None
    metadata: JSON
    priority: PriorityName
    create_time: datetime | None
    expire_time: datetime | None
    traceparent: str
    replay_of: str
    is_reply: bool
    hop_count: int
    deliveries: list[DeliveryNode]

    @staticmethod
    def build(envelope: Envelope, stored: StoredEnvelope | None = None) -> "MessageNode":
        """Return a message, with its deliveries if it is a stored one."""
        payload = envelope.WhichOneof("payload")
        priority = envelope_pb2.EnvelopePriority.Name(envelope.priority).removeprefix(_PRIORITY)
        return MessageNode(
            id=strawberry.ID(envelope.envelope_id),
            correlation_id=envelope.correlation_id,
            causation_id=envelope.causation_id,
            sender=envelope.sender,
            recipient=envelope.recipient,
            room=envelope.room,
            type=envelope.type,
            type_version=envelope.type_version,
            text=envelope.text if payload == "text" else None,
            data=JSON(struct_json(envelope.data)) if payload == "data" else None,
            metadata=JSON(struct_json(envelope.metadata)),
            priority=PriorityName(priority.replace("UNSPECIFIED", "NORMAL")),
            create_time=to_time(envelope.create_time),
            expire_time=to_time(envelope.expire_time),
            traceparent=envelope.traceparent,
            replay_of=envelope.replay_of,
            is_reply=envelope.is_reply,
            hop_count=envelope.hop_count,
            deliveries=[DeliveryNode.build(found) for found in stored.deliveries] if stored else [],
        )

    @staticmethod
    def of_stored(stored: StoredEnvelope) -> "MessageNode":
        """Return a stored message."""
        return MessageNode.build(stored.envelope, stored)

    @field
    async def replies(
        self, info: Info, first: int = DEFAULT_PAGE_SIZE, after: str | None = None
    ) -> "MessageNodePage":
        """Return the messages that answer this one or were sent for it, newest first."""
        query = EnvelopeFilter(causation_id=self.id)
        return await MessageNodePage.read(info, query, first, after)


@object_type(name="MessagePage")
class MessageNodePage:
    """A page of messages, newest first. `endCursor` is the `after` of the next page, if any."""

    nodes: list[MessageNode]
    end_cursor: str | None

    @staticmethod
    async def read(
        info: Info, query: EnvelopeFilter, first: int, after: str | None
    ) -> "MessageNodePage":
        """Return a page of the messages that match."""
        context = info.context
        page = await context.call(
            context.messages.read_page,
            query,
            page_size=context.check_page_size(first),
            page_token=after or "",
        )
        nodes = [MessageNode.of_stored(stored) for stored in page.envelopes]
        return MessageNodePage(nodes=nodes, end_cursor=page.next_page_token or None)


@object_type(name="MessageEvent")
class MessageEvent:
    """A message that was accepted, or one of whose deliveries ended.

    `cursor` is the `after` by which another subscription continues. Without a message, it says only
    that: the first event does, if nothing matches yet.
    """

    cursor: str
    message: MessageNode | None


@input_type(name="MessageFilter")
class MessageFilterInput:
    """A filter of messages. All conditions hold."""

    id: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    room: str = ""
    type: str = ""
    participant: str = ""
    """From or to this agent or user."""
    recipient: str = ""
    states: list[DeliveryStateName] = strawberry.field(default_factory=list)
    """With a delivery in one of these states."""
    start_time: datetime | None = None
    end_time: datetime | None = None

    def build(self) -> EnvelopeFilter:
        """Return the filter of the contract. WireError: a value is wrong."""
        states = [f"{_STATE}{state.value}" for state in self.states]
        return parse_message({**_to_json(self), "states": states}, message_type=EnvelopeFilter)


@input_type(name="MessageInput")
class MessageInput:
    """A message to send: to an agent, `all`, `room:NAME`, `user:NAME`, or `broadcast` in a room.

    Give `text` or `data`, an object. Repeating an `id` within 24 hours sends nothing again.
    """

    recipient: str = ""
    id: str = ""
    type: str = "user_message"
    type_version: int = 0
    text: str | None = None
    data: JSON | None = None
    room: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    metadata: JSON | None = None
    priority: PriorityName = PriorityName.NORMAL
    expire_time: datetime | None = None

    def build(self) -> Envelope:
        """Return the message. WireError: a value is wrong."""
        fields = _to_json(self)
        return parse_envelope({**fields, "priority": f"{_PRIORITY}{self.priority.value}"})


def _to_json(declared: "MessageFilterInput | MessageInput") -> Json:
    """Return the fields of an input that are set, by their names in the contract."""
    found: Json = {}
    for attribute, value in vars(declared).items():
        name = "envelopeId" if attribute == "id" else to_camel(attribute)
        # An empty text is a payload.
        if value is not None and (value != "" or attribute == "text"):
            found[name] = value
        if isinstance(value, datetime):
            # A time without a zone is UTC, as in the contract.
            found[name] = value.isoformat() if value.tzinfo else f"{value.isoformat()}Z"
    return found


@object_type(name="MessageQueries")
class MessageQueries:
    """Queries of messages."""

    @field
    async def message(self, info: Info, id: strawberry.ID) -> MessageNode:  # noqa: A002
        """Return a message."""
        context = info.context
        found = await context.call(context.messages.get, id)
        return MessageNode.of_stored(found)

    @field
    async def messages(
        self,
        info: Info,
        filter: MessageFilterInput | None = None,  # noqa: A002
        first: int = DEFAULT_PAGE_SIZE,
        after: str | None = None,
    ) -> MessageNodePage:
        """Return the messages that match, newest first."""
        return await MessageNodePage.read(info, _build(filter), first, after)

    @field
    async def dead_letters(
        self,
        info: Info,
        filter: MessageFilterInput | None = None,  # noqa: A002
        first: int = DEFAULT_PAGE_SIZE,
        after: str | None = None,
    ) -> MessageNodePage:
        """Return the messages with a delivery that was given up, newest first."""
        query = _build(filter)
        query.ClearField("states")
        query.states.append(envelope_pb2.DELIVERY_STATE_DEAD)
        return await MessageNodePage.read(info, query, first, after)


@object_type(name="MessageMutations")
class MessageMutations:
    """Mutations of messages."""

    @field
    async def send_messages(self, info: Info, messages: list[MessageInput]) -> list[MessageNode]:
        """Send messages, all or none. They are stored when the mutation returns."""
        return await _send(info, [message.build() for message in messages])

    @field
    async def send_message(self, info: Info, message: MessageInput) -> MessageNode:
        """Send a message. It is stored when the mutation returns."""
        (sent,) = await _send(info, [message.build()])
        return sent

    @field
    async def publish(self, info: Info, room: str, message: MessageInput) -> MessageNode:
        """Send a message to the members of a room, and to its listeners."""
        envelope = message.build()
        envelope.recipient = f"room:{room}"
        (sent,) = await _send(info, [envelope])
        return sent

    @field
    async def request(
        self, info: Info, message: MessageInput, timeout_seconds: float | None = None
    ) -> MessageNode:
        """Send a message and return the first reply to it.

        After the time the message stays, and may be answered later.
        """
        context = info.context
        # The deadline of the operation would hide the error that names the message.
        limit_s = context.remaining_s * 0.95
        wait_s = limit_s if timeout_seconds is None else min(timeout_seconds, limit_s)
        if not wait_s > 0:
            raise invalid_params(("timeoutSeconds", "must be above 0"))
        reply = await context.call(context.messages.request, message.build(), timeout_s=wait_s)
        return MessageNode.build(reply)

    @field
    async def reply(self, info: Info, to: strawberry.ID, message: MessageInput) -> MessageNode:
        """Answer a message that the caller, or a room of the caller, got."""
        context = info.context
        answered = await context.call(context.messages.get, to)
        cause = answered.envelope
        envelope = message.build()
        envelope.recipient = envelope.recipient or cause.sender
        envelope.causation_id, envelope.is_reply = cause.envelope_id, True
        (sent,) = await _send(info, [envelope])
        return sent

    @field
    async def replay_messages(
        self,
        info: Info,
        filter: MessageFilterInput,  # noqa: A002
        recipient: str = "",
        dry_run: bool = False,  # noqa: FBT001, FBT002  an argument of GraphQL
    ) -> list[strawberry.ID]:
        """Send messages again, to their recipients or to another one; return the new ids.

        A dry run returns the ids of the messages that it would send again.
        """
        context = info.context
        ids = await context.call(
            context.messages.replay, filter.build(), recipient=recipient, dry_run=dry_run
        )
        return [strawberry.ID(found) for found in ids]

    @field
    async def redrive_dead_letters(
        self,
        info: Info,
        filter: MessageFilterInput,  # noqa: A002
    ) -> int:
        """Deliver dead letters again; return the number of deliveries."""
        context = info.context
        return await context.call(context.messages.redrive, filter.build())

    @field
    async def purge_messages(
        self,
        info: Info,
        filter: MessageFilterInput,  # noqa: A002
    ) -> int:
        """Delete messages whose deliveries have ended; return their number."""
        context = info.context
        return await context.call(context.messages.purge, filter.build())


@object_type(name="MessageSubscriptions")
class MessageSubscriptions:
    """Subscriptions to messages."""

    @subscription
    async def messages(
        self,
        info: Info,
        filter: MessageFilterInput | None = None,  # noqa: A002
        after: str | None = None,
        with_deliveries: bool = False,  # noqa: FBT001, FBT002  an argument of GraphQL
    ) -> AsyncGenerator[MessageEvent, None]:
        """Yield the messages that match as they are accepted, after a cursor or from now on.

        `after: "0"` begins with the oldest. With `withDeliveries`, a message comes again when one
        of its deliveries ends.
        """
        context = info.context
        start = None if after is None else parse_position(after, field="after")
        stream = context.mesh.messages.watch(
            context.caller,
            _build(filter),
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
                        yield MessageEvent(cursor=str(position), message=message)
                    if update.position > position:
                        position = update.position
                        yield MessageEvent(cursor=str(position), message=None)


def _build(declared: MessageFilterInput | None) -> EnvelopeFilter:
    return EnvelopeFilter() if declared is None else declared.build()


async def _send(info: Info, envelopes: list[Envelope]) -> list[MessageNode]:
    context = info.context
    sent = await context.call(context.messages.send, envelopes)
    return [MessageNode.of_stored(stored) for stored in sent]
