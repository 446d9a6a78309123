"""The local store: messages, deliveries and rooms in one SQLite file.

One process has the file open. Writes that are pending together are one transaction. With an
encryption key, messages and the problems of deliveries are encrypted; ids, names and times are not.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

from trunkline.encryption import Keyring
from trunkline.errors import (
    EnvelopeNotFoundError,
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    QueueFullError,
)
from trunkline.journal.sqlite.connection import check_access, connect
from trunkline.journal.sqlite.connection import translate_errors as translate_sqlite_errors
from trunkline.messaging.envelope_filter import is_repetition, matches
from trunkline.messaging.page_tokens import make_page_token, read_page_token
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
from trunkline.private_files import create_private_folder, lock_file, open_private_append
from trunkline.v1 import envelope_pb2, messaging_service_pb2

_READ_LIMIT: Final = 500
_WRITE_LIMIT: Final = 1_000
_LOCK_TIMEOUT_S: Final = 10.0
_STORED_ATTEMPTS: Final = 20
_AGENTS_LIMIT: Final = 10_000
_DEDUPLICATION_NS: Final = 24 * 3600 * 10**9
_NANO: Final = 10**9
_PENDING: Final = envelope_pb2.DELIVERY_STATE_PENDING
_RUNNING: Final = envelope_pb2.DELIVERY_STATE_RUNNING
_DEAD: Final = envelope_pb2.DELIVERY_STATE_DEAD
_SCHEMA: Final = """
-- content: the serialised envelope
-- change: the number of the change that accepted it, or ended one of its deliveries
CREATE TABLE IF NOT EXISTS messages (
    position INTEGER PRIMARY KEY, account TEXT NOT NULL, envelope_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL, causation_id TEXT NOT NULL, room TEXT NOT NULL,
    type TEXT NOT NULL, sender TEXT NOT NULL, recipient TEXT NOT NULL, caller TEXT NOT NULL,
    create_ns INTEGER NOT NULL, content BLOB NOT NULL, change INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS messages_by_id ON messages (account, envelope_id);
CREATE INDEX IF NOT EXISTS messages_by_correlation ON messages (account, correlation_id);
CREATE INDEX IF NOT EXISTS messages_by_causation ON messages (account, causation_id)
    WHERE causation_id != '';
CREATE INDEX IF NOT EXISTS messages_by_room ON messages (account, room) WHERE room != '';
CREATE INDEX IF NOT EXISTS messages_by_time ON messages (create_ns);
CREATE INDEX IF NOT EXISTS messages_by_change ON messages (change);
-- lane: the priority of the first waiting message of the conversation when this one was accepted
-- attempts: a JSON list of [task id, start, end, problem]
CREATE TABLE IF NOT EXISTS deliveries (
    position INTEGER NOT NULL, recipient TEXT NOT NULL, lane INTEGER NOT NULL,
    account TEXT NOT NULL, correlation_id TEXT NOT NULL, state INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL, task_id TEXT NOT NULL, not_before REAL NOT NULL,
    attempts BLOB NOT NULL, update_ns INTEGER NOT NULL,
    PRIMARY KEY (position, recipient)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_deliveries ON deliveries (recipient, lane, position)
    WHERE state IN (1, 2);
CREATE INDEX IF NOT EXISTS open_conversations
    ON deliveries (account, correlation_id, recipient, position) WHERE state IN (1, 2);
CREATE INDEX IF NOT EXISTS dead_deliveries ON deliveries (position) WHERE state = 4;
-- The ids of deleted messages, until they may be used again.
CREATE TABLE IF NOT EXISTS deleted (
    account TEXT NOT NULL, envelope_id TEXT NOT NULL, create_ns INTEGER NOT NULL,
    PRIMARY KEY (account, envelope_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    account TEXT NOT NULL, room TEXT NOT NULL, member TEXT NOT NULL, join_ns INTEGER NOT NULL,
    PRIMARY KEY (account, room, member)
) WITHOUT ROWID;
-- The agents that were on the mesh.
CREATE TABLE IF NOT EXISTS agents (name TEXT PRIMARY KEY, seen_ns INTEGER NOT NULL) WITHOUT ROWID;
-- The last position and change, which outlive deleted messages.
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_SELECT_DELIVERY: Final = """
SELECT state, attempt_count, task_id, not_before, attempts, update_ns FROM deliveries
WHERE position = ? AND recipient = ?
"""
_SELECT_OPEN: Final = """
SELECT d.position, d.recipient, d.attempt_count, d.task_id, d.not_before, d.state,
    m.account, m.caller, m.content
FROM deliveries d JOIN messages m USING (position)
WHERE d.state IN (1, 2) AND d.recipient = ? AND d.lane = ? AND d.position > ?
ORDER BY d.position LIMIT ?
"""
_HAS_DELIVERY: Final = "EXISTS (SELECT 1 FROM deliveries d WHERE d.position = messages.position"
_T = TypeVar("_T")


class _Attempt(NamedTuple):
    task_id: str
    start_ns: int
    end_ns: int | None
    problem: str


@dataclass(slots=True)
class _Lane:
    """The deliveries to one recipient of one priority, which are read in order of positions.

    A recipient that is away, or slow, fills its own lanes only.
    """

    cursor: int = 0
    given: int = 0
    """The deliveries that the dispatcher has."""
    has_more: bool = True
    """There may be deliveries behind the cursor."""


@dataclass(frozen=True, slots=True)
class _Write(Generic[_T]):
    """A write that waits for the next transaction."""

    work: Callable[[], _T]
    future: "asyncio.Future[_T]"


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
        self._path = path
        self._queue_limit = queue_limit
        self._prefetch = prefetch
        self._cipher = keyring.cipher("messages", name=str(path)) if keyring is not None else None
        create_private_folder(path.parent)
        check_access(path)
        self._lock_fd = _lock(path)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trunkline-messages")
        self._writes: list[_Write[Any]] = []
        self._is_writing = False
        self._changed = asyncio.Event()
        # The deliveries that the dispatcher has, with their lanes.
        self._given: dict[DeliveryKey, _Lane] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        try:
            with translate_sqlite_errors(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                self._database = connect(path)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute(f"PRAGMA synchronous = {synchronous.upper()}")
                self._database.executescript(_SCHEMA)
            self._position = self._count("SELECT value FROM counters WHERE name = 'position'")
            self._change = self._count("SELECT value FROM counters WHERE name = 'change'")
            self._open_count = self._count("SELECT count(*) FROM deliveries WHERE state IN (1, 2)")
            self._find_lanes()
        except BaseException:
            os.close(self._lock_fd)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._executor.shutdown)
        self._database.close()
        os.close(self._lock_fd)

    # Accepting messages.

    async def accept(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        """Store messages; see `MessageStore.accept`."""
        return await self._write(lambda: self._insert_all(messages))

    def _insert_all(self, messages: Sequence[NewMessage]) -> list[StoredEnvelope]:
        deliveries = sum(len(message.recipients) for message in messages)
        if deliveries and self._open_count + deliveries > self._queue_limit:
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
        self._position += 1
        self._change += 1
        created = envelope.create_time.ToNanoseconds()
        self._database.execute(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._position,
                *key,
                envelope.correlation_id,
                envelope.causation_id,
                envelope.room,
                envelope.type,
                envelope.sender,
                envelope.recipient,
                message.caller,
                created,
                self._encrypt(envelope.SerializeToString(), f"message {self._position}"),
                self._change,
            ),
        )
        recipients = list(dict.fromkeys(message.recipients))
        correlation = (message.account, envelope.correlation_id)
        for recipient in recipients:
            lane = self._choose_lane(*correlation, recipient, envelope)
            self._database.execute(
                "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, 0, '', 0, X'', ?)",
                (self._position, recipient, lane, *correlation, _PENDING, created),
            )
        self._open_count += len(recipients)
        stored = StoredEnvelope(
            envelope=envelope,
            position=self._position,
            account=message.account,
            caller=message.caller,
        )
        for recipient in recipients:
            delivery = stored.deliveries.add(recipient=recipient, state=_PENDING)
            delivery.update_time.FromNanoseconds(created)
        return stored

    def _choose_lane(
        self, account: str, correlation_id: str, recipient: str, envelope: Envelope
    ) -> int:
        """Return the lane of a new delivery: that of its conversation, which is made in order."""
        priority = envelope.priority or envelope_pb2.ENVELOPE_PRIORITY_NORMAL
        waiting = self._database.execute(
            "SELECT lane FROM deliveries WHERE account = ? AND correlation_id = ? AND recipient = ?"
            " AND state IN (1, 2) ORDER BY position DESC LIMIT 1",
            (account, correlation_id, recipient),
        ).fetchone()
        lane = priority if waiting is None else int(waiting[0])
        # A write that is rolled back leaves a lane that is read in vain, once.
        self._lanes.setdefault((recipient, lane), _Lane()).has_more = True
        return lane

    # Deliveries.

    async def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries to make; see `MessageStore.deliveries`."""
        while True:
            event = self._changed
            if batch := await self._run(self._read_lanes):
                yield batch
            else:
                await event.wait()

    def _find_lanes(self) -> None:
        for key in self._database.execute(
            "SELECT DISTINCT recipient, lane FROM deliveries WHERE state IN (1, 2)"
        ):
            self._lanes[key] = _Lane()

    def _read_lanes(self) -> list[QueuedDelivery]:
        """Return deliveries that the dispatcher does not have, of all lanes that have room."""
        batch: list[QueuedDelivery] = []
        for (recipient, number), lane in list(self._lanes.items()):
            if not lane.has_more and not lane.given:
                del self._lanes[recipient, number]
            while lane.has_more and lane.given < self._prefetch:
                limit = self._prefetch - lane.given
                rows = self._database.execute(
                    _SELECT_OPEN, (recipient, number, lane.cursor, limit)
                ).fetchall()
                # Not before all rows can be read: an error leaves them for the next time.
                deliveries = [self._build_delivery(row) for row in rows]
                new = [each for each in deliveries if each.key not in self._given]
                self._given.update((each.key, lane) for each in new)
                lane.given += len(new)
                lane.has_more = len(rows) == limit
                if deliveries:
                    lane.cursor = deliveries[-1].position
                batch += new
            if len(batch) >= _READ_LIMIT:
                break
        batch.sort(key=lambda each: each.position)
        return batch

    def _take_back(self, key: DeliveryKey) -> None:
        """Note that the dispatcher is done with a delivery."""
        lane = self._given.pop(key, None)
        if lane is not None:
            lane.given -= 1

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

    async def begin_attempt(self, delivery: QueuedDelivery, task_id: str) -> QueuedDelivery:
        """Store the task of an attempt; see `MessageStore.begin_attempt`."""

        def write() -> QueuedDelivery:
            count, attempts = self._load_attempts(delivery)
            attempts.append(_Attempt(task_id, time.time_ns(), None, ""))
            self._update(delivery, _RUNNING, count + 1, attempts, task_id=task_id)
            return replace(delivery, attempt_count=count + 1, task_id=task_id, not_before=0.0)

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
                _end_attempt(attempts, problem)
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
            _end_attempt(attempts, problem)
            self._update(delivery, state, count, attempts)
            self._open_count -= 1
            self._note_change(delivery.position)
            # The limit of the queue does not hold for replies, or handlers would have to run again.
            return [self._insert(reply) for reply in replies]

        try:
            stored = await self._write(write)
        except FencedError:
            await self._run(self._take_back, delivery.key)
            raise
        await self._run(self._take_back, delivery.key)
        self._notify()
        return stored

    def _note_change(self, position: int) -> None:
        """Make watches of deliveries yield a message again."""
        self._change += 1
        self._database.execute(
            "UPDATE messages SET change = ? WHERE position = ?", (self._change, position)
        )

    def _load_attempts(self, delivery: QueuedDelivery) -> tuple[int, list[_Attempt]]:
        row = self._database.execute(
            _SELECT_DELIVERY, (delivery.position, delivery.key.recipient)
        ).fetchone()
        if row is None or row[0] not in (_PENDING, _RUNNING):
            raise FencedError(delivery.task_id or delivery.key.envelope_id)
        return int(row[1]), self._read_attempts(row[4], delivery.position, delivery.key.recipient)

    def _read_attempts(self, stored: bytes, position: int, recipient: str) -> list[_Attempt]:
        if not stored:
            return []
        content = self._decrypt(stored, f"attempts {position} {recipient}")
        return [_Attempt(*fields) for fields in json.loads(content)]

    def _update(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        count: int,
        attempts: list[_Attempt],
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
        position = self._position if after_position is None else after_position
        change = self._change
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
            self._open_count += len(dead)
            return dead

        dead = await self._write(write)
        await self._run(self._read_again, dead)
        self._notify()
        return len(dead)

    def _read_again(self, deliveries: Sequence[tuple[int, str]]) -> None:
        """Set the cursors of lanes before deliveries that wait again."""
        for position, recipient in deliveries:
            row = self._database.execute(
                "SELECT lane FROM deliveries WHERE position = ? AND recipient = ?",
                (position, recipient),
            ).fetchone()
            if row is not None:
                lane = self._lanes.setdefault((recipient, int(row[0])), _Lane())
                lane.cursor = min(lane.cursor, position - 1)
                lane.has_more = True

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
        conditions, values = _narrow(account, query)
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
        conditions, values = _narrow(account, query)
        rows = self._database.execute(
            f"SELECT position FROM messages WHERE {conditions} AND position > ?"  # noqa: S608  the conditions are constants
            " ORDER BY position LIMIT ?",
            (*values, position, _READ_LIMIT),
        ).fetchall()
        is_end = len(rows) < _READ_LIMIT
        found = [self._load(row[0]) for row in rows]
        end = self._position if is_end else rows[-1][0]
        return [stored for stored in found if matches(stored, query)], max(position, end), is_end

    def _select_changed(
        self, account: str, query: EnvelopeFilter, change: int
    ) -> tuple[list[StoredEnvelope], int, bool]:
        conditions, values = _narrow(account, query)
        rows = self._database.execute(
            f"SELECT position, change FROM messages WHERE {conditions} AND change > ?"  # noqa: S608  the conditions are constants
            " ORDER BY change LIMIT ?",
            (*values, change, _READ_LIMIT),
        ).fetchall()
        is_end = len(rows) < _READ_LIMIT
        found = [self._load(position) for position, _ in rows]
        end = self._change if is_end else rows[-1][1]
        return [stored for stored in found if matches(stored, query)], max(change, end), is_end

    def _change_before(self, position: int) -> int:
        """Return the change after which all messages behind a position come, and changed ones."""
        row = self._database.execute(
            "SELECT min(change) FROM messages WHERE position > ?", (position,)
        ).fetchone()
        return self._change if row[0] is None else int(row[0]) - 1

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
        with translate_sqlite_errors(self._path):
            row = self._database.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    # Threads and transactions.

    async def _run(self, function: Callable[..., _T], *args: object) -> _T:
        """Run a function that reads, in the store's thread."""

        def read() -> _T:
            with translate_sqlite_errors(self._path):
                return function(*args)

        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    async def _write(self, work: Callable[[], _T]) -> _T:
        """Run a function that writes, in the next transaction; return once that is committed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._writes.append(_Write(work, future))
        if not self._is_writing:
            self._is_writing = True
            loop.run_in_executor(self._executor, self._commit_all, loop)
        return await future

    def _commit_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit what is pending, until nothing is. Runs in the store's thread."""
        while True:
            writes = self._writes[:_WRITE_LIMIT]
            if not writes:
                # The loop's thread appends, so only it knows that nothing was added meanwhile.
                loop.call_soon_threadsafe(self._stop_writing, loop)
                return
            del self._writes[: len(writes)]
            results = self._commit(writes)
            loop.call_soon_threadsafe(self._resolve, results)

    def _stop_writing(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_writing = bool(self._writes)
        if self._writes:
            loop.run_in_executor(self._executor, self._commit_all, loop)

    def _commit(
        self, writes: Sequence[_Write[Any]]
    ) -> list[tuple["asyncio.Future[Any]", object, BaseException | None]]:
        """Run writes in one transaction. One that fails changes nothing, and fails no other."""
        before = (self._position, self._change, self._open_count)
        results: list[tuple[asyncio.Future[Any], object, BaseException | None]] = []
        try:
            with translate_sqlite_errors(self._path), self._transaction("BEGIN IMMEDIATE"):
                for write in writes:
                    counters = (self._position, self._change, self._open_count)
                    try:
                        with self._transaction("SAVEPOINT write"):
                            results.append((write.future, write.work(), None))
                    except (sqlite3.Error, JournalUnavailableError):
                        raise
                    except Exception as error:  # noqa: BLE001  its caller gets it
                        self._position, self._change, self._open_count = counters
                        results.append((write.future, None, error))
                self._database.executemany(
                    "INSERT OR REPLACE INTO counters VALUES (?, ?)",
                    [("position", self._position), ("change", self._change)],
                )
        except Exception as error:  # noqa: BLE001  all callers get it
            self._position, self._change, self._open_count = before
            return [(write.future, None, error) for write in writes]
        return results

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        is_savepoint = begin.startswith("SAVEPOINT")
        self._database.execute(begin)
        try:
            yield
            self._database.execute("RELEASE write" if is_savepoint else "COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK TO write" if is_savepoint else "ROLLBACK")
                if is_savepoint:
                    self._database.execute("RELEASE write")
            raise

    def _resolve(
        self, results: Sequence[tuple["asyncio.Future[Any]", object, BaseException | None]]
    ) -> None:
        for future, result, error in results:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._notify()

    def _notify(self) -> None:
        """Wake all readers."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()


def _lock(path: Path) -> int:
    """Lock a store for this process; return the descriptor that holds the lock.

    Raises:
        JournalUnavailableError: another process has the store open.
    """
    fd = open_private_append(path.with_name(f"{path.name}.lock"))
    try:
        lock_file(fd, timeout_s=_LOCK_TIMEOUT_S)
    except BlockingIOError:
        os.close(fd)
        problem = "another process has it open; stop it or use another data directory"
        raise JournalUnavailableError(str(path), problem) from None
    return fd


def _end_attempt(attempts: list[_Attempt], problem: str) -> None:
    """End the last attempt, or add one for a delivery that ends without any."""
    now = time.time_ns()
    if attempts and attempts[-1].end_ns is None:
        attempts[-1] = attempts[-1]._replace(end_ns=now, problem=problem)
    elif problem:
        attempts.append(_Attempt("", now, now, problem))


def _narrow(account: str, query: EnvelopeFilter) -> tuple[str, list[object]]:
    """Return the SQL conditions for a filter, and their values."""
    columns: list[tuple[str, object]] = [
        ("account = ?", account),
        ("envelope_id = ?", query.envelope_id),
        ("correlation_id = ?", query.correlation_id),
        ("causation_id = ?", query.causation_id),
        ("room = ?", query.room),
        ("type = ?", query.type),
        ("create_ns >= ?", query.start_time.ToNanoseconds()),
        ("create_ns < ?", query.end_time.ToNanoseconds()),
    ]
    chosen = [column for column in columns if column[1]]
    conditions = [condition for condition, _ in chosen]
    values = [value for _, value in chosen]
    if query.recipient:
        conditions.append(f"(recipient = ? OR {_HAS_DELIVERY} AND d.recipient = ?))")
        values += [query.recipient] * 2
    if query.participant:
        conditions.append(f"(? IN (sender, recipient) OR {_HAS_DELIVERY} AND d.recipient = ?))")
        values += [query.participant] * 2
    if query.states:
        marks = ", ".join("?" * len(query.states))
        conditions.append(f"{_HAS_DELIVERY} AND d.state IN ({marks}))")
        values += query.states
    return " AND ".join(conditions), values
