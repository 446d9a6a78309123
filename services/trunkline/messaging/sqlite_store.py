"""The local store: messages, deliveries and rooms in one SQLite file.

One process has the file open. Writes that are pending together are one transaction. With an
encryption key, messages and the problems of deliveries are encrypted; ids, names and times are not.
"""

import asyncio
import json
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Sequence,
    Set,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar

from trunkline.database import Database
from trunkline.encryption import Keyring
from trunkline.errors import (
    EnvelopeNotFoundError,
    FencedError,
    InvalidArgumentError,
    QueueFullError,
)
from trunkline.messaging.envelope_filter import is_repetition, matches
from trunkline.messaging.group_writer import GroupWriter
from trunkline.messaging.page_tokens import make_page_token, read_page_token
from trunkline.messaging.sqlite_lanes import Lanes
from trunkline.messaging.sqlite_tables import SCHEMA, StoredAttempt, build_conditions, end_attempt
from trunkline.messaging.store import (
    DeliveryKey,
    DeliveryState,
    Envelope,
    EnvelopeFilter,
    MessagePage,
    NewMessage,
    QueuedDelivery,
    Room,
    StoredEnvelope,
)
from trunkline.private_files import create_private_folder
from trunkline.v1 import envelope_pb2, messaging_service_pb2

_P = ParamSpec("_P")
_T = TypeVar("_T")
_READ_LIMIT: Final = 500
_WRITE_LIMIT: Final = 1_000
_STORED_ATTEMPTS: Final = 20
_AGENTS_LIMIT: Final = 10_000
_DEDUPLICATION_NS: Final = 24 * 3600 * 10**9
_NANO: Final = 10**9
# The time that an earlier process has to close the file.
_LOCK_WAIT_S: Final = 10.0
_PENDING: Final = envelope_pb2.DELIVERY_STATE_PENDING
_RUNNING: Final = envelope_pb2.DELIVERY_STATE_RUNNING
_DEAD: Final = envelope_pb2.DELIVERY_STATE_DEAD
_SELECT_DELIVERY: Final = """
SELECT state, attempt_count, task_id, not_before, attempts, update_ns FROM deliveries
WHERE position = ? AND recipient = ?
"""


class SqliteMessageStore:
    """A store in a file; see `trunkline.messaging.store.MessageStore`."""

    mode = "local"

    def __init__(
        self,
        path: Path,
        *,
        queue_limit: int = 100_000,
        prefetch: int = 256,
        synchronous: Literal["normal", "full"] = "normal",
        keyring: Keyring | None = None,
    ) -> None:
        """Open the file, or create it.

        `queue_limit` is the number of deliveries that may wait, and `prefetch` that of deliveries
        to one recipient of one priority that the dispatcher has at once.

        Raises:
            JournalUnavailableError: the file can't be used, or another process has it open.
        """
        self._queue_limit = queue_limit
        self._cipher = keyring.cipher("messages", name=str(path)) if keyring is not None else None
        create_private_folder(path.parent)
        self._changed = asyncio.Event()
        self._file = Database(path, SCHEMA, synchronous=synchronous, lock_wait_s=_LOCK_WAIT_S)
        self._database = self._file.connection
        self._writer = GroupWriter(self._file, on_commit=self._notify)
        self._counters = self._writer.counters
        self._write = self._writer.write
        self._counters.position = self._count("SELECT value FROM counters WHERE name = 'position'")
        self._counters.change = self._count("SELECT value FROM counters WHERE name = 'change'")
        self._counters.open_count = self._count(
            "SELECT count(*) FROM deliveries WHERE state IN (1, 2)"
        )
        self._lanes = Lanes(self._database, self._build_delivery, prefetch=prefetch)
        with self._file.read():
            self._lanes.find()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._file.close)

    async def _run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that reads, in the thread of the file."""

        def read() -> _T:
            with self._file.read():
                return function(*args, **kwargs)

        return await self._file.run(read)

    # Accepting messages.

    async def accept(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        """Store messages; see `MessageStore.accept`."""
        return await self._write(lambda: self._insert_all(messages))

    def _insert_all(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        deliveries = sum(len(message.recipients) for message in messages)
        if deliveries and self._counters.open_count + deliveries > self._queue_limit:
            raise QueueFullError(str(self._queue_limit))
        return [self._insert(message) for message in messages]

    def _insert(self, message: NewMessage) -> StoredEnvelope:
        envelope = message.envelope
        key = (message.account, envelope.envelope_id)
        known = self._database.execute(
            "SELECT position FROM messages WHERE account = ? AND envelope_id = ?", key
        ).fetchone()
        if known is not None:
            stored = self._load(known[0])
            if not is_repetition(stored.envelope, envelope):
                problem = f"{envelope.envelope_id!r} was used for another message; choose a new one"
                raise InvalidArgumentError("envelope_id", problem)
            return stored
        if self._database.execute(
            "SELECT 1 FROM deleted WHERE account = ? AND envelope_id = ? AND create_ns > ?",
            (*key, time.time_ns() - _DEDUPLICATION_NS),
        ).fetchone():
            problem = f"{envelope.envelope_id!r} was used for a deleted message; choose a new one"
            raise InvalidArgumentError("envelope_id", problem)
        self._counters.position += 1
        self._counters.change += 1
        created = envelope.create_time.ToNanoseconds()
        self._database.execute(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._counters.position,
                *key,
                envelope.correlation_id,
                envelope.causation_id,
                envelope.room,
                envelope.type,
                envelope.sender,
                envelope.recipient,
                message.caller,
                created,
                self._encrypt(envelope.SerializeToString(), f"message {self._counters.position}"),
                self._counters.change,
            ),
        )
        recipients = list(dict.fromkeys(message.recipients))
        correlation = (message.account, envelope.correlation_id)
        for recipient in recipients:
            lane = self._lanes.choose(*correlation, recipient, envelope)
            self._database.execute(
                "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, 0, '', 0, X'', ?)",
                (self._counters.position, recipient, lane, *correlation, _PENDING, created),
            )
        self._counters.open_count += len(recipients)
        stored = StoredEnvelope(
            envelope=envelope,
            position=self._counters.position,
            account=message.account,
            caller=message.caller,
        )
        for recipient in recipients:
            delivery = stored.deliveries.add(recipient=recipient, state=_PENDING)
            delivery.update_time.FromNanoseconds(created)
        return stored

    # Deliveries.

    async def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries to make; see `MessageStore.deliveries`."""
        while True:
            event = self._changed
            if batch := await self._run(self._lanes.read):
                yield batch
            else:
                await event.wait()

    def _build_delivery(self, row: Sequence[Any]) -> QueuedDelivery:
        position, recipient, attempt_count, task_id, not_before, state, account, caller, body = row
        envelope = Envelope.FromString(self._decrypt(body, f"message {position}"))
        return QueuedDelivery(
            DeliveryKey(account, envelope.envelope_id, recipient),
            position,
            envelope,
            caller,
            attempt_count,
            task_id if state == _RUNNING else "",
            not_before,
        )

    async def begin_attempt(
        self, delivery: QueuedDelivery, task_id: str, *, traceparent: str = ""
    ) -> QueuedDelivery:
        """Store the task of an attempt; see `MessageStore.begin_attempt`."""

        def write() -> QueuedDelivery:
            count, attempts = self._load_attempts(delivery)
            previous = attempts[-1].traceparent if attempts else ""
            attempts.append(StoredAttempt(task_id, time.time_ns(), None, "", traceparent))
            self._update(delivery, _RUNNING, count + 1, attempts, task_id=task_id)
            return replace(
                delivery,
                attempt_count=count + 1,
                task_id=task_id,
                not_before=0.0,
                previous_traceparent=previous,
            )

        return await self._write(write)

    async def postpone(
        self,
        delivery: QueuedDelivery,
        *,
        problem: str,
        not_before: float,
        is_failure: bool = True,
    ) -> QueuedDelivery:
        """Store when the next attempt begins; see `MessageStore.postpone`."""

        def write() -> QueuedDelivery:
            count, attempts = self._load_attempts(delivery)
            if is_failure:
                end_attempt(attempts, problem)
            elif delivery.task_id:
                count -= 1
                attempts.pop()
            self._update(delivery, _PENDING, count, attempts, not_before=not_before)
            return replace(delivery, attempt_count=count, task_id="", not_before=not_before)

        return await self._write(write)

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """End a delivery; see `MessageStore.end`."""

        def write() -> list[StoredEnvelope]:
            count, attempts = self._load_attempts(delivery)
            end_attempt(attempts, problem)
            self._update(delivery, state, count, attempts)
            self._counters.open_count -= 1
            self._note_change(delivery.position)
            # The limit of the queue does not hold for replies, or handlers would have to run again.
            return [self._insert(reply) for reply in replies]

        return await self._write(write, on_done=partial(self._lanes.take_back, delivery.key))

    def _note_change(self, position: int) -> None:
        """Make watches of deliveries yield a message again."""
        self._counters.change += 1
        self._database.execute(
            "UPDATE messages SET change = ? WHERE position = ?", (self._counters.change, position)
        )

    def _load_attempts(self, delivery: QueuedDelivery) -> tuple[int, list[StoredAttempt]]:
        row = self._database.execute(
            _SELECT_DELIVERY, (delivery.position, delivery.key.recipient)
        ).fetchone()
        if row is None or row[0] not in (_PENDING, _RUNNING):
            raise FencedError(delivery.task_id or delivery.key.envelope_id)
        return int(row[1]), self._read_attempts(row[4], delivery.position, delivery.key.recipient)

    def _read_attempts(self, stored: bytes, position: int, recipient: str) -> list[StoredAttempt]:
        if not stored:
            return []
        content = self._decrypt(stored, f"attempts {position} {recipient}")
        return [StoredAttempt(*fields) for fields in json.loads(content)]

    def _update(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        count: int,
        attempts: list[StoredAttempt],
        *,
        task_id: str = "",
        not_before: float = 0.0,
    ) -> None:
        position, recipient = delivery.position, delivery.key.recipient
        content = json.dumps(attempts[-_STORED_ATTEMPTS:], ensure_ascii=False).encode()
        self._database.execute(
            "UPDATE deliveries SET state = ?, attempt_count = ?, task_id = ?, not_before = ?,"
            " attempts = ?, update_ns = ? WHERE position = ? AND recipient = ?",
            (
                state,
                count,
                task_id,
                not_before,
                self._encrypt(content, f"attempts {position} {recipient}"),
                time.time_ns(),
                position,
                recipient,
            ),
        )

    # Reading.

    async def get(self, account: str, envelope_id: str) -> StoredEnvelope:
        """Return a message; see `MessageStore.get`."""

        def read() -> StoredEnvelope:
            row = self._database.execute(
                "SELECT position FROM messages WHERE account = ? AND envelope_id = ?",
                (account, envelope_id),
            ).fetchone()
            if row is None:
                raise EnvelopeNotFoundError(envelope_id)
            return self._load(row[0])

        return await self._run(read)

    async def read_page(
        self, account: str, query: EnvelopeFilter, *, page_size: int, page_token: str = ""
    ) -> MessagePage:
        """Return a page of messages; see `MessageStore.read_page`."""
        before = read_page_token(page_token, account, query) if page_token else 2**62

        def read() -> MessagePage:
            found: list[StoredEnvelope] = []
            for stored in self._search(account, query, before=before):
                if len(found) == page_size:
                    token = make_page_token(found[-1].position, account, query)
                    return MessagePage(found, token)
                found.append(stored)
            return MessagePage(found, "")

        return await self._run(read)

    async def watch(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[tuple[Sequence[StoredEnvelope], int], None]:
        """Yield messages that match; see `MessageStore.watch`."""
        position = self._counters.position if after_position is None else after_position
        change = self._counters.change
        if with_deliveries and after_position is not None:
            change = await self._run(self._change_before, after_position)
        is_first = True
        while True:
            event = self._changed
            if with_deliveries:
                rows, change, is_end = await self._run(self._select_changed, account, query, change)
                position = max([position, *(stored.position for stored in rows)])
            else:
                rows, position, is_end = await self._run(
                    self._select_after, account, query, position
                )
            if rows or is_first:
                is_first = False
                yield rows, position
            if is_end:
                await event.wait()

    # Operations.

    async def redrive(self, account: str, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; see `MessageStore.redrive`."""
        dead_only = EnvelopeFilter()
        dead_only.CopyFrom(query)
        dead_only.ClearField("states")
        dead_only.states.append(_DEAD)

        def write() -> list[tuple[int, str]]:
            dead = [
                (stored.position, delivery.recipient)
                for stored in self._search(account, dead_only)
                for delivery in stored.deliveries
                if delivery.state == _DEAD
                and query.recipient in ("", stored.envelope.recipient, delivery.recipient)
            ]
            self._database.executemany(
                "UPDATE deliveries SET state = 1, attempt_count = 0, task_id = '', not_before = 0,"
                " update_ns = ? WHERE position = ? AND recipient = ?",
                [(time.time_ns(), *key) for key in dead],
            )
            for position, _ in dead:
                self._note_change(position)
            self._counters.open_count += len(dead)
            return dead

        dead = await self._write(write)
        await self._run(self._lanes.read_again, dead)
        self._notify()
        return len(dead)

    async def purge(self, account: str, query: EnvelopeFilter) -> int:
        """Delete messages; see `MessageStore.purge`."""

        def write() -> int:
            ended = [
                stored.position
                for stored in self._search(account, query)
                if all(d.state not in (_PENDING, _RUNNING) for d in stored.deliveries)
            ]
            self._delete(ended)
            return len(ended)

        return await self._write(write)

    async def remove_old(self, *, before: float) -> int:
        """Delete old messages; see `MessageStore.remove_old`."""

        def write() -> int:
            rows = self._database.execute(
                "SELECT position FROM messages m WHERE create_ns < ? AND NOT EXISTS (SELECT 1 FROM"
                " deliveries d WHERE d.position = m.position AND d.state IN (1, 2)) LIMIT ?",
                (int(before * _NANO), _WRITE_LIMIT),
            ).fetchall()
            self._delete([position for (position,) in rows])
            self._database.execute(
                "DELETE FROM deleted WHERE create_ns < ?", (time.time_ns() - _DEDUPLICATION_NS,)
            )
            return len(rows)

        total = 0
        while removed := await self._write(write):
            total += removed
        return total

    def _delete(self, positions: Sequence[int]) -> None:
        keys = [(position,) for position in positions]
        self._database.executemany(
            "INSERT OR REPLACE INTO deleted SELECT account, envelope_id, create_ns FROM messages"
            " WHERE position = ?",
            keys,
        )
        self._database.executemany("DELETE FROM deliveries WHERE position = ?", keys)
        self._database.executemany("DELETE FROM messages WHERE position = ?", keys)

    # Rooms.

    async def join(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Add a member; see `MessageStore.join`."""

        def write() -> Room:
            cursor = self._database.execute(
                "INSERT OR IGNORE INTO members VALUES (?, ?, ?, ?)",
                (account, room, member, time.time_ns()),
            )
            if cursor.rowcount:
                self._insert(notice)
            return self._load_room(account, room)

        return await self._write(write)

    async def leave(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Remove a member; see `MessageStore.leave`."""

        def write() -> Room:
            cursor = self._database.execute(
                "DELETE FROM members WHERE account = ? AND room = ? AND member = ?",
                (account, room, member),
            )
            if cursor.rowcount:
                self._insert(notice)
            return self._load_room(account, room)

        return await self._write(write)

    async def get_room(self, account: str, room: str) -> Room:
        """Return a room; see `MessageStore.get_room`."""
        return await self._run(self._load_room, account, room)

    async def list_rooms(self, account: str) -> list[Room]:
        """Return the rooms; see `MessageStore.list_rooms`."""

        def read() -> list[Room]:
            rows = self._database.execute(
                "SELECT DISTINCT room FROM members WHERE account = ? ORDER BY room", (account,)
            ).fetchall()
            return [self._load_room(account, room) for (room,) in rows]

        return await self._run(read)

    # Agents.

    async def add_agents(self, names: Collection[str]) -> None:
        """Note agents; see `MessageStore.add_agents`."""

        def write() -> None:
            self._database.executemany(
                "INSERT OR REPLACE INTO agents VALUES (?, ?)",
                [(name, time.time_ns()) for name in names],
            )
            self._database.execute(
                "DELETE FROM agents WHERE name NOT IN"
                " (SELECT name FROM agents ORDER BY seen_ns DESC LIMIT ?)",
                (_AGENTS_LIMIT,),
            )

        await self._write(write)

    async def list_agents(self) -> Set[str]:
        """Return the agents; see `MessageStore.list_agents`."""

        def read() -> Set[str]:
            return {name for (name,) in self._database.execute("SELECT name FROM agents")}

        return await self._run(read)

    def _load_room(self, account: str, room: str) -> Room:
        rows = self._database.execute(
            "SELECT member, join_ns FROM members WHERE account = ? AND room = ? ORDER BY member",
            (account, room),
        ).fetchall()
        found = messaging_service_pb2.Room(name=room, members=[member for member, _ in rows])
        if rows:
            found.create_time.FromNanoseconds(min(joined for _, joined in rows))
        return found

    # Rows.

    def _search(
        self, account: str, query: EnvelopeFilter, *, before: int = 2**62
    ) -> Iterator[StoredEnvelope]:
        """Yield the messages that match, newest first."""
        conditions, values = build_conditions(account, query)
        while True:
            rows = self._database.execute(
                f"SELECT position FROM messages WHERE {conditions} AND position < ?"  # noqa: S608  the conditions are constants
                " ORDER BY position DESC LIMIT ?",
                (*values, before, _READ_LIMIT),
            ).fetchall()
            for (position,) in rows:
                stored = self._load(position)
                if matches(stored, query):
                    yield stored
            if len(rows) < _READ_LIMIT:
                return
            before = rows[-1][0]

    def _select_after(
        self, account: str, query: EnvelopeFilter, position: int
    ) -> tuple[list[StoredEnvelope], int, bool]:
        """Return a page of matches after a position, the next position, and if it is the last."""
        conditions, values = build_conditions(account, query)
        rows = self._database.execute(
            f"SELECT position FROM messages WHERE {conditions} AND position > ?"  # noqa: S608  the conditions are constants
            " ORDER BY position LIMIT ?",
            (*values, position, _READ_LIMIT),
        ).fetchall()
        is_end = len(rows) < _READ_LIMIT
        found = [self._load(row[0]) for row in rows]
        end = self._counters.position if is_end else rows[-1][0]
        return [stored for stored in found if matches(stored, query)], max(position, end), is_end

    def _select_changed(
        self, account: str, query: EnvelopeFilter, change: int
    ) -> tuple[list[StoredEnvelope], int, bool]:
        conditions, values = build_conditions(account, query)
        rows = self._database.execute(
            f"SELECT position, change FROM messages WHERE {conditions} AND change > ?"  # noqa: S608  the conditions are constants
            " ORDER BY change LIMIT ?",
            (*values, change, _READ_LIMIT),
        ).fetchall()
        is_end = len(rows) < _READ_LIMIT
        found = [self._load(position) for position, _ in rows]
        end = self._counters.change if is_end else rows[-1][1]
        return [stored for stored in found if matches(stored, query)], max(change, end), is_end

    def _change_before(self, position: int) -> int:
        """Return the change after which all messages behind a position come, and changed ones."""
        row = self._database.execute(
            "SELECT min(change) FROM messages WHERE position > ?", (position,)
        ).fetchone()
        return self._counters.change if row[0] is None else int(row[0]) - 1

    def _load(self, position: int) -> StoredEnvelope:
        account, caller, content = self._database.execute(
            "SELECT account, caller, content FROM messages WHERE position = ?", (position,)
        ).fetchone()
        stored = StoredEnvelope(account=account, caller=caller, position=position)
        stored.envelope.ParseFromString(self._decrypt(content, f"message {position}"))
        rows = self._database.execute(
            "SELECT recipient, state, attempt_count, not_before, attempts, update_ns"
            " FROM deliveries WHERE position = ? ORDER BY recipient",
            (position,),
        ).fetchall()
        for recipient, state, attempt_count, not_before, attempts, update_ns in rows:
            delivery = stored.deliveries.add(
                recipient=recipient, state=state, attempt_count=attempt_count
            )
            delivery.update_time.FromNanoseconds(update_ns)
            if not_before:
                delivery.next_attempt_time.FromNanoseconds(int(not_before * _NANO))
            for attempt in self._read_attempts(attempts, position, recipient):
                added = delivery.attempts.add(task_id=attempt.task_id, problem=attempt.problem)
                added.start_time.FromNanoseconds(attempt.start_ns)
                if attempt.end_ns is not None:
                    added.end_time.FromNanoseconds(attempt.end_ns)
        return stored

    def _encrypt(self, content: bytes, place: str) -> bytes:
        return content if self._cipher is None else self._cipher.encrypt(content, place)

    def _decrypt(self, content: bytes, place: str) -> bytes:
        return content if self._cipher is None else self._cipher.decrypt(content, place)

    def _count(self, query: str) -> int:
        with self._file.read():
            row = self._database.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    def _notify(self) -> None:
        """Wake all readers."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()
