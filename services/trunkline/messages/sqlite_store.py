"""The local store: messages, deliveries and rooms in one SQLite file.

One process has the file open. Waiting writes are committed in one transaction. With an encryption
key, messages and the attempts of deliveries are encrypted. Ids, names and times are not encrypted.
"""

import asyncio
import time
from collections.abc import (
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

from trunkline.core.database import Database
from trunkline.core.encryption import Keyring
from trunkline.core.private_files import create_private_folder
from trunkline.errors import (
    EnvelopeNotFoundError,
    FencedError,
    QueueFullError,
)
from trunkline.messages.group_writer import GroupWriter
from trunkline.messages.page_tokens import make_page_token, read_page_token
from trunkline.messages.sqlite_queues import DeliveryQueues
from trunkline.messages.sqlite_tables import SCHEMA, build_conditions
from trunkline.messages.store import (
    DeliveryKey,
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
    DEDUPLICATION_S,
    PENDING,
    RUNNING,
    Codec,
    StoredAttempt,
    StoredAttempts,
    add_delivery,
    build_accepted,
    build_room,
    check_repetition,
    dead_letters,
    deleted_id_error,
    end_attempt,
    list_dead_recipients,
)
from trunkline.messages.watched_store import READ_LIMIT, Column, Matches, WatchedStore

_P = ParamSpec("_P")
_T = TypeVar("_T")
_WRITE_LIMIT: Final = 1_000
_NANO: Final = 10**9
_DEDUPLICATION_NS: Final = DEDUPLICATION_S * _NANO
# The time in which an earlier process has to close the file.
_LOCK_WAIT_S: Final = 10.0
_SELECT_DELIVERY: Final = """
SELECT state, attempt_count, attempts FROM deliveries WHERE position = ? AND recipient = ?
"""


class SqliteMessageStore(WatchedStore):
    """A store in a file; see `trunkline.messages.store.MessageStore`."""

    mode = "local"

    def __init__(
        self,
        path: Path,
        *,
        queue_limit: int,
        synchronous: Literal["normal", "full"] = "normal",
        keyring: Keyring | None = None,
    ) -> None:
        """Open the file, or create it.

        `queue_limit` is the number of deliveries that may wait.

        Raises:
            JournalUnavailableError: the file can't be used, or another process has it open.
        """
        super().__init__()
        self._queue_limit = queue_limit
        self._codec = Codec(None if keyring is None else keyring.cipher("messages", name=str(path)))
        create_private_folder(path.parent)
        self._file = Database(path, SCHEMA, synchronous=synchronous, lock_wait_s=_LOCK_WAIT_S)
        self._database = self._file.connection
        self._writer = GroupWriter(self._file, on_commit=self._wake)
        self._counters = self._writer.counters
        self._write = self._writer.write
        self._counters.position = self._count("SELECT value FROM counters WHERE name = 'position'")
        self._counters.change = self._count("SELECT value FROM counters WHERE name = 'change'")
        self._counters.open_count = self._count(
            "SELECT count(*) FROM deliveries WHERE state IN (1, 2)"
        )
        self._queues = DeliveryQueues(self._database, self._build_delivery)
        with self._file.read():
            self._queues.find()

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
            check_repetition(stored.envelope, envelope)
            return stored
        if self._database.execute(
            "SELECT 1 FROM deleted WHERE account = ? AND envelope_id = ? AND create_ns > ?",
            (*key, time.time_ns() - _DEDUPLICATION_NS),
        ).fetchone():
            raise deleted_id_error(envelope.envelope_id)
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
                self._codec.encode_envelope(envelope, f"message {self._counters.position}"),
                self._counters.change,
            ),
        )
        accepted = build_accepted(message, self._counters.position)
        correlation = (message.account, envelope.correlation_id)
        for delivery in accepted.deliveries:
            queue = self._queues.choose(*correlation, delivery.recipient, envelope)
            self._database.execute(
                "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, 0, '', 0, X'', ?)",
                (accepted.position, delivery.recipient, queue, *correlation, PENDING, created),
            )
        self._counters.open_count += len(accepted.deliveries)
        return accepted

    # Deliveries.

    async def deliveries(self) -> AsyncIterator[Sequence[QueuedDelivery]]:
        """Yield the deliveries to make; see `MessageStore.deliveries`."""
        while True:
            event = self._changed
            if batch := await self._run(self._queues.read):
                yield batch
            else:
                await event.wait()

    def _build_delivery(self, row: Sequence[Any]) -> QueuedDelivery:
        position, recipient, attempt_count, task_id, not_before, state, account, caller, body = row
        envelope = self._codec.decode_envelope(body, f"message {position}")
        return QueuedDelivery(
            DeliveryKey(account, envelope.envelope_id, recipient),
            position,
            envelope,
            caller,
            attempt_count,
            task_id if state == RUNNING else "",
            not_before,
        )

    async def begin_attempt(
        self, delivery: QueuedDelivery, task_id: str, *, traceparent: str = ""
    ) -> QueuedDelivery:
        """Store the task of an attempt; see `MessageStore.begin_attempt`."""

        def write() -> QueuedDelivery:
            count, attempts = self._load_attempts(delivery)
            previous = attempts[-1].traceparent if attempts else ""
            attempts = (*attempts, StoredAttempt(task_id, time.time_ns(), None, "", traceparent))
            self._update(delivery, RUNNING, count + 1, attempts, task_id=task_id)
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
                attempts = end_attempt(attempts, problem, time.time_ns())
            elif delivery.task_id:
                count, attempts = count - 1, attempts[:-1]
            self._update(delivery, PENDING, count, attempts, not_before=not_before)
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
            attempts = end_attempt(attempts, problem, time.time_ns())
            self._update(delivery, state, count, attempts)
            self._counters.open_count -= 1
            self._note_change(delivery.position)
            # Replies are beyond the limit of the queue, or their handlers would have to run again.
            return [self._insert(reply) for reply in replies]

        return await self._write(write, on_done=partial(self._queues.remove, delivery.key))

    def _note_change(self, position: int) -> None:
        """Make watches of deliveries yield a message again."""
        self._counters.change += 1
        self._database.execute(
            "UPDATE messages SET change = ? WHERE position = ?", (self._counters.change, position)
        )

    def _load_attempts(self, delivery: QueuedDelivery) -> tuple[int, StoredAttempts]:
        row = self._database.execute(
            _SELECT_DELIVERY, (delivery.position, delivery.key.recipient)
        ).fetchone()
        if row is None or row[0] not in (PENDING, RUNNING):
            raise FencedError(delivery.task_id or delivery.key.envelope_id)
        place = _attempts_place(delivery.position, delivery.key.recipient)
        return int(row[1]), self._codec.decode_attempts(row[2], place)

    def _update(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        count: int,
        attempts: StoredAttempts,
        *,
        task_id: str = "",
        not_before: float = 0.0,
    ) -> None:
        position, recipient = delivery.position, delivery.key.recipient
        self._database.execute(
            "UPDATE deliveries SET state = ?, attempt_count = ?, task_id = ?, not_before = ?,"
            " attempts = ?, update_ns = ? WHERE position = ? AND recipient = ?",
            (
                state,
                count,
                task_id,
                not_before,
                self._codec.encode_attempts(attempts, _attempts_place(position, recipient)),
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

    # Operations.

    async def redrive(self, account: str, query: EnvelopeFilter) -> int:
        """Deliver dead letters again; see `MessageStore.redrive`."""

        def write() -> list[tuple[int, str]]:
            dead = [
                (stored.position, recipient)
                for stored in self._search(account, dead_letters(query))
                for recipient in list_dead_recipients(stored, query)
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
        await self._run(self._queues.read_again, dead)
        self._wake()
        return len(dead)

    async def purge(self, account: str, query: EnvelopeFilter) -> int:
        """Delete messages; see `MessageStore.purge`."""

        def write() -> int:
            ended = [
                stored.position
                for stored in self._search(account, query)
                if all(d.state not in (PENDING, RUNNING) for d in stored.deliveries)
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
        statement = "INSERT OR IGNORE INTO members VALUES (?, ?, ?, ?)"
        values = (account, room, member, time.time_ns())
        return await self._change_members(account, room, statement, values, notice)

    async def leave(self, account: str, room: str, member: str, notice: NewMessage) -> Room:
        """Remove a member; see `MessageStore.leave`."""
        statement = "DELETE FROM members WHERE account = ? AND room = ? AND member = ?"
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

        def write() -> Room:
            if self._database.execute(statement, values).rowcount:
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
                (AGENTS_LIMIT,),
            )

        await self._write(write)

    async def list_agents(self) -> Set[str]:
        """Return the agents; see `MessageStore.list_agents`."""

        def read() -> Set[str]:
            return {name for (name,) in self._database.execute("SELECT name FROM agents")}

        return await self._run(read)

    def _load_room(self, account: str, room: str) -> Room:
        rows = self._database.execute(
            "SELECT member, join_ns FROM members WHERE account = ? AND room = ?", (account, room)
        )
        return build_room(room, dict(rows.fetchall()))

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
                (*values, before, READ_LIMIT),
            ).fetchall()
            for (position,) in rows:
                yield self._load(position)
            if len(rows) < READ_LIMIT:
                return
            before = rows[-1][0]

    async def _read_after(
        self, account: str, query: EnvelopeFilter, column: Column, after: int
    ) -> Matches:
        return await self._run(self._select_after, account, query, column, after)

    def _select_after(
        self, account: str, query: EnvelopeFilter, column: Column, after: int
    ) -> Matches:
        conditions, values = build_conditions(account, query)
        rows = self._database.execute(
            f"SELECT position, {column} FROM messages WHERE {conditions} AND {column} > ?"  # noqa: S608  the conditions are constants
            f" ORDER BY {column} LIMIT ?",
            (*values, after, READ_LIMIT),
        ).fetchall()
        messages = [self._load(position) for position, _ in rows]
        return Matches(messages, [number for _, number in rows], self._newest(column))

    async def _read_newest(self, column: Column) -> int:
        return await self._run(self._newest, column)

    def _newest(self, column: Column) -> int:
        """Return a counter. In the file's thread, no write is unfinished."""
        return self._counters.position if column == "position" else self._counters.change

    async def _find_change_before(self, position: int) -> int:
        return await self._run(self._change_before, position)

    def _change_before(self, position: int) -> int:
        row = self._database.execute(
            "SELECT min(change) FROM messages WHERE position > ?", (position,)
        ).fetchone()
        return self._counters.change if row[0] is None else int(row[0]) - 1

    def _load(self, position: int) -> StoredEnvelope:
        account, caller, content = self._database.execute(
            "SELECT account, caller, content FROM messages WHERE position = ?", (position,)
        ).fetchone()
        stored = StoredEnvelope(account=account, caller=caller, position=position)
        stored.envelope.CopyFrom(self._codec.decode_envelope(content, f"message {position}"))
        rows = self._database.execute(
            "SELECT recipient, state, attempt_count, not_before, attempts, update_ns"
            " FROM deliveries WHERE position = ? ORDER BY recipient",
            (position,),
        ).fetchall()
        for recipient, state, attempt_count, not_before, attempts, update_ns in rows:
            add_delivery(
                stored,
                recipient,
                state,
                attempt_count=attempt_count,
                update_ns=update_ns,
                not_before=not_before,
                attempts=self._codec.decode_attempts(
                    attempts, _attempts_place(position, recipient)
                ),
            )
        return stored

    def _count(self, query: str) -> int:
        with self._file.read():
            row = self._database.execute(query).fetchone()
        return 0 if row is None else int(row[0])


def _attempts_place(position: int, recipient: str) -> str:
    return f"attempts {position} {recipient}"
