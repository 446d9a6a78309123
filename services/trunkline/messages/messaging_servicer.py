"""Serves `trunkline.v1.MessagingService`."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing
from typing import Any, Final, TypeAlias

import grpc

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.storable_texts import check_texts
from trunkline.core.users import current_user
from trunkline.errors import InvalidArgumentError, PermissionDeniedError
from trunkline.mesh.server.authorization import caller
from trunkline.mesh.server.policy import find_acting_agents
from trunkline.messages import addresses
from trunkline.messages.broker import MessageBroker, Sender
from trunkline.messages.envelope_filter import require_condition
from trunkline.messages.page_tokens import read_page_size
from trunkline.messages.store import Envelope, EnvelopeFilter
from trunkline.observe.audit import Action, AuditLog, process_actor, recording
from trunkline.v1 import messaging_service_pb2, messaging_service_pb2_grpc

_REPLAY_LIMIT: Final = 10_000
_LAST_POSITION: Final = 2**63 - 1
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class MessagingServicer(messaging_service_pb2_grpc.MessagingServiceServicer):
    """Serves the messages of a broker to the processes of a mesh."""

    def __init__(self, broker: MessageBroker, audit: AuditLog | None = None) -> None:
        self._broker = broker
        self._store = broker.store
        self._audit = audit

    async def SendEnvelopes(
        self, request: messaging_service_pb2.SendEnvelopesRequest, context: _Context
    ) -> messaging_service_pb2.SendEnvelopesResponse:
        sender = _read_sender(request.account, request.caller, request.agent)
        cause = request.cause if request.HasField("cause") else None
        with recording(
            self._audit,
            Action.ENVELOPE_SEND,
            lambda: process_actor(context.peer(), account=request.account),
            agent=request.agent,
            envelope=request.envelopes[0].envelope_id if request.envelopes else "",
        ):
            stored = await self._broker.send(sender, request.envelopes, cause=cause)
        return messaging_service_pb2.SendEnvelopesResponse(envelopes=stored)

    async def GetEnvelope(
        self, request: messaging_service_pb2.GetEnvelopeRequest, _context: _Context
    ) -> messaging_service_pb2.GetEnvelopeResponse:
        check_texts(envelope_id=request.envelope_id)
        stored = await self._store.get(_account(request.account), request.envelope_id)
        return messaging_service_pb2.GetEnvelopeResponse(envelope=stored)

    async def ListEnvelopes(
        self, request: messaging_service_pb2.ListEnvelopesRequest, _context: _Context
    ) -> messaging_service_pb2.ListEnvelopesResponse:
        page = await self._store.read_page(
            _account(request.account),
            _filter(request.filter),
            page_size=read_page_size(request.page_size),
            page_token=request.page_token,
        )
        return messaging_service_pb2.ListEnvelopesResponse(
            envelopes=page.messages, next_page_token=page.next_page_token
        )

    async def WatchEnvelopes(
        self, request: messaging_service_pb2.WatchEnvelopesRequest, _context: _Context
    ) -> AsyncIterator[messaging_service_pb2.WatchEnvelopesResponse]:
        after = request.after_position if request.HasField("after_position") else None
        if after is not None and after > _LAST_POSITION:
            raise InvalidArgumentError("after_position", "is no position of this service")
        watch = self._store.watch(
            _account(request.account),
            _filter(request.filter),
            after_position=after,
            with_deliveries=request.with_deliveries,
        )
        async with aclosing(watch):
            async for stored, position in watch:
                yield messaging_service_pb2.WatchEnvelopesResponse(
                    envelopes=stored, position=position
                )

    async def ReplayEnvelopes(
        self, request: messaging_service_pb2.ReplayEnvelopesRequest, context: _Context
    ) -> messaging_service_pb2.ReplayEnvelopesResponse:
        require_condition(_filter(request.filter))
        sender = _read_sender(request.account, request.caller, "")
        found = await self._find_all(_account(request.account), _filter(request.filter))
        response = messaging_service_pb2.ReplayEnvelopesResponse()
        if request.dry_run:
            response.envelope_ids.extend(envelope.envelope_id for envelope in found)
            return response
        with recording(
            self._audit,
            Action.ENVELOPE_REPLAY,
            lambda: process_actor(context.peer(), account=request.account),
            envelope=found[0].envelope_id if found else "",
        ):
            new = await self._broker.replay(sender, found, recipient=request.recipient)
        response.envelope_ids.extend(new)
        return response

    async def RedriveEnvelopes(
        self, request: messaging_service_pb2.RedriveEnvelopesRequest, context: _Context
    ) -> messaging_service_pb2.RedriveEnvelopesResponse:
        with recording(
            self._audit,
            Action.ENVELOPE_REDRIVE,
            lambda: process_actor(context.peer(), account=request.account),
            envelope=_filter(request.filter).envelope_id,
        ):
            count = await self._store.redrive(_account(request.account), _filter(request.filter))
        return messaging_service_pb2.RedriveEnvelopesResponse(deliveries=count)

    async def PurgeEnvelopes(
        self, request: messaging_service_pb2.PurgeEnvelopesRequest, context: _Context
    ) -> messaging_service_pb2.PurgeEnvelopesResponse:
        require_condition(_filter(request.filter))
        with recording(
            self._audit,
            Action.ENVELOPE_PURGE,
            lambda: process_actor(context.peer(), account=request.account),
            envelope=_filter(request.filter).envelope_id,
        ):
            count = await self._store.purge(_account(request.account), _filter(request.filter))
        return messaging_service_pb2.PurgeEnvelopesResponse(envelopes=count)

    async def JoinRoom(
        self, request: messaging_service_pb2.JoinRoomRequest, context: _Context
    ) -> messaging_service_pb2.JoinRoomResponse:
        sender = _read_sender(request.account, request.caller, "")
        _check_member(sender, request.member)
        with self._recording_room(Action.ROOM_JOIN, request, context):
            room = await self._broker.join(sender, request.room, request.member)
        return messaging_service_pb2.JoinRoomResponse(room=room)

    async def LeaveRoom(
        self, request: messaging_service_pb2.LeaveRoomRequest, context: _Context
    ) -> messaging_service_pb2.LeaveRoomResponse:
        sender = _read_sender(request.account, request.caller, "")
        _check_member(sender, request.member)
        with self._recording_room(Action.ROOM_LEAVE, request, context):
            room = await self._broker.leave(sender, request.room, request.member)
        return messaging_service_pb2.LeaveRoomResponse(room=room)

    async def ListRooms(
        self, request: messaging_service_pb2.ListRoomsRequest, _context: _Context
    ) -> messaging_service_pb2.ListRoomsResponse:
        rooms = await self._store.list_rooms(_account(request.account))
        return messaging_service_pb2.ListRoomsResponse(rooms=rooms)

    def _recording_room(
        self,
        action: Action,
        request: messaging_service_pb2.JoinRoomRequest | messaging_service_pb2.LeaveRoomRequest,
        context: _Context,
    ) -> AbstractContextManager[None]:
        return recording(
            self._audit,
            action,
            lambda: process_actor(context.peer(), account=request.account),
            agent=request.member,
            room=request.room,
        )

    async def _find_all(self, account: str, query: EnvelopeFilter) -> list[Envelope]:
        """Return the messages that match, oldest first, without the notices of rooms.

        Nobody joins or leaves again because a notice of that is repeated.

        Raises:
            InvalidArgumentError: there are too many.
        """
        found: list[Envelope] = []
        token = ""
        while True:
            page = await self._store.read_page(account, query, page_size=1000, page_token=token)
            envelopes = (stored.envelope for stored in page.messages)
            found += [each for each in envelopes if each.sender != addresses.SERVICE]
            if len(found) > _REPLAY_LIMIT:
                problem = (
                    f"matches more than {_REPLAY_LIMIT:,} messages; narrow it, by time for example"
                )
                raise InvalidArgumentError("filter", problem)
            token = page.next_page_token
            if not token:
                return found[::-1]


def _account(account: str) -> str:
    """Return the account of a request.

    Raises:
        InvalidArgumentError: no store accepts its name.
    """
    check_texts(account=account)
    return account or ANONYMOUS_ACCOUNT


def _filter(query: EnvelopeFilter) -> EnvelopeFilter:
    """Return the filter of a request.

    Raises:
        InvalidArgumentError: no store has a text that it names.
    """
    check_texts(
        **{each.name: value for each, value in query.ListFields() if isinstance(value, str)}
    )
    return query


def _read_sender(account: str, user: str, agent: str) -> Sender:
    """Return the sender of a request.

    Raises:
        PermissionDeniedError: the calling process does not serve the agent that it names.
        InvalidArgumentError: no store accepts a name.
    """
    check_texts(user=user, agent=agent)
    identity = caller.get(None)
    if identity is not None:
        acting = find_acting_agents(identity, agent)
        if not agent and acting:
            raise PermissionDeniedError(str(identity), "send messages as a user")
    proven = current_user.get()
    if agent and proven is not None:
        # The agent may name any user, and what it sends is done for this one.
        user = proven.name
    return Sender(_account(account), user, agent)


def _check_member(sender: Sender, member: str) -> None:
    """Check whom a call adds or removes: the user itself, or an agent.

    Raises:
        PermissionDeniedError: it is another user, or an agent that the process does not serve.
    """
    if addresses.is_user(member):
        if member != sender.address:
            raise PermissionDeniedError(sender.address, f"let {member!r} join or leave")
        return
    identity = caller.get(None)
    if identity is not None:
        find_acting_agents(identity, member)
