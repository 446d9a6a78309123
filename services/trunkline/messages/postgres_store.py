"""The store of messages in PostgreSQL, which any number of processes share."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import (
    AsyncIterator,
    Collection,
    Sequence,
    Set,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Self, TypeVar

from trunkline.core.backoff import Backoff
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import MessagingSettings
from trunkline.errors import EnvelopeNotFoundError, FencedError, JournalUnavailableError
from trunkline.messages.page_tokens import make_page_token, read_page_token
from trunkline.messages.postgres_batch import MessageBatch, Write
from trunkline.messages.postgres_changes import ChangeListener
from trunkline.messages.postgres_queues import PostgresQueues
from trunkline.messages.postgres_tables import (
    SCHEMA,
    ClaimedDelivery,
    load_messages,
    number_conditions,
)
from trunkline.messages.postgres_writer import PostgresMessageWriter
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
    Codec,
    StoredAttempt,
    build_room,
    dead_letters,
    end_attempt,
    list_dead_recipients,
)
from trunkline.messages.watched_store import READ_LIMIT, Column, Matches, WatchedStore

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_WRITE_LIMIT: Final = 1_000
_NANO: Final = 10**9
_DEDUPLICATION_NS: Final = DEDUPLICATION_S * _NANO
_RENEWALS_PER_LEASE: Final = 3


class PostgresMessageStore(WatchedStore):
    """A store in a database; see `trunkline.messages.store.MessageStore`.

    All writes take the lock of one row, so that they are in one order, which is also the order in
    which other processes see them. Each process makes its waiting writes in one transaction.
    """

    mode = "database"

    def __init__(self, database: PostgresDatabase, settings: MessagingSettings) -> None:
        """`open` returns a store that is ready."""
        super().__init__()
        self._database = database
        self._lease_s = settings.lease_s
        process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._codec = Codec(None)
        self._is_reading = asyncio.Event()
        self._shares_again = asyncio.Event()
        self._listener = ChangeListener(
            database, process, on_change=self._wake, on_share=self._shares_again.set
        )
        self._writer = PostgresMessageWriter(
            database,
            self._codec,
            process=process,
            queue_limit=settings.queue_limit,
            on_change=self._notify,
        )
        self._queues = PostgresQueues(
            database, self._codec, process=process, lease_s=settings.lease_s
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: PostgresDatabase, settings: MessagingSettings
    ) -> AsyncIterator[Self]:
        """Open the store in a database, whose tables are created if they are missing.

        Raises:
            JournalUnavailableError: the database can't be used.
        """
        await database.prepare(SCHEMA)
        store = cls(database, settings)
        async with run_in_background(store._listener.notify_others()):
            async with (
                run_in_background(store._writer.run()),
                run_in_background(store._listener.listen()),
                run_in_background(store._keep_lease()),
            ):
                yield store
            with contextlib.suppress(JournalUnavailableError):
                await store._queues.release()
                await store._listener.notify_now(is_share=True)

    @property
    def partitions(self) -> list[int]:
        """The partitions whose deliveries this process makes."""
        return self._queues.partitions

    # Accepting messages.

    async def accept(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        """Store messages; see `MessageStore.accept`."""

        async def work(batch: MessageBatch) -> list[StoredEnvelope]:
            return batch.accept(messages)

        return await self._writer.write(Write(work, messages))

    # Deliveries.

    async def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries to make; see `MessageStore.deliveries`."""
        if not self._is_reading.is_set():
            await self._share()
            self._is_reading.set()
        while True:
            event = self._changed
            if batch := await self._queues.read():
                yield batch
            else:
                await event.wait()

    async def begin_attempt(
        self, delivery: QueuedDelivery, task_id: str, *, traceparent: str = ""
    ) -> QueuedDelivery:
        """Store the task of an attempt; see `MessageStore.begin_attempt`."""
        claimed = _as_claimed(delivery)

        async def work(batch: MessageBatch) -> ClaimedDelivery:
            count, attempts = batch.find_open(claimed)
            previous = attempts[-1].traceparent if attempts else ""
            attempt = StoredAttempt(task_id, time.time_ns(), None, "", traceparent)
            batch.update(claimed, RUNNING, count + 1, (*attempts, attempt), task_id=task_id)
            return replace(
                claimed,
                attempt_count=count + 1,
                task_id=task_id,
                not_before=0.0,
                previous_traceparent=previous,
            )

        return await self._write_delivery(claimed, Write(work, deliveries=[claimed]))

    async def postpone(
        self,
        delivery: QueuedDelivery,
        *,
        problem: str,
        not_before: float,
        is_failure: bool = True,
    ) -> QueuedDelivery:
        """Store when the next attempt begins; see `MessageStore.postpone`."""
        claimed = _as_claimed(delivery)

        async def work(batch: MessageBatch) -> ClaimedDelivery:
            count, attempts = batch.find_open(claimed)
            if is_failure:
                attempts = end_attempt(attempts, problem, time.time_ns())
            elif delivery.task_id:
                count, attempts = count - 1, attempts[:-1]
            batch.update(claimed, PENDING, count, attempts, not_before=not_before)
            return replace(claimed, attempt_count=count, task_id="", not_before=not_before)

        return await self._write_delivery(claimed, Write(work, deliveries=[claimed]))

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """End a delivery; see `MessageStore.end`."""
        claimed = _as_claimed(delivery)

        async def work(batch: MessageBatch) -> list[StoredEnvelope]:
            count, attempts = batch.find_open(claimed)
            batch.check(replies)
            attempts = end_attempt(attempts, problem, time.time_ns())
            batch.update(claimed, state, count, attempts)
            # Replies are beyond the limit of the queue, or their handlers would have to run again.
            return batch.accept(replies, is_limited=False)

        stored = await self._write_delivery(claimed, Write(work, replies, [claimed]))
        self._queues.remove(claimed)
        self._wake()
        return stored

    async def _write_delivery(self, delivery: ClaimedDelivery, write: Write[_T]) -> _T:
        try:
            return await self._writer.write(write)
        except FencedError:
            self._queues.remove(delivery)
            raise

    # Reading.

    async def get(self, account: str, envelope_id: str) -> StoredEnvelope:
        """Return a message; see `MessageStore.get`."""
        row = await self._database.fetchrow(
            "SELECT position FROM trunkline_messages WHERE account = $1 AND envelope_id = $2",
            account,
            envelope_id,
        )
        found = [] if row is None else await self._load([row["position"]])
        if not found:
            raise EnvelopeNotFoundError(envelope_id)
        return found[0]

    async def read_page(
        self, account: str, query: EnvelopeFilter, *, page_size: int, page_token: str = ""
    ) -> MessagePage:
        """Return a page of messages; see `MessageStore.read_page`."""
        before = read_page_token(page_token, account, query) if page_token else None
        found: list[StoredEnvelope] = []
        async for batch in self._search(account, query, before=before, limit=page_size + 1):
            found += batch
            if len(found) > page_size:
                found = found[:page_size]
                return MessagePage(found, make_page_token(found[-1].position, account, query))
        return MessagePage(found, "")

    # Operations.

    async def redrive(self, account: str, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; see `MessageStore.redrive`."""
        count = 0
        async for batch in self._search(account, dead_letters(query)):
            dead = [
                (stored.position, recipient)
                for stored in batch
                for recipient in list_dead_recipients(stored, query)
            ]
            count += await self._redrive(dead)
        return count

    async def _redrive(self, dead: Sequence[tuple[int, str]]) -> int:
        async def work(batch: MessageBatch) -> int:
            rows = await batch.connection.fetch(
                "UPDATE trunkline_deliveries SET state = $3, attempt_count = 0, task_id = '', "
                "not_before = 0, update_ns = $4 "
                "FROM unnest($1::bigint[], $2::text[]) AS k (p, r) "
                "WHERE position = k.p AND recipient = k.r AND state = $5 RETURNING position",
                [position for position, _ in dead],
                [recipient for _, recipient in dead],
                PENDING,
                time.time_ns(),
                DEAD,
            )
            for (position,) in rows:
                batch.note_change(position)
            batch.open_count += len(rows)
            return len(rows)

        return await self._writer.write(Write(work))

    async def purge(self, account: str, query: EnvelopeFilter) -> int:
        """Delete messages; see `MessageStore.purge`."""
        count = 0
        async for batch in self._search(account, query):
            count += await self._delete([stored.position for stored in batch])
        return count

    async def remove_old(self, *, before: float) -> int:
        """Delete old messages; see `MessageStore.remove_old`."""
        total = 0
        while True:
            rows = await self._database.fetch(
                "SELECT position FROM trunkline_messages m WHERE create_ns < $1 AND NOT EXISTS "
                "(SELECT 1 FROM trunkline_deliveries d WHERE d.position = m.position AND d.state "
                "IN (1, 2)) LIMIT $2",
                int(before * _NANO),
                _WRITE_LIMIT,
            )
            removed = await self._delete([position for (position,) in rows])
            if not removed:
                break
            total += removed
        await self._database.fetch(
            "DELETE FROM trunkline_deleted_messages WHERE create_ns < $1",
            time.time_ns() - _DEDUPLICATION_NS,
        )
        return total

    async def _delete(self, positions: Sequence[int]) -> int:
        """Delete messages whose deliveries have ended; return their number."""

        async def work(batch: MessageBatch) -> int:
            rows = await batch.connection.fetch(
                "WITH ended AS (DELETE FROM trunkline_messages m WHERE position = ANY($1) AND NOT "
                "EXISTS (SELECT 1 FROM trunkline_deliveries d WHERE d.position = m.position AND "
                "d.state IN (1, 2)) RETURNING position, account, envelope_id, create_ns), noted "
                "AS (INSERT INTO trunkline_deleted_messages (account, envelope_id, create_ns) "
                "SELECT account, envelope_id, create_ns FROM ended ON CONFLICT (account, "
                "envelope_id) DO UPDATE SET create_ns = excluded.create_ns), gone AS (DELETE FROM "
                "trunkline_deliveries d USING ended WHERE d.position = ended.position) SELECT "
                "position FROM ended",
                positions,
            )
            return len(rows)

        return await self._writer.write(Write(work)) if positions else 0

    # Rooms.

    async def join(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Add a member; see `MessageStore.join`."""
        statement = (
            "INSERT INTO trunkline_room_members (account, room, member, join_ns) VALUES ($1, $2, "
            "$3, $4) ON CONFLICT DO NOTHING RETURNING member"
        )
        values = (account, room, member, time.time_ns())
        return await self._change_members(account, room, statement, values, notice)

    async def leave(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Remove a member; see `MessageStore.leave`."""
        statement = (
            "DELETE FROM trunkline_room_members WHERE account = $1 AND room = $2 AND member = $3 "
            "RETURNING member"
        )
        return await self._change_members(account, room, statement, (account, room, member), notice)

    async def _change_members(
        self,
        account: str,
        room: str,
        statement: str,
        values: Sequence[object],
        notice: NewMessage,
    ) -> Room:
        """Change the members of a room; accept the notice if there was a change."""

        async def work(batch: MessageBatch) -> None:
            batch.check([notice])
            if await batch.connection.fetch(statement, *values):
                batch.accept([notice], is_limited=False)

        await self._writer.write(Write(work, [notice]))
        return await self.get_room(account, room)

    async def get_room(self, account: str, room: str) -> Room:
        """Return a room; see `MessageStore.get_room`."""
        rows = await self._database.fetch(
            "SELECT member, join_ns FROM trunkline_room_members WHERE account = $1 AND room = $2",
            account,
            room,
        )
        return build_room(room, dict(map(tuple, rows)))

    async def list_rooms(self, account: str) -> list[Room]:
        """Return the rooms; see `MessageStore.list_rooms`."""
        rows = await self._database.fetch(
            "SELECT room, member, join_ns FROM trunkline_room_members WHERE account = $1", account
        )
        rooms: dict[str, dict[str, int]] = {}
        for room, member, join_ns in rows:
            rooms.setdefault(room, {})[member] = join_ns
        return [build_room(room, rooms[room]) for room in sorted(rooms)]

    # Agents.

    async def add_agents(self, names: Collection[str]) -> None:
        """Note agents; see `MessageStore.add_agents`."""

        async def work(batch: MessageBatch) -> None:
            await batch.connection.execute(
                "INSERT INTO trunkline_known_agents (name) SELECT DISTINCT unnest($1::text[]) "
                "ON CONFLICT (name) DO UPDATE SET seen = excluded.seen",
                list(names),
            )
            await batch.connection.execute(
                "DELETE FROM trunkline_known_agents WHERE name IN "
                "(SELECT name FROM trunkline_known_agents ORDER BY seen DESC OFFSET $1)",
                AGENTS_LIMIT,
            )

        await self._writer.write(Write(work))

    async def list_agents(self) -> Set[str]:
        """Return the agents; see `MessageStore.list_agents`."""
        return {
            name
            for (name,) in await self._database.fetch("SELECT name FROM trunkline_known_agents")
        }

    # Rows.

    async def _search(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        before: int | None = None,
        limit: int = READ_LIMIT,
    ) -> AsyncIterator[list[StoredEnvelope]]:
        """Yield the messages that match, newest first."""
        conditions, values = number_conditions(account, query)
        limit = min(limit, READ_LIMIT)
        count = len(values)
        select = " ".join(
            (
                "SELECT position FROM trunkline_messages AS messages WHERE",
                conditions,
                f"AND (${count + 1}::bigint IS NULL OR position < ${count + 1})",
                f"ORDER BY position DESC LIMIT ${count + 2}",
            )
        )
        while True:
            rows = await self._database.fetch(select, *values, before, limit)
            if rows:
                yield await self._load([position for (position,) in rows])
            if len(rows) < limit:
                return
            before = rows[-1]["position"]

    async def _read_after(
        self, account: str, query: EnvelopeFilter, column: Column, after: int
    ) -> Matches:
        newest = await self._read_newest(column)
        conditions, values = number_conditions(account, query)
        count = len(values)
        rows = await self._database.fetch(
            " ".join(
                (
                    f"SELECT position, {column} AS number",
                    "FROM trunkline_messages AS messages WHERE",
                    conditions,
                    f"AND {column} > ${count + 1} ORDER BY {column} LIMIT ${count + 2}",
                )
            ),
            *values,
            after,
            READ_LIMIT,
        )
        messages = await self._load([row["position"] for row in rows])
        return Matches(messages, [row["number"] for row in rows], newest)

    async def _find_change_before(self, position: int) -> int:
        newest = await self._read_newest("change")
        row = await self._database.fetchrow(
            "SELECT min(change) AS first FROM trunkline_messages WHERE position > $1", position
        )
        first = None if row is None else row["first"]
        return newest if first is None else int(first) - 1

    async def _load(self, positions: Sequence[int]) -> list[StoredEnvelope]:
        return await self._database.run(
            lambda connection: load_messages(connection, positions, self._codec)
        )

    async def _read_newest(self, column: Column) -> int:
        ((newest,),) = await self._database.fetch(
            f"SELECT {column} FROM trunkline_message_counters"  # noqa: S608  it is a constant
        )
        return int(newest)

    # Processes.

    async def _keep_lease(self) -> None:
        """Renew the lease, once deliveries are read."""
        await self._is_reading.wait()
        backoff = Backoff()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / _RENEWALS_PER_LEASE):
                    await self._shares_again.wait()
            self._shares_again.clear()
            try:
                await self._share()
            except JournalUnavailableError as error:
                logger.debug("messages.not_renewed", extra={"problem": error.problem})
                await backoff.pause()
                self._shares_again.set()
            else:
                backoff.reset()

    async def _share(self) -> None:
        if await self._queues.share():
            self._listener.notify(is_share=True)
        # Also without a notification, which a lost connection or a pooler may swallow.
        self._wake()

    def _notify(self) -> None:
        """Wake the readers of this process and of others."""
        self._wake()
        self._listener.notify()


def _as_claimed(delivery: QueuedDelivery) -> ClaimedDelivery:
    if not isinstance(delivery, ClaimedDelivery):
        raise TypeError("the delivery is not one of this store")
    return delivery
