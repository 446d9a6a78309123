"""Accepts messages: checks and completes them, and finds the agents that get them."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from trunkline import telemetry
from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.client import Directory
from trunkline.errors import AgentNotFoundError, InvalidArgumentError
from trunkline.messaging import addresses
from trunkline.messaging.middleware import Middleware
from trunkline.messaging.store import Envelope, MessageStore, NewMessage, Room, StoredEnvelope
from trunkline.messaging.types import MessageTypes, SystemMessage
from trunkline.v1 import envelope_pb2, registry_service_pb2

MAX_ENVELOPES: Final = 1000
"""The number of messages that are accepted at once."""
_PAYLOAD_LIMIT_BYTES: Final = 256 * 1024
_HOP_LIMIT: Final = 64
_ID_LIMIT: Final = 128


@dataclass(frozen=True, slots=True)
class Sender:
    """Whoever sends: a user of an account, or an agent that works for one."""

    account: str
    caller: str = ""
    agent: str = ""

    @property
    def address(self) -> str:
        """The name in `Envelope.sender`."""
        return self.agent or addresses.user_address(self.caller)


class MessageBroker:
    """Accepts the messages of a mesh into its store."""

    def __init__(
        self,
        store: MessageStore,
        directory: Directory,
        types: MessageTypes,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.store = store
        self._directory = directory
        self._types = types
        self._middleware = middleware

    async def send(
        self,
        sender: Sender,
        envelopes: Sequence[Envelope],
        *,
        cause: Envelope | None = None,
        on_behalf_of: str = "",
    ) -> list[StoredEnvelope]:
        """Accept messages, all or none. `cause` is the message that the sender handles now.

        A replayed message stays one of the sender that it is sent `on_behalf_of`.

        Raises:
            InvalidArgumentError: a message is wrong; the error names its number and field.
            AgentNotFoundError: there is no such recipient.
            QueueFullError: too many deliveries wait.
        """
        if not 0 < len(envelopes) <= MAX_ENVELOPES:
            raise InvalidArgumentError("envelopes", f"give 1 to {MAX_ENVELOPES} messages")
        messages = [
            await self.prepare(
                sender,
                envelope,
                cause=cause,
                on_behalf_of=on_behalf_of,
                field=f"envelopes[{index}]",
            )
            for index, envelope in enumerate(envelopes)
        ]
        return await self.store.accept(messages)

    async def prepare(
        self,
        sender: Sender,
        envelope: Envelope,
        *,
        cause: Envelope | None,
        on_behalf_of: str = "",
        field: str = "envelope",
    ) -> NewMessage:
        """Return a message, checked and completed; raises what `send` raises."""
        prepared = Envelope()
        prepared.CopyFrom(envelope)
        prepared.sender = on_behalf_of or sender.address
        prepared.envelope_id = envelope.envelope_id or str(uuid.uuid4())
        prepared.create_time.FromDatetime(datetime.now(UTC))
        prepared.hop_count = 0
        prepared.traceparent = telemetry.current_traceparent() or envelope.traceparent
        if cause is not None:
            prepared.causation_id = envelope.causation_id or cause.envelope_id
            prepared.correlation_id = envelope.correlation_id or cause.correlation_id
            prepared.room = envelope.room or cause.room
            prepared.hop_count = cause.hop_count + 1
        prepared.correlation_id = prepared.correlation_id or prepared.envelope_id
        for middleware in self._middleware:
            await middleware.on_send(sender.account, prepared)
        try:
            self._check(prepared)
            recipients = await self._find_recipients(sender.account, prepared)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{field}.{error.field}", error.problem) from None
        account = sender.account or ANONYMOUS_ACCOUNT
        return NewMessage(account, prepared, caller=sender.caller, recipients=recipients)

    async def join(self, sender: Sender, room: str, member: str) -> Room:
        """Add a member to a room, with a notice to the room. Raises as `send`."""
        return await self.store.join(*await self._prepare_membership(sender, room, member, "join"))

    async def leave(self, sender: Sender, room: str, member: str) -> Room:
        """Remove a member from a room, with a notice to the room. Raises as `send`."""
        return await self.store.leave(
            *await self._prepare_membership(sender, room, member, "leave")
        )

    async def _prepare_membership(
        self, sender: Sender, room: str, member: str, event: Literal["join", "leave"]
    ) -> tuple[str, str, str, NewMessage]:
        member = member or sender.address
        addresses.check_room(room)
        if event == "join" and not addresses.is_user(member):
            self._find_agent(member)
        notice = Envelope(
            envelope_id=str(uuid.uuid4()),
            sender=addresses.SERVICE,
            recipient=addresses.room_address(room),
            room=room,
            type="system",
        )
        notice.data.update(SystemMessage(event=event, member=member).model_dump())
        notice.correlation_id = notice.envelope_id
        notice.create_time.FromDatetime(datetime.now(UTC))
        account = sender.account or ANONYMOUS_ACCOUNT
        members = (await self.store.get_room(account, room)).members
        recipients = self._select(notice, (name for name in members if name != member))
        message = NewMessage(account, notice, caller=sender.caller, recipients=recipients)
        return account, room, member, message

    def _check(self, envelope: Envelope) -> None:
        if not envelope.recipient:
            problem = "is missing; give an agent, `all`, `room:NAME` or `broadcast`"
            raise InvalidArgumentError("recipient", problem)
        for name in ("envelope_id", "correlation_id", "causation_id", "type", "recipient"):
            if len(getattr(envelope, name)) > _ID_LIMIT:
                raise InvalidArgumentError(name, f"is longer than {_ID_LIMIT} characters")
        if not envelope.type:
            raise InvalidArgumentError("type", "is missing, for example `user_message`")
        if envelope.WhichOneof("payload") is None:
            raise InvalidArgumentError("payload", "is missing; give text or data")
        if (size := envelope.ByteSize()) > _PAYLOAD_LIMIT_BYTES:
            problem = (
                f"has {size:,} bytes, at most {_PAYLOAD_LIMIT_BYTES:,} are allowed; "
                "store the content with a task and send its URL"
            )
            raise InvalidArgumentError("payload", problem)
        if envelope.hop_count > _HOP_LIMIT:
            problem = f"{envelope.hop_count} messages led to this one; handlers answer in a circle"
            raise InvalidArgumentError("hop_count", problem)
        if envelope.HasField("expire_time") and envelope.expire_time.ToDatetime(
            tzinfo=UTC
        ) <= datetime.now(UTC):
            raise InvalidArgumentError("expire_time", "is in the past")
        self._types.validate(envelope)

    async def _find_recipients(self, account: str, envelope: Envelope) -> Sequence[str]:
        """Return the agents that a message is delivered to."""
        recipient = envelope.recipient
        if addresses.is_user(recipient):
            return ()
        room = addresses.room_of(recipient, envelope.room)
        if room is not None:
            envelope.room = room
            members = (await self.store.get_room(account, room)).members
            return self._select(envelope, members)
        if recipient == addresses.ALL:
            return self._select(envelope, self._directory.list_agents())
        agent = self._find_agent(recipient)
        if not _takes(agent, envelope) and not envelope.is_reply:
            types = ", ".join(agent.message_types)
            problem = f"agent {recipient!r} does not take {envelope.type!r}; it takes: {types}"
            raise InvalidArgumentError("type", problem)
        return self._select(envelope, [recipient])

    def _find_agent(self, name: str) -> registry_service_pb2.AgentRegistration:
        try:
            return self._directory.get_agent(name)
        except AgentNotFoundError:
            names = ", ".join(self._directory.list_agents()) or "none"
            problem = f"agent {name!r} is not on the mesh; there are: {names}"
            raise InvalidArgumentError("recipient", problem) from None

    def _select(self, envelope: Envelope, names: Iterable[str]) -> Sequence[str]:
        """Return the agents among names, without the sender, that take the message."""
        agents = self._directory.list_agents()
        return [
            name
            for name in names
            if name != envelope.sender
            # A member that is not on the mesh now gets the message when it is back.
            and not addresses.is_user(name)
            and (name not in agents or _takes(agents[name], envelope))
        ]


def _takes(agent: registry_service_pb2.AgentRegistration, envelope: Envelope) -> bool:
    """Return whether an agent has a handler for a message, or answers it as a request."""
    if not agent.message_types:
        return not envelope.is_reply and envelope.type != "system"
    versions = {"*", envelope.type, f"{envelope.type}@{envelope.type_version or 1}"}
    return not versions.isdisjoint(agent.message_types)


PRIORITIES: Final = {
    "low": envelope_pb2.ENVELOPE_PRIORITY_LOW,
    "normal": envelope_pb2.ENVELOPE_PRIORITY_NORMAL,
    "high": envelope_pb2.ENVELOPE_PRIORITY_HIGH,
}
