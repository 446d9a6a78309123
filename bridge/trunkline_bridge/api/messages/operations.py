"""Performs the operations of callers outside on messages, by calls to the messaging service.

Credentials with agents are for messages to these agents. In the lists of agents, `room:NAME` stands
for a room, and `all` stands for all messages of the account.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final, TypeAlias

from trunkline.mesh.client import Directory
from trunkline.messages import addresses
from trunkline.messages.client import MessagingClient
from trunkline.messages.store import Envelope, EnvelopeFilter, Room, StoredEnvelope
from trunkline.observe.audit import Action, AuditLog
from trunkline.v1 import messaging_service_pb2
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import check_permission
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.streams import CallerStreams

EnvelopeUpdates: TypeAlias = AsyncGenerator[
    Sequence[messaging_service_pb2.WatchEnvelopesResponse], None
]

ALL: Final = addresses.ALL
"""The agent of permissions for all messages of an account."""


class MessageOperations:
    """The operations on messages. They raise only TrunklineErrors and WireErrors.

    Messages and rooms are visible to the callers of their account.
    """

    def __init__(
        self, directory: Directory, streams: CallerStreams, audit: AuditLog | None = None
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self._directory = directory
        self._streams = streams
        self._audit = audit

    async def send(self, caller: Caller, envelopes: Sequence[Envelope]) -> list[StoredEnvelope]:
        """Accept messages, all or none."""
        for envelope in envelopes:
            self.authorize(caller, _subject_of(envelope), "SendEnvelopes")
        first = envelopes[0].envelope_id if envelopes else ""
        with recorded(self._audit, caller, Action.ENVELOPE_SEND, envelope=first):
            return await self._client(caller).send(envelopes)

    async def request(self, caller: Caller, envelope: Envelope, *, timeout_s: float) -> Envelope:
        """Send a message and return the first reply to it."""
        self.authorize(caller, _subject_of(envelope), "SendEnvelopes")
        with recorded(self._audit, caller, Action.ENVELOPE_SEND, envelope=envelope.envelope_id):
            return await self._client(caller).request(envelope, timeout_s=timeout_s)

    async def get(self, caller: Caller, envelope_id: str) -> StoredEnvelope:
        """Return a message with its deliveries."""
        found = await self._client(caller).get(envelope_id)
        self.authorize(caller, _subject_of(found.envelope), "GetEnvelope")
        return found

    async def read_page(
        self, caller: Caller, query: EnvelopeFilter, *, page_size: int, page_token: str
    ) -> messaging_service_pb2.ListEnvelopesResponse:
        """Return a page of the messages that match, newest first."""
        self.authorize(caller, _subject_of_filter(query), "ListEnvelopes")
        return await self._client(caller).read_page(
            query, page_size=page_size, page_token=page_token
        )

    def watch(
        self,
        caller: Caller,
        query: EnvelopeFilter,
        *,
        after_position: int | None,
        with_deliveries: bool = False,
    ) -> AbstractAsyncContextManager[EnvelopeUpdates]:
        """Return a stream of messages; it ends when the caller's credential is refused."""
        self.authorize(caller, _subject_of_filter(query), "WatchEnvelopes")
        updates = self._client(caller).watch(
            query, after_position=after_position, with_deliveries=with_deliveries
        )
        return self._streams.open_singly(caller, updates)

    async def replay(
        self, caller: Caller, query: EnvelopeFilter, *, recipient: str, dry_run: bool
    ) -> list[str]:
        """Send messages again; return the new ids, or in a dry run the ids of the old messages."""
        self.authorize(caller, _subject_of_filter(query), "ReplayEnvelopes")
        if recipient:
            self.authorize(caller, recipient, "ReplayEnvelopes")
        client = self._client(caller)
        if dry_run:
            return await client.replay(query, recipient=recipient, dry_run=True)
        with recorded(self._audit, caller, Action.ENVELOPE_REPLAY, envelope=query.envelope_id):
            return await client.replay(query, recipient=recipient)

    async def redrive(self, caller: Caller, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; return the number of deliveries."""
        self.authorize(caller, _subject_of_filter(query), "RedriveEnvelopes")
        with recorded(self._audit, caller, Action.ENVELOPE_REDRIVE, envelope=query.envelope_id):
            return await self._client(caller).redrive(query)

    async def purge(self, caller: Caller, query: EnvelopeFilter) -> int:
        """Delete messages whose deliveries have ended; return their number."""
        self.authorize(caller, _subject_of_filter(query), "PurgeEnvelopes")
        with recorded(self._audit, caller, Action.ENVELOPE_PURGE, envelope=query.envelope_id):
            return await self._client(caller).purge(query)

    async def list_rooms(self, caller: Caller) -> list[Room]:
        """Return the rooms of the account, sorted by name."""
        self.authorize(caller, ALL, "ListRooms")
        return await self._client(caller).list_rooms()

    async def watch_rooms(self, caller: Caller) -> AsyncGenerator[list[Room], None]:
        """Yield the rooms of the account now, and whenever a member joins or leaves one."""
        self.authorize(caller, ALL, "ListRooms")
        client = self._client(caller)
        # A notice to the room reports each change.
        notices = client.watch(EnvelopeFilter(participant=addresses.SERVICE))
        async with aclosing(notices):
            async for _ in notices:
                yield await client.list_rooms()

    async def get_room(self, caller: Caller, room: str) -> Room:
        """Return a room. A room that nobody joined has no members."""
        self.authorize(caller, addresses.room_address(room), "ListRooms")
        rooms = await self._client(caller).list_rooms()
        return next((found for found in rooms if found.name == room), Room(name=room))

    async def join(self, caller: Caller, room: str, member: str = "") -> Room:
        """Add an agent, or the caller, to a room."""
        self.authorize(caller, addresses.room_address(room), "JoinRoom")
        with recorded(self._audit, caller, Action.ROOM_JOIN, room=room, agent=member):
            return await self._client(caller).join(room, member)

    async def leave(self, caller: Caller, room: str, member: str = "") -> Room:
        """Remove an agent, or the caller, from a room."""
        self.authorize(caller, addresses.room_address(room), "LeaveRoom")
        with recorded(self._audit, caller, Action.ROOM_LEAVE, room=room, agent=member):
            return await self._client(caller).leave(room, member)

    def authorize(self, caller: Caller, subject: str, method: str) -> None:
        """Check that the caller may use a method for an agent or a room.

        Raises:
            WireError: it may not (PERMISSION_DENIED).
        """
        check_permission(self._audit, caller, subject, method)

    def _client(self, caller: Caller) -> MessagingClient:
        return MessagingClient(self._directory, account=caller.account, caller=caller.name)


def _subject_of(envelope: Envelope) -> str:
    """Return the agent or room of a message, for permissions."""
    if envelope.recipient == addresses.BROADCAST:
        return addresses.room_address(envelope.room)
    return envelope.recipient


def _subject_of_filter(query: EnvelopeFilter) -> str:
    """Return the agent or room whose messages a filter selects, or `all` for other filters."""
    if query.recipient:
        return query.recipient
    if query.room:
        return addresses.room_address(query.room)
    return query.participant or ALL
