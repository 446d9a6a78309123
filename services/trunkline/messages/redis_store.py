"""The distributed store: messages, deliveries and rooms in Redis or Valkey.

Any number of processes use it at once. Every write is one script, so it is done as a whole or not
at all. With encryption keys, messages and the attempts of deliveries are encrypted under a key that
all processes derive from the configured keys. Ids, names and times are not encrypted.
"""

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.core.encryption import Keyring
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import MessagingSettings
from trunkline.errors import (
    FencedError,
    PeerUnavailableError,
    QueueFullError,
)
from trunkline.messages import redis_scripts as scripts
from trunkline.messages.page_tokens import make_page_token, read_page_token
from trunkline.messages.redis_changes import ChangeFollower
from trunkline.messages.redis_connection import PEER, check_server, connect, translate_errors
from trunkline.messages.redis_messages import MessageReader
from trunkline.messages.redis_partitions import PartitionReader
from trunkline.messages.redis_pipeline import ScriptPipeline
from trunkline.messages.redis_records import (
    DeliveryRecord,
    GrantedDelivery,
    RedisCodec,
    attempts_place,
    key_prefix,
    routing,
)
from trunkline.messages.store import (
    DeliveryState,
    EnvelopeFilter,
    MessagePage,
    NewMessage,
    QueuedDelivery,
    Room,
    StoredEnvelope,
)
from trunkline.messages.stored_form import (
    AGENTS_LIMIT,
    DEAD,
    DEDUPLICATION_S,
    PENDING,
    RUNNING,
    StoredAttempt,
    StoredAttempts,
    build_accepted,
    build_room,
    check_repetition,
    dead_letters,
    deleted_id_error,
    end_attempt,
    list_dead_recipients,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_READ_LIMIT: Final = 500
_WRITE_LIMIT: Final = 200


class RedisMessageStore:
    """A store in Redis; see `trunkline.messages.store.MessageStore`."""

    mode = "distributed"

    def __init__(
        self, client: "Redis", settings: MessagingSettings, *, keyring: Keyring | None = None
    ) -> None:
        """`open` returns a store that is ready."""
        # The library's types have the answers of all its clients and protocols.
        self._client: Any = client
        self._settings = settings
        self._prefix = key_prefix(settings)
        self._pipeline = ScriptPipeline(client, self._prefix, replicas=settings.replicas)
        self._run = self._pipeline.call
        cipher = None if keyring is None else keyring.shared_cipher("messages", name=PEER)
        self._codec = RedisCodec(cipher)
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """The name of this process as a consumer."""
        self._reader = PartitionReader(
            client, self._run, self._codec, owner=self.owner, settings=settings
        )
        self._changes = ChangeFollower(
            client, self._prefix, self._reader.notify, on_return=self._reader.read_again
        )
        self._messages = MessageReader(client, self._prefix, self._codec, self._changes)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: MessagingSettings, *, keyring: Keyring | None = None
    ) -> AsyncIterator[Self]:
        """Open the store at the address of the settings.

        Raises:
            ConfigurationError: the address is wrong, or the server too old.
            PeerUnavailableError: it does not answer.
        """
        client = connect(settings.url)
        try:
            await check_server(client)
            store = cls(client, settings, keyring=keyring)
            await store._changes.start()
            async with run_in_background(store._pipeline.run()):
                async with (
                    run_in_background(store._changes.follow()),
                    run_in_background(store._reader.keep_leases()),
                ):
                    yield store
                with contextlib.suppress(PeerUnavailableError):
                    await store._reader.release()
        finally:
            await client.aclose()

    @property
    def partitions(self) -> list[int]:
        """The partitions whose deliveries this process makes."""
        return self._reader.partitions

    # Accepting messages.

    async def accept(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        """Store messages; see `MessageStore.accept`."""
        first: dict[tuple[str, str], NewMessage] = {}
        for message in messages:
            key = (message.account, message.envelope.envelope_id)
            check_repetition(first.setdefault(key, message).envelope, message.envelope)
        unique = list(first.values())
        known: dict[tuple[str, str], StoredEnvelope] = {}
        while True:
            answer = await self._run(
                scripts.ACCEPT,
                self._settings.queue_limit,
                len(known),
                *("\0".join(key) for key in known),
                *self._encode(unique),
            )
            match answer[0]:
                case b"full":
                    raise QueueFullError(str(self._settings.queue_limit))
                case b"stored":
                    break
                case _:
                    await self._check_known(unique, answer[1], known)
        stored = dict(zip(first, map(build_accepted, unique, answer[1]), strict=True)) | known
        return [stored[each.account, each.envelope.envelope_id] for each in messages]

    async def _check_known(
        self,
        messages: Sequence[NewMessage],
        found: Sequence[Any],
        known: dict[tuple[str, str], StoredEnvelope],
    ) -> None:
        """Add the stored messages that new messages repeat to `known`. Others are refused."""
        for index, position in zip(found[::2], found[1::2], strict=True):
            message = messages[index - 1]
            envelope_id = message.envelope.envelope_id
            if int(position) == 0:
                raise deleted_id_error(envelope_id)
            loaded = await self._messages.load([int(position)])
            if loaded:
                check_repetition(loaded[0].envelope, message.envelope)
                known[message.account, envelope_id] = loaded[0]

    def _encode(self, messages: Sequence[NewMessage]) -> list[bytes | str | int]:
        arguments: list[bytes | str | int] = [len(messages)]
        for message in messages:
            arguments += self._codec.encode_message(message)
        return arguments

    # Deliveries.

    async def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries to make; see `MessageStore.deliveries`."""
        async for batch in self._reader.batches():
            yield batch

    async def begin_attempt(
        self, delivery: QueuedDelivery, task_id: str, *, traceparent: str = ""
    ) -> QueuedDelivery:
        """Store the task of an attempt; see `MessageStore.begin_attempt`.

        If the answer to an earlier call was lost, the result is the attempt that it began.
        """
        granted = _as_granted(delivery)
        while True:
            before = DeliveryRecord.decode(granted.record)
            if before.state == RUNNING:
                record, attempts = before, granted.attempts
            else:
                now = time.time_ns()
                record = DeliveryRecord(RUNNING, now, before.attempt_count + 1, task_id)
                attempt = StoredAttempt(task_id, now, None, "", traceparent)
                attempts = (*granted.attempts, attempt)
            granted = await self._update(granted, record, attempts)
            if granted.record == record.encode():
                earlier = granted.attempts[:-1]
                return replace(
                    granted,
                    attempt_count=record.attempt_count,
                    task_id=record.task_id,
                    not_before=0.0,
                    previous_traceparent=earlier[-1].traceparent if earlier else "",
                )

    async def postpone(
        self,
        delivery: QueuedDelivery,
        *,
        problem: str,
        not_before: float,
        is_failure: bool = True,
    ) -> QueuedDelivery:
        """Store when the next attempt begins; see `MessageStore.postpone`."""
        granted = _as_granted(delivery)
        while True:
            now = time.time_ns()
            before = DeliveryRecord.decode(granted.record)
            count, attempts = before.attempt_count, granted.attempts
            if is_failure:
                attempts = end_attempt(attempts, problem, now)
            elif before.state == RUNNING:
                count -= 1
                attempts = attempts[:-1]
            record = DeliveryRecord(PENDING, now, count, "", not_before)
            written = await self._update(granted, record, attempts)
            after = DeliveryRecord.decode(written.record)
            if after == record:
                return replace(written, attempt_count=count, task_id="", not_before=not_before)
            if after.state == PENDING:
                # An earlier call, whose answer was lost, stored it.
                return replace(
                    written,
                    attempt_count=after.attempt_count,
                    task_id="",
                    not_before=after.not_before,
                )
            granted = written

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """End a delivery; see `MessageStore.end`."""
        granted = _as_granted(delivery)
        while True:
            now = time.time_ns()
            before = DeliveryRecord.decode(granted.record)
            attempts = end_attempt(granted.attempts, problem, now)
            record = DeliveryRecord(state, now, before.attempt_count, before.task_id)
            answer = await self._write(
                scripts.END, granted, record, attempts, self._settings.group, granted.entry,
                *self._encode(replies),
            )  # fmt: skip
            if answer[0] == b"stored":
                break
            granted = self._refresh(granted, answer)
        self._reader.remove(granted)
        return [
            build_accepted(reply, position) if position else await self._get_reply(reply)
            for reply, position in zip(replies, answer[1], strict=True)
        ]

    async def _get_reply(self, reply: NewMessage) -> StoredEnvelope:
        return await self.get(reply.account, reply.envelope.envelope_id)

    async def _update(
        self,
        granted: GrantedDelivery,
        record: DeliveryRecord,
        attempts: StoredAttempts,
    ) -> GrantedDelivery:
        """Write a record; return the delivery with it, or with a record that was written before."""
        answer = await self._write(scripts.UPDATE, granted, record, attempts)
        if answer[0] == b"stored":
            return replace(granted, record=record.encode(), attempts=attempts)
        return self._refresh(granted, answer)

    async def _write(
        self,
        script: str,
        granted: GrantedDelivery,
        record: DeliveryRecord,
        attempts: StoredAttempts,
        *further: bytes | str | int,
    ) -> Any:  # noqa: ANN401  the answer of the script
        key = granted.key
        answer = await self._run(
            script,
            granted.grant.partition,
            granted.grant.lease,
            granted.position,
            key.recipient,
            granted.record,
            record.encode(),
            self._codec.encode_attempts(attempts, attempts_place(key)),
            *further,
        )
        if answer[0] == b"fenced":
            self._reader.remove(granted)
            raise FencedError(granted.task_id or key.envelope_id)
        return answer

    def _refresh(self, granted: GrantedDelivery, answer: Sequence[bytes]) -> GrantedDelivery:
        """Return a delivery with its stored record and attempts.

        Raises:
            FencedError: it has ended.
        """
        key = granted.key
        if not answer[1] or not DeliveryRecord.decode(answer[1]).is_open:
            self._reader.remove(granted)
            raise FencedError(granted.task_id or key.envelope_id)
        attempts = self._codec.decode_attempts(answer[2], attempts_place(key))
        return replace(granted, record=answer[1], attempts=attempts)

    # Reading.

    async def get(self, account: str, envelope_id: str) -> StoredEnvelope:
        """Return a message; see `MessageStore.get`."""
        return await self._messages.get(account, envelope_id)

    async def read_page(
        self, account: str, query: EnvelopeFilter, *, page_size: int, page_token: str = ""
    ) -> MessagePage:
        """Return a page of messages; see `MessageStore.read_page`."""
        before = read_page_token(page_token, account, query) if page_token else 0
        found: list[StoredEnvelope] = []
        async for batch in self._messages.search(account, query, before=before, wanted=page_size):
            found += batch
            if len(found) > page_size:
                found = found[:page_size]
                return MessagePage(found, make_page_token(found[-1].position, account, query))
        return MessagePage(found, "")

    def watch(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[tuple[Sequence[StoredEnvelope], int], None]:
        """Yield messages that match; see `MessageStore.watch`."""
        return self._messages.watch(
            account, query, after_position=after_position, with_deliveries=with_deliveries
        )

    # Operations.

    async def redrive(self, account: str, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; see `MessageStore.redrive`."""
        count = 0
        async for batch in self._messages.search(account, dead_letters(query)):
            # Oldest first: conversations are delivered in order.
            for stored in reversed(batch):
                count += await self._redrive(stored, list_dead_recipients(stored, query))
        return count

    async def _redrive(self, stored: StoredEnvelope, recipients: Sequence[str]) -> int:
        if not recipients:
            return 0
        names = [f"d:{recipient}" for recipient in recipients]
        async with translate_errors():
            records = await self._client.hmget(f"{self._prefix}:m:{stored.position}", names)
        arguments: list[bytes | str | int] = [len(recipients)]
        for recipient, record in zip(recipients, records, strict=True):
            route = routing(stored.account, recipient, stored.envelope)
            is_dead = record and DeliveryRecord.decode(record).state == DEAD
            pending = DeliveryRecord(PENDING, time.time_ns()).encode()
            arguments += [stored.position, recipient, *route, record if is_dead else "", pending]
        return int(await self._run(scripts.REDRIVE, *arguments))

    async def purge(self, account: str, query: EnvelopeFilter) -> int:
        """Delete messages; see `MessageStore.purge`."""
        count = 0
        async for batch in self._messages.search(account, query):
            count += await self._delete([stored.position for stored in batch])
        return count

    async def remove_old(self, *, before: float) -> int:
        """Delete old messages; see `MessageStore.remove_old`."""
        count = skipped = 0
        while True:
            positions = await self._messages.select_positions(
                "times", "-inf", f"({before * 1000:.4f}", skip=skipped, limit=_READ_LIMIT
            )
            deleted = await self._delete(positions)
            count += deleted
            # Messages with open deliveries stay, and are skipped.
            skipped += len(positions) - deleted
            if len(positions) < _READ_LIMIT:
                return count

    async def _delete(self, positions: Sequence[int]) -> int:
        """Delete messages whose deliveries have ended; return their number."""
        count = 0
        for first in range(0, len(positions), _WRITE_LIMIT):
            part = positions[first : first + _WRITE_LIMIT]
            count += int(await self._run(scripts.DELETE, DEDUPLICATION_S * 1000, *part))
        return count

    # Agents.

    async def add_agents(self, names: Collection[str]) -> None:
        """Note agents; see `MessageStore.add_agents`."""
        if not names:
            return
        key = f"{self._prefix}:agents"
        now = time.time_ns() / 1e9
        async with translate_errors():
            pipeline = self._client.pipeline(transaction=True)
            pipeline.zadd(key, dict.fromkeys(names, now))
            pipeline.zremrangebyrank(key, 0, -AGENTS_LIMIT - 1)
            await pipeline.execute()

    async def list_agents(self) -> Set[str]:
        """Return the agents that were noted."""
        async with translate_errors():
            names = await self._client.zrange(f"{self._prefix}:agents", 0, -1)
        return {name.decode() for name in names}

    # Rooms.

    async def join(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Add a member; see `MessageStore.join`."""
        return await self._change_membership(account, room, member, "join", notice)

    async def leave(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Remove a member; see `MessageStore.leave`."""
        return await self._change_membership(account, room, member, "leave", notice)

    async def _change_membership(
        self, account: str, room: str, member: str, event: str, notice: NewMessage
    ) -> Room:
        arguments = (account, room, member, time.time_ns(), event, *self._encode([notice]))
        fields = await self._run(scripts.MEMBERSHIP, *arguments)
        return _read_room(room, dict(zip(fields[::2], fields[1::2], strict=True)))

    async def get_room(self, account: str, room: str) -> Room:
        """Return a room; see `MessageStore.get_room`."""
        async with translate_errors():
            fields = await self._client.hgetall(f"{self._prefix}:room:{account}\0{room}")
        return _read_room(room, fields)

    async def list_rooms(self, account: str) -> list[Room]:
        """Return the rooms; see `MessageStore.list_rooms`."""
        async with translate_errors():
            names = await self._client.smembers(f"{self._prefix}:rooms:{account}")
        rooms = [await self.get_room(account, name.decode()) for name in sorted(names)]
        return [room for room in rooms if room.members]


def _as_granted(delivery: QueuedDelivery) -> GrantedDelivery:
    if not isinstance(delivery, GrantedDelivery):
        raise TypeError("the delivery is not one of this store")
    return delivery


def _read_room(room: str, fields: Mapping[bytes, bytes]) -> Room:
    return build_room(room, {name.decode(): int(time_ns) for name, time_ns in fields.items()})
