"""The interface of a message store, which stores in a file, in PostgreSQL and in Redis implement.

A store holds messages, their deliveries and the rooms. The dispatcher
(`trunkline.messages.dispatcher`) reads deliveries from the store, runs them as tasks of their
recipients, and stores how they ended. Each store has to pass
`tests/contract/test_message_store.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from trunkline.v1 import envelope_pb2, messaging_service_pb2

Envelope: TypeAlias = envelope_pb2.Envelope
StoredEnvelope: TypeAlias = envelope_pb2.StoredEnvelope
EnvelopeFilter: TypeAlias = messaging_service_pb2.EnvelopeFilter
DeliveryState: TypeAlias = envelope_pb2.DeliveryState.ValueType
Room: TypeAlias = messaging_service_pb2.Room

PREFETCH: Final = 256
"""The number of deliveries to one recipient of one priority that a dispatcher has at once."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A checked message, and the agents that get it."""

    account: str
    envelope: Envelope
    """With id, correlation id, sender and create time."""
    caller: str = ""
    """The user for whom the message is sent."""
    recipients: Sequence[str] = ()
    """Agents, each once. Empty for a message that users read."""


@dataclass(frozen=True, slots=True)
class DeliveryKey:
    """Identifies a delivery."""

    account: str
    envelope_id: str
    recipient: str


@dataclass(frozen=True, slots=True)
class QueuedDelivery:
    """A delivery that has not ended."""

    key: DeliveryKey
    position: int
    """The position of the message. Deliveries of one conversation to one recipient are made in the
    order of positions."""
    envelope: Envelope = field(repr=False)
    caller: str = ""
    """The user for whom the message was sent."""
    attempt_count: int = 0
    task_id: str = ""
    """The task of an unfinished attempt, for example of a dispatcher that was killed. The task is
    followed, or submitted under the same id. Without such an attempt, this is empty."""
    not_before: float = 0.0
    """The earliest time of the next attempt, in seconds since the epoch."""
    previous_traceparent: str = ""
    """The span of the previous attempt as a `traceparent`, or "" without a previous attempt."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of messages, newest first, and the token of the next page, or "" on the last page."""

    messages: Sequence[StoredEnvelope]
    next_page_token: str


class MessageStore(Protocol):
    """Holds messages, deliveries and rooms. Everything is durable when a call returns.

    Every method may raise JournalUnavailableError or PeerUnavailableError. Then nothing is stored.
    """

    @property
    def mode(self) -> str:
        """The mode: `local`, `database` or `distributed`."""

    async def accept(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        """Store messages and their deliveries, all or none, in one order.

        If the account used the id of a message within the last 24 hours, the message is not stored
        again, and the result contains the stored message.

        Raises:
            OverloadedError: too many deliveries wait.
            InvalidArgumentError: an id was used for a message with other content.
        """

    # Deliveries. Only the dispatcher calls these.

    def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries that this process has to make, each once, in order of positions.

        The first batches contain the open deliveries of earlier processes. In the modes `database`
        and `distributed`, processes share the conversations. If a process is gone, another process
        gets its conversations. The number of deliveries in flight is bounded for each recipient and
        priority, so that an agent that is slow or away delays no other agent, and no urgent
        message.
        """

    async def begin_attempt(
        self, delivery: QueuedDelivery, task_id: str, *, traceparent: str = ""
    ) -> QueuedDelivery:
        """Store the task of a new attempt before it is submitted; return the changed delivery.

        `traceparent` is the span of the attempt. The next attempt gets it as the previous span,
        also after `redrive`.

        Raises:
            FencedError: another process makes this delivery, or the delivery has ended.
        """

    async def postpone(
        self,
        delivery: QueuedDelivery,
        *,
        problem: str,
        not_before: float,
        is_failure: bool = True,
    ) -> QueuedDelivery:
        """Store that an attempt failed, and the time of the next. Raises as `begin_attempt`.

        Without `is_failure`, the recipient was away or had no capacity. Then an unfinished attempt
        is removed and does not count.
        """

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """End a delivery and accept the replies of its recipient, in one step.

        Raises as `begin_attempt`. A repeated call also raises, and changes nothing.
        """

    # Reading.

    async def get(self, account: str, envelope_id: str) -> StoredEnvelope:
        """Return a message with its deliveries.

        Raises:
            EnvelopeNotFoundError: the account has no message with this id.
        """

    async def read_page(
        self, account: str, query: EnvelopeFilter, *, page_size: int, page_token: str = ""
    ) -> MessagePage:
        """Return a page of the messages that match.

        Raises:
            InvalidArgumentError: the token is not from this account and filter.
        """

    def watch(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[tuple[Sequence[StoredEnvelope], int], None]:
        """Yield messages that match, and the position to continue from; never ends.

        The first batch comes at once, and may be empty. Readers are cursors, so a slow reader costs
        no memory. With `with_deliveries` a message comes again when one of its deliveries ends.
        """

    # Operations.

    async def redrive(self, account: str, query: EnvelopeFilter) -> int:
        """Make dead letters pending again, from their first attempt; return their number."""

    async def purge(self, account: str, query: EnvelopeFilter) -> int:
        """Delete the messages that match and whose deliveries have ended; return their number."""

    async def remove_old(self, *, before: float) -> int:
        """Delete messages of all accounts whose deliveries have ended; return their number.

        Only messages that were accepted before `before`, in seconds since the epoch, are deleted.
        """

    # Agents that were on the mesh: messages to them wait until they are back.

    async def add_agents(self, names: Collection[str]) -> None:
        """Note that agents are on the mesh. The newest 10,000 are remembered."""

    async def list_agents(self) -> Set[str]:
        """Return the agents that were noted."""

    # Rooms.

    async def join(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Add a member; return the room. A new member's `notice` is accepted in the same step."""

    async def leave(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Remove a member; return the room. A member's `notice` is accepted in the same step."""

    async def get_room(self, account: str, room: str) -> Room:
        """Return a room. A room that nobody joined has no members."""

    async def list_rooms(self, account: str) -> list[Room]:
        """Return the rooms that have members, sorted by name."""
