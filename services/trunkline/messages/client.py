"""The client of `trunkline.v1.MessagingService`."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

from trunkline.core.backoff import OUTAGE_S, Backoff, RetryWindow, retry_while_unavailable
from trunkline.errors import AgentCallError, PeerError, PeerTimeoutError, PeerUnavailableError
from trunkline.mesh.client.channels import MeshChannel
from trunkline.mesh.client.methods import read_responses
from trunkline.messages.addresses import is_user
from trunkline.messages.store import Envelope, EnvelopeFilter, Room, StoredEnvelope
from trunkline.v1 import envelope_pb2, messaging_service_pb2_grpc
from trunkline.v1 import messaging_service_pb2 as pb2

logger = logging.getLogger(__name__)

_Response = TypeVar("_Response")

SERVICE: Final = pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
"""The full name of the messaging service."""

# A service that restarts is back in this time.
_PATIENCE_S: Final = 10.0
# Within this time a call goes to another process instead of one that died.
_OTHERS_S: Final = 1.0
_PAGE_SIZE: Final = 1000
# How deliveries end, and the states of tasks that end like them.
_ENDS: Final[Mapping[int, str]] = {
    envelope_pb2.DELIVERY_STATE_HANDLED: "completed",
    envelope_pb2.DELIVERY_STATE_DEAD: "failed",
    envelope_pb2.DELIVERY_STATE_EXPIRED: "failed",
    envelope_pb2.DELIVERY_STATE_CANCELED: "canceled",
}


class ServiceChannels(Protocol):
    """Finds a host that serves a service, as a Directory does."""

    def channel_for_service(self, full_name: str) -> MeshChannel:
        """Return a channel to a host. PeerUnavailableError: no host serves it."""
        ...


class MessagingClient:
    """Calls MessagingService for one user of an account, or for an agent that works for one.

    It finds the service in the directory at each call. If a process does not answer, another one
    is called, unless a repeated call would have another result. Every method raises
    TrunklineErrors only, PeerUnavailableError among them if no process serves messages.
    """

    def __init__(
        self, directory: ServiceChannels, *, account: str = "", caller: str = "", agent: str = ""
    ) -> None:
        self._directory = directory
        self._account = account
        self._caller = caller
        self._agent = agent

    async def send(
        self, envelopes: Sequence[Envelope], *, cause: Envelope | None = None
    ) -> list[StoredEnvelope]:
        """Send messages, all or none; they are stored when the call returns.

        `cause` is the message that the agent handles now. Repeating a message with its id is
        harmless, and a service that can't be reached is called again for 10 seconds. While the
        store of messages is away, an agent's message is sent again for 10 minutes.

        Raises:
            InvalidArgumentError: a message is wrong.
            AgentNotFoundError: a recipient never was on the mesh.
            PermissionDeniedError: the policy forbids it.
            QueueFullError: too many deliveries wait.
            JournalUnavailableError: the store of messages is away.
        """
        for envelope in envelopes:
            envelope.envelope_id = envelope.envelope_id or str(uuid.uuid4())
        request = pb2.SendEnvelopesRequest(
            account=self._account,
            caller=self._caller,
            agent=self._agent,
            envelopes=envelopes,
            cause=cause,
        )
        # A user's message is refused at once while the store is away. An agent's task waits for it.
        response = await retry_while_unavailable(
            lambda: self._call(lambda stub: stub.SendEnvelopes(request), patience_s=_PATIENCE_S),
            limit_s=OUTAGE_S if self._agent else 0,
        )
        return list(response.envelopes)

    async def request(
        self, envelope: Envelope, *, timeout_s: float, cause: Envelope | None = None
    ) -> Envelope:
        """Send a message and return the first reply to it.

        Raises:
            PeerTimeoutError: there is none in time. The message stays, and may be answered later.
            AgentCallError: the message was handled without a reply, became a dead letter, expired,
                or was canceled. Requests to rooms wait longer: users may answer those.
            As `send`.
        """
        (sent,) = await self.send([envelope], cause=cause)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_for_reply(sent)
        except TimeoutError:
            pass
        problem = f"no reply to message {sent.envelope.envelope_id} in {timeout_s:g} s"
        raise PeerTimeoutError(sent.envelope.recipient, problem)

    async def _wait_for_reply(self, sent: StoredEnvelope) -> Envelope:
        """Return the first reply to a message, also if the service restarts meanwhile.

        Raises:
            AgentCallError: no recipient handles it any more.
        """
        # The conversation, and not the message, so that the ends of its deliveries come, too.
        query = EnvelopeFilter(correlation_id=sent.envelope.correlation_id)
        backoff = Backoff()
        while True:
            try:
                updates = self.watch(
                    query, after_position=max(0, sent.position - 1), with_deliveries=True
                )
                async with aclosing(updates):
                    async for update in updates:
                        backoff.reset()
                        for stored in update.envelopes:
                            if _answers(stored.envelope, sent.envelope):
                                return stored.envelope
                        for stored in update.envelopes:
                            if stored.position != sent.position or not _has_ended(stored):
                                continue
                            # A reply is stored with the end, and may come in the next update.
                            if (reply := await self._find_reply(sent)) is not None:
                                return reply
                            raise _unanswered(stored)
            except PeerError as error:
                logger.debug("messages.watch_ended", extra={"problem": str(error)})
            await backoff.pause()

    async def _find_reply(self, sent: StoredEnvelope) -> Envelope | None:
        """Return the first stored reply to a message."""
        query = EnvelopeFilter(correlation_id=sent.envelope.correlation_id)
        found: Envelope | None = None
        token = ""
        while True:
            page = await self.read_page(query, page_size=_PAGE_SIZE, page_token=token)
            # The newest are first.
            for stored in page.envelopes:
                if stored.position <= sent.position:
                    return found
                if _answers(stored.envelope, sent.envelope):
                    found = stored.envelope
            token = page.next_page_token
            if not token:
                return found

    async def get(self, envelope_id: str) -> StoredEnvelope:
        """Return a message with its deliveries.

        Raises:
            EnvelopeNotFoundError: there is none.
        """
        request = pb2.GetEnvelopeRequest(account=self._account, envelope_id=envelope_id)
        response = await self._call(lambda stub: stub.GetEnvelope(request))
        return response.envelope

    async def read_page(
        self, query: EnvelopeFilter, *, page_size: int = 0, page_token: str = ""
    ) -> pb2.ListEnvelopesResponse:
        """Return a page of the messages that match, newest first."""
        request = pb2.ListEnvelopesRequest(
            account=self._account, filter=query, page_size=page_size, page_token=page_token
        )
        return await self._call(lambda stub: stub.ListEnvelopes(request))

    async def watch(
        self,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[pb2.WatchEnvelopesResponse, None]:
        """Yield messages that match as they are accepted. Close the iterator to end the call."""
        request = pb2.WatchEnvelopesRequest(
            account=self._account,
            filter=query,
            after_position=after_position,
            with_deliveries=with_deliveries,
        )
        updates, first = await self._call(
            lambda stub: _begin(read_responses(stub.WatchEnvelopes(request)))
        )
        async with aclosing(updates):
            if first is not None:
                yield first
            async for update in updates:
                yield update

    async def replay(
        self, query: EnvelopeFilter, *, recipient: str = "", dry_run: bool = False
    ) -> list[str]:
        """Send messages again, to their recipients or another one; return the new ids.

        A dry run returns the ids of the messages that it would send again.
        """
        request = pb2.ReplayEnvelopesRequest(
            account=self._account,
            caller=self._caller,
            filter=query,
            recipient=recipient,
            dry_run=dry_run,
        )
        response = await self._call(
            lambda stub: stub.ReplayEnvelopes(request), patience_s=_OTHERS_S if dry_run else 0
        )
        return list(response.envelope_ids)

    async def redrive(self, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; return the number of deliveries."""
        request = pb2.RedriveEnvelopesRequest(account=self._account, filter=query)
        response = await self._call(lambda stub: stub.RedriveEnvelopes(request), patience_s=0)
        return response.deliveries

    async def purge(self, query: EnvelopeFilter) -> int:
        """Delete messages whose deliveries have ended; return their number."""
        request = pb2.PurgeEnvelopesRequest(account=self._account, filter=query)
        response = await self._call(lambda stub: stub.PurgeEnvelopes(request), patience_s=0)
        return response.envelopes

    async def join(self, room: str, member: str = "") -> Room:
        """Add an agent, or the user, to a room."""
        request = pb2.JoinRoomRequest(
            account=self._account, caller=self._caller, room=room, member=member
        )
        response = await self._call(lambda stub: stub.JoinRoom(request))
        return response.room

    async def leave(self, room: str, member: str = "") -> Room:
        """Remove an agent, or the user, from a room."""
        request = pb2.LeaveRoomRequest(
            account=self._account, caller=self._caller, room=room, member=member
        )
        response = await self._call(lambda stub: stub.LeaveRoom(request))
        return response.room

    async def list_rooms(self) -> list[Room]:
        """Return the rooms of the account, sorted by name."""
        request = pb2.ListRoomsRequest(account=self._account)
        response = await self._call(lambda stub: stub.ListRooms(request))
        return list(response.rooms)

    async def _call(
        self,
        call: Callable[
            ["messaging_service_pb2_grpc.MessagingServiceAsyncStub"], Awaitable[_Response]
        ],
        *,
        patience_s: float = _OTHERS_S,
    ) -> _Response:
        """Call the service, and again for so many seconds while no process answers."""
        window = RetryWindow(patience_s)
        while True:
            try:
                channel = self._directory.channel_for_service(SERVICE)
                # The directory prefers processes of which the last call did not fail.
                with channel.breaker.guard():
                    return await call(messaging_service_pb2_grpc.MessagingServiceStub(channel))
            except PeerUnavailableError as error:
                await asyncio.sleep(window.next_pause_s(error))


async def _begin(
    responses: AsyncGenerator[_Response, None],
) -> tuple[AsyncGenerator[_Response, None], _Response | None]:
    """Return the responses of a watch, and the first one, which the service sends at once."""
    return responses, await anext(responses, None)


def _answers(envelope: Envelope, sent: Envelope) -> bool:
    """Return whether a message is a reply to another one, within its conversation."""
    return (
        envelope.is_reply
        and envelope.causation_id == sent.envelope_id
        and envelope.correlation_id == sent.correlation_id
    )


def _has_ended(stored: StoredEnvelope) -> bool:
    """Return whether nobody will answer a message any more."""
    states = {delivery.state for delivery in stored.deliveries}
    if not states <= _ENDS.keys():
        return False
    if envelope_pb2.DELIVERY_STATE_HANDLED in states or not states:
        # Users read messages to them and to their rooms, and may answer later.
        return not (stored.envelope.room or is_user(stored.envelope.recipient))
    return True


def _unanswered(stored: StoredEnvelope) -> AgentCallError:
    """Return the error for a message that nobody will answer: why it failed, if it did."""
    envelope = stored.envelope
    message = f"message {envelope.envelope_id}"
    error = AgentCallError(envelope.recipient, "completed", f"{message} went to no agent", "")
    for delivery in stored.deliveries:
        attempt = delivery.attempts[-1] if delivery.attempts else envelope_pb2.DeliveryAttempt()
        state = _ENDS[delivery.state]
        default = f"{message} was handled" if state == "completed" else f"{message} ended"
        problem = attempt.problem or default
        error = AgentCallError(delivery.recipient, state, problem, attempt.task_id)
        if state != "completed":
            break
    return error
