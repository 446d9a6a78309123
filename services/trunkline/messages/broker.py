"""Accepts messages: checks and completes them, and finds their recipients."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.json_values import build_struct
from trunkline.core.storable_texts import check_texts
from trunkline.errors import (
    AgentNotFoundError,
    EnvelopeNotFoundError,
    InvalidArgumentError,
    PeerUnavailableError,
    PermissionDeniedError,
)
from trunkline.mesh.client import Directory
from trunkline.mesh.server.policy import Policy
from trunkline.messages import addresses, middleware
from trunkline.messages.middleware import Middleware
from trunkline.messages.store import (
    Envelope,
    MessageStore,
    NewMessage,
    QueuedDelivery,
    Room,
    StoredEnvelope,
)
from trunkline.messages.types import MessageTypes, SystemMessage
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.v1 import registry_service_pb2

MAX_ENVELOPES: Final = 1000
"""The number of messages that are accepted at once."""
_PAYLOAD_LIMIT_BYTES: Final = 256 * 1024
_HOP_LIMIT: Final = 64
_NOTICE_TYPE: Final = "system"
_ID_LIMIT: Final = 128
_SHORT_FIELDS: Final = (
    "envelope_id",
    "correlation_id",
    "causation_id",
    "type",
    "recipient",
    "room",
)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of messages: a user of an account, or an agent that works for a user."""

    account: str
    caller: str = ""
    agent: str = ""

    @property
    def address(self) -> str:
        """The name in `Envelope.sender`."""
        return self.agent or addresses.user_address(self.caller)


def count_sent(messages: Iterable[NewMessage]) -> None:
    """Count messages that the store has accepted, except notices of the messaging service."""
    for message in messages:
        if message.envelope.sender != addresses.SERVICE:
            kind = message.envelope.type
            instruments.MESSAGES_SENT.add(1, telemetry.TRUNKLINE, "send", kind)


class MessageBroker:
    """Accepts the messages of a mesh into its store."""

    def __init__(
        self,
        store: MessageStore,
        directory: Directory,
        types: MessageTypes,
        *,
        middleware: Sequence[Middleware] = (),
        policy: Policy | None = None,
        retention_s: float,
    ) -> None:
        """Messages without an expire time expire after `retention_s`."""
        self.store = store
        self._directory = directory
        self._types = types
        self._middleware = middleware
        self._policy = policy
        self._retention = timedelta(seconds=retention_s)
        self._known_agents: set[str] = set()

    async def send(
        self,
        sender: Sender,
        envelopes: Sequence[Envelope],
        *,
        cause: Envelope | None = None,
    ) -> list[StoredEnvelope]:
        """Accept messages, all or none. `cause` is the message that the sender handles now.

        Raises:
            InvalidArgumentError: a message is wrong; the error names its number and field.
            AgentNotFoundError: a recipient never was on the mesh.
            PermissionDeniedError: the policy does not let the sender message the recipient.
            QueueFullError: too many deliveries wait.
        """
        if not 0 < len(envelopes) <= MAX_ENVELOPES:
            raise InvalidArgumentError("envelopes", f"give 1 to {MAX_ENVELOPES} messages")
        messages = [
            await self.prepare(
                sender,
                envelope,
                cause=cause,
                field=f"envelopes[{index}]",
            )
            for index, envelope in enumerate(envelopes)
        ]
        stored = await self.store.accept(messages)
        count_sent(messages)
        return stored

    async def replay(
        self, sender: Sender, envelopes: Sequence[Envelope], *, recipient: str = ""
    ) -> list[str]:
        """Accept stored messages again, in order, as new messages; return the new ids.

        The new messages have the senders of the stored messages, and name the stored messages in
        `replay_of`. All are checked before the first is accepted.

        Args:
            sender: The user who replays the messages.
            envelopes: The stored messages.
            recipient: The recipient of the new messages. Without it, their recipients stay.

        Raises:
            As `send`.
        """
        messages: list[NewMessage] = []
        for index, envelope in enumerate(envelopes):
            repeated = Envelope()
            repeated.CopyFrom(envelope)
            for name in ("envelope_id", "expire_time", "traceparent"):
                repeated.ClearField(name)
            repeated.replay_of = envelope.envelope_id
            repeated.recipient = recipient or envelope.recipient
            messages.append(
                await self.prepare(
                    sender,
                    repeated,
                    cause=None,
                    on_behalf_of=envelope.sender,
                    is_reply=True,
                    field=f"messages[{index}]",
                    original=envelope,
                )
            )
        for start in range(0, len(messages), MAX_ENVELOPES):
            accepted = messages[start : start + MAX_ENVELOPES]
            await self.store.accept(accepted)
            count_sent(accepted)
        return [message.envelope.envelope_id for message in messages]

    async def prepare(  # noqa: PLR0913  independent options
        self,
        sender: Sender,
        envelope: Envelope,
        *,
        cause: Envelope | None,
        on_behalf_of: str = "",
        is_reply: bool = False,
        field: str = "envelope",
        original: Envelope | None = None,
    ) -> NewMessage:
        """Return a message, checked and completed; raises what `send` raises.

        The sender of a replayed message is the original sender, in `on_behalf_of`. The span of a
        replayed message has a link to the span of the `original`. With `is_reply` the caller
        vouches that the message is a reply. Otherwise a message that claims to be a reply is
        checked.
        """
        attributes = message_attributes("send", envelope, destination=envelope.recipient)
        # There are many users and rooms, but the names of spans must be few.
        kind, _, rest = envelope.recipient.partition(":")
        name = f"send {kind}" if rest else f"send {envelope.recipient}"
        link = None if original is None else telemetry.parse_link(original.traceparent)
        links = () if link is None else (link,)
        with telemetry.span(
            name, kind=SpanKind.PRODUCER, attributes=attributes, links=links
        ) as span:
            prepared = self._complete(sender, envelope, cause, on_behalf_of)
            span.set_attributes(
                message_attributes("send", prepared, destination=envelope.recipient)
            )
            try:
                if prepared.is_reply and not is_reply:
                    await self._check_reply(sender, prepared)
                await middleware.send(self._middleware, sender.account, prepared)
                self._check(prepared)
                recipients = await self._find_recipients(sender, prepared)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{field}.{error.field}", error.problem) from None
        account = sender.account or ANONYMOUS_ACCOUNT
        return NewMessage(account, prepared, caller=sender.caller, recipients=recipients)

    def _complete(
        self, sender: Sender, envelope: Envelope, cause: Envelope | None, on_behalf_of: str
    ) -> Envelope:
        """Return a copy of a message with the fields that the service sets."""
        prepared = Envelope()
        prepared.CopyFrom(envelope)
        if not on_behalf_of:
            prepared.ClearField("replay_of")
        prepared.sender = on_behalf_of or sender.address
        prepared.envelope_id = envelope.envelope_id or str(uuid.uuid4())
        prepared.create_time.FromDatetime(datetime.now(UTC))
        prepared.hop_count = 0
        prepared.traceparent = telemetry.current_traceparent() or envelope.traceparent
        if cause is not None:
            prepared.causation_id = envelope.causation_id or cause.envelope_id
            prepared.correlation_id = envelope.correlation_id or cause.correlation_id
            prepared.room = envelope.room or cause.room
            prepared.hop_count = min(cause.hop_count, _HOP_LIMIT) + 1
        prepared.correlation_id = prepared.correlation_id or prepared.envelope_id
        if not prepared.HasField("expire_time"):
            prepared.expire_time.FromDatetime(datetime.now(UTC) + self._retention)
        return prepared

    async def note_agents(self) -> None:
        """Remember the agents that are on the mesh, for messages to them while they are away."""
        names = self._directory.list_agents().keys()
        if new := names - self._known_agents:
            await self.store.add_agents(new)
            self._known_agents |= new

    def check_policy(self, account: str, envelope: Envelope, recipient: str) -> None:
        """Check that the sender of a message may message an agent; notices may always.

        Raises:
            PermissionDeniedError: a rule of the policy forbids it.
        """
        if self._policy is not None and envelope.sender != addresses.SERVICE:
            agent = "" if addresses.is_user(envelope.sender) else envelope.sender
            self._policy.check_message(account, agent=agent, recipient=recipient)

    async def join(self, sender: Sender, room: str, member: str) -> Room:
        """Add a member to a room, with a notice to the room. Raises as `send`."""
        change = await self._prepare_membership(sender, room, member, "join")
        return await self.store.join(*change)

    async def leave(self, sender: Sender, room: str, member: str) -> Room:
        """Remove a member from a room, with a notice to the room. Raises as `send`."""
        change = await self._prepare_membership(sender, room, member, "leave")
        return await self.store.leave(*change)

    async def _prepare_membership(
        self, sender: Sender, room: str, member: str, event: Literal["join", "leave"]
    ) -> tuple[str, str, str, NewMessage]:
        member = member or sender.address
        addresses.check_room(room)
        if event == "join" and not addresses.is_user(member):
            await self._find_agent(member)
        notice = self._build_notice(addresses.room_address(room), event=event, member=member)
        notice.room = room
        notice.correlation_id = notice.envelope_id
        account = sender.account or ANONYMOUS_ACCOUNT
        members = (await self.store.get_room(account, room)).members
        if (member in members) == (event == "leave"):
            # The membership changes, and a middleware may record or refuse the change.
            await middleware.send(self._middleware, account, notice)
            self._check(notice)
        others = (name for name in members if name != member)
        recipients = self._select(account, notice, others)
        message = NewMessage(account, notice, caller=sender.caller, recipients=recipients)
        return account, room, member, message

    async def prepare_error(self, delivery: QueuedDelivery, problem: str) -> NewMessage | None:
        """Return the notice for the agent whose message is a dead letter now.

        There is no notice if a user sent the message, if the agent does not handle notices, or if
        the message is a notice. The id of the notice is derived from the attempt, so that a
        repeated end of the attempt has the same notice.

        Raises:
            As `send`.
        """
        envelope, key = delivery.envelope, delivery.key
        if addresses.is_user(envelope.sender) or envelope.type == _NOTICE_TYPE:
            return None
        notice = self._build_notice(
            envelope.sender, event="error", member=key.recipient, text=problem
        )
        cause = delivery.task_id or f"{key.envelope_id}.{key.recipient}"
        notice.envelope_id = f"{cause}.error"[-_ID_LIMIT:]
        notice.correlation_id = envelope.correlation_id
        notice.causation_id = envelope.envelope_id
        notice.hop_count = envelope.hop_count + 1
        notice.priority = envelope.priority
        recipients = self._select(key.account, notice, [envelope.sender])
        if not recipients:
            return None
        await middleware.send(self._middleware, key.account, notice)
        self._check(notice)
        return NewMessage(key.account, notice, caller=delivery.caller, recipients=recipients)

    def _build_notice(
        self,
        recipient: str,
        *,
        event: Literal["join", "leave", "error"],
        member: str,
        text: str = "",
    ) -> Envelope:
        """Return a notice, which is a message of the messaging service."""
        now = datetime.now(UTC)
        notice = Envelope(
            envelope_id=str(uuid.uuid4()),
            sender=addresses.SERVICE,
            recipient=recipient,
            type=_NOTICE_TYPE,
            traceparent=telemetry.current_traceparent(),
        )
        payload = SystemMessage(event=event, member=member, text=text)
        notice.data.CopyFrom(build_struct(payload.model_dump()))
        notice.create_time.FromDatetime(now)
        notice.expire_time.FromDatetime(now + self._retention)
        return notice

    def is_unwanted(self, envelope: Envelope, recipient: str) -> bool:
        """Return whether a message is a notice, and its recipient came back without a handler."""
        agent = self._directory.list_agents().get(recipient)
        is_notice = envelope.sender == addresses.SERVICE
        return is_notice and agent is not None and not _takes(agent, envelope)

    def _check(self, envelope: Envelope) -> None:
        if not envelope.recipient:
            problem = "is missing; give an agent, `all`, `room:NAME` or `broadcast`"
            raise InvalidArgumentError("recipient", problem)
        for name in _SHORT_FIELDS:
            if len(getattr(envelope, name)) > _ID_LIMIT:
                raise InvalidArgumentError(name, f"is longer than {_ID_LIMIT} characters")
        check_texts(**{name: getattr(envelope, name) for name in _SHORT_FIELDS})
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

    async def _check_reply(self, sender: Sender, reply: Envelope) -> None:
        """Check that the sender of a reply got the message that the reply answers."""
        try:
            stored = await self.store.get(sender.account, reply.causation_id)
        except EnvelopeNotFoundError:
            problem = "names no message of the account, but a reply answers one"
            raise InvalidArgumentError("causation_id", problem) from None
        cause = stored.envelope
        receivers = {cause.recipient, *(delivery.recipient for delivery in stored.deliveries)}
        if cause.room:
            receivers |= set((await self.store.get_room(sender.account, cause.room)).members)
        if reply.sender not in receivers:
            problem = f"is wrong: {reply.sender} did not get message {reply.causation_id}"
            raise InvalidArgumentError("is_reply", problem)
        reply.correlation_id = cause.correlation_id
        reply.hop_count = cause.hop_count + 1

    async def _find_recipients(self, sender: Sender, envelope: Envelope) -> Sequence[str]:
        """Return the agents that a message is delivered to."""
        account = sender.account
        recipient = envelope.recipient
        if addresses.is_user(recipient):
            return ()
        room = addresses.room_of(recipient, envelope.room)
        if room is not None:
            envelope.room = room
            members = (await self.store.get_room(account, room)).members
            if members:
                # Callers may invent rooms. A room without members is no node of the mesh.
                trace.get_current_span().set_attributes(edge_attributes(envelope))
            return self._select(account, envelope, members)
        if recipient == addresses.ALL:
            return self._select(account, envelope, self._directory.list_agents())
        self.check_policy(account, envelope, recipient)
        agent = await self._find_agent(recipient)
        if agent is not None and not _takes(agent, envelope) and not envelope.is_reply:
            types = ", ".join(agent.message_types) or "requests"
            problem = f"agent {recipient!r} does not take {envelope.type!r}; it takes: {types}"
            raise InvalidArgumentError("type", problem)
        # An agent may send itself a message, for later.
        return [recipient] if agent is None or _takes(agent, envelope) else []

    async def _find_agent(self, name: str) -> registry_service_pb2.AgentRegistration | None:
        """Return an agent's registration, or None for an agent that was on the mesh and may return.

        Raises:
            AgentNotFoundError: the agent never was on the mesh.
            PeerUnavailableError: the agent is unknown, but not all hosts are known yet.
        """
        try:
            return self._directory.get_agent(name)
        except (AgentNotFoundError, PeerUnavailableError):
            if name in self._known_agents or name in await self.store.list_agents():
                return None
            raise

    def _select(self, account: str, envelope: Envelope, names: Iterable[str]) -> Sequence[str]:
        """Return the agents among names, except the sender, that handle and may get a message."""
        agents = self._directory.list_agents()
        return [
            name
            for name in names
            if name != envelope.sender
            # A member that is not on the mesh now gets the message when it is back.
            and not addresses.is_user(name)
            and (name not in agents or _takes(agents[name], envelope))
            and self._is_allowed(account, envelope, name)
        ]

    def _is_allowed(self, account: str, envelope: Envelope, recipient: str) -> bool:
        try:
            self.check_policy(account, envelope, recipient)
        except PermissionDeniedError:
            return False
        return True


def _takes(agent: registry_service_pb2.AgentRegistration, envelope: Envelope) -> bool:
    """Return whether an agent has a handler for a message, or answers it as a request."""
    if not agent.message_types:
        return not envelope.is_reply and envelope.type != _NOTICE_TYPE
    if not envelope.type_version:
        # Version 0 stands for the newest version that the receiver knows.
        return any(each.partition("@")[0] in {"*", envelope.type} for each in agent.message_types)
    versions = {"*", envelope.type, f"{envelope.type}@{envelope.type_version}"}
    return not versions.isdisjoint(agent.message_types)


def message_attributes(
    operation: Literal["send", "process"], envelope: Envelope, *, destination: str
) -> Mapping[str, str]:
    """Return the attributes of a span of a message, by OpenTelemetry's conventions."""
    return {
        telemetry.MESSAGING_SYSTEM: telemetry.TRUNKLINE,
        telemetry.MESSAGING_OPERATION_NAME: operation,
        telemetry.MESSAGING_OPERATION_TYPE: operation,
        telemetry.MESSAGING_DESTINATION_NAME: destination,
        telemetry.MESSAGING_MESSAGE_ID: envelope.envelope_id,
        telemetry.MESSAGING_CONVERSATION_ID: envelope.correlation_id,
        telemetry.MESSAGE_TYPE: envelope.type,
    }


def edge_attributes(envelope: Envelope) -> Mapping[str, str]:
    """Return the attributes by which the span of a message becomes an edge of the mesh."""
    sender = "client" if addresses.is_user(envelope.sender) else envelope.sender
    room = addresses.room_of(envelope.recipient, envelope.room)
    return {
        telemetry.MESSAGE_SENDER: sender,
        **({} if room is None else {telemetry.MESSAGE_ROOM: room}),
    }
