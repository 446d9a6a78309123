"""Checkpoints and conversations in the PostgreSQL database of the journals."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import asyncpg

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.store import (
    ConversationKey,
    StoredCheckpoint,
    StoredState,
    StoredWrite,
    ThreadKey,
    Ticket,
    Turn,
    select_latest,
)
from trunkline.conversations.turn_order import LocalTurns, TurnOrder
from trunkline.core.backoff import PATIENCE_S, retry_while_unavailable
from trunkline.core.postgres import (
    Connection,
    PostgresDatabase,
    Schema,
    begin,
)
from trunkline.errors import FencedError, JournalUnusableError
from trunkline.journal.postgres.fence import fenced, hold_fence

_Result = TypeVar("_Result")
_Work: TypeAlias = Callable[[Connection], Awaitable[_Result]]

# A turn waits for its state as long as for its events, which are in the same database.
_TURN_LIMIT_S: Final = math.inf

# Checkpoints and open turns are deleted with their journal.
_TABLES: Final = (
    """CREATE TABLE trunkline_checkpoints (
        journal_id text NOT NULL REFERENCES trunkline_journals ON DELETE CASCADE,
        thread_id text NOT NULL,
        namespace text NOT NULL,
        checkpoint_id text NOT NULL,
        parent_id text,
        kind text NOT NULL,
        body bytea NOT NULL,
        metadata bytea NOT NULL,
        created timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (journal_id, thread_id, namespace, checkpoint_id)
    )""",
    """CREATE TABLE trunkline_checkpoint_writes (
        journal_id text NOT NULL REFERENCES trunkline_journals ON DELETE CASCADE,
        thread_id text NOT NULL,
        namespace text NOT NULL,
        checkpoint_id text NOT NULL,
        task_id text NOT NULL,
        position integer NOT NULL,
        task_path text NOT NULL,
        channel text NOT NULL,
        kind text NOT NULL,
        body bytea NOT NULL,
        created timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (journal_id, thread_id, namespace, checkpoint_id, task_id, position)
    )""",
    # A conversation without a state has step 0.
    """CREATE TABLE trunkline_conversations (
        agent text NOT NULL,
        context_id text NOT NULL,
        account text NOT NULL,
        step bigint NOT NULL DEFAULT 0,
        kind text NOT NULL DEFAULT '',
        body bytea NOT NULL DEFAULT '',
        changed timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (agent, context_id, account)
    )""",
    "CREATE INDEX trunkline_conversations_by_change ON trunkline_conversations (changed)",
    """CREATE TABLE trunkline_open_turns (
        task_id text NOT NULL,
        number integer NOT NULL,
        journal_id text NOT NULL REFERENCES trunkline_journals ON DELETE CASCADE,
        agent text NOT NULL,
        context_id text NOT NULL,
        account text NOT NULL,
        place bigint NOT NULL,
        request text NOT NULL,
        ancestors text[] NOT NULL,
        PRIMARY KEY (task_id, number)
    )""",
    """CREATE INDEX trunkline_open_turns_by_place
        ON trunkline_open_turns (agent, context_id, account, place)""",
    "CREATE INDEX trunkline_open_turns_by_request ON trunkline_open_turns (request)",
    "CREATE INDEX trunkline_open_turns_by_journal ON trunkline_open_turns (journal_id)",
)
CONVERSATIONS: Final = Schema("conversations", (_TABLES,))
"""The tables of checkpoints and conversations. Their journals are in the same database."""


_PUT: Final = fenced("""
    stored AS (
    INSERT INTO trunkline_checkpoints
        (journal_id, thread_id, namespace, checkpoint_id, parent_id, kind, body, metadata)
    SELECT $1, $3, $4, $5, $6, $7, $8, $9 FROM fence
    ON CONFLICT (journal_id, thread_id, namespace, checkpoint_id) DO UPDATE SET
        parent_id = excluded.parent_id, kind = excluded.kind, body = excluded.body,
        metadata = excluded.metadata, created = excluded.created
)""")
_ADD_WRITES: Final = fenced("""
    stored AS (
    INSERT INTO trunkline_checkpoint_writes (journal_id, thread_id, namespace, checkpoint_id,
        task_id, task_path, position, channel, kind, body)
    SELECT $1, $3, $4, $5, w.* FROM fence,
        unnest($6::text[], $7::text[], $8::int[], $9::text[], $10::text[], $11::bytea[]) AS w
    ON CONFLICT (journal_id, thread_id, namespace, checkpoint_id, task_id, position) DO NOTHING
)""")
_REPLACE_WRITES: Final = _ADD_WRITES.replace(
    "DO NOTHING",
    "DO UPDATE SET task_path = excluded.task_path, channel = excluded.channel,"
    " kind = excluded.kind, body = excluded.body",
)
_DELETE: Final = fenced("""
    gone AS (
        DELETE FROM trunkline_checkpoints USING fence WHERE journal_id = $1 AND thread_id = $3
    ), written AS (
        DELETE FROM trunkline_checkpoint_writes USING fence
        WHERE journal_id = $1 AND thread_id = $3
    )""")
_FIND: Final = """
    SELECT checkpoint_id, parent_id, kind, body, metadata FROM trunkline_checkpoints
    WHERE journal_id = $1 AND thread_id = $2 AND namespace = $3 AND checkpoint_id = $4"""
_LIST_CHECKPOINTS: Final = """
    SELECT checkpoint_id, metadata FROM trunkline_checkpoints
    WHERE journal_id = $1 AND thread_id = $2 AND namespace = $3"""
_FIND_WRITES: Final = """
    SELECT task_id, task_path, position, channel, kind, body FROM trunkline_checkpoint_writes
    WHERE journal_id = $1 AND thread_id = $2 AND namespace = $3 AND checkpoint_id = $4
    ORDER BY task_path COLLATE "C", task_id COLLATE "C", position"""
_FIND_STATE: Final = """
    SELECT step, kind, body FROM trunkline_conversations
    WHERE agent = $1 AND context_id = $2 AND account = $3 AND step > 0"""
_REPLACE_STATE: Final = fenced(
    """
    stored AS (
    INSERT INTO trunkline_conversations (agent, context_id, account, step, kind, body)
    SELECT $3, $4, $5, $6, $7, $8 FROM fence
    WHERE $9 = 0 OR EXISTS (
        SELECT 1 FROM trunkline_conversations WHERE agent = $3 AND context_id = $4 AND account = $5)
    ON CONFLICT (agent, context_id, account) DO UPDATE SET
        step = excluded.step, kind = excluded.kind, body = excluded.body, changed = now()
        WHERE trunkline_conversations.step = $9
    RETURNING step
)""",
    select="SELECT (SELECT step FROM stored) FROM fence",
)
# Taking tickets of one conversation is serialized by its row, so that no place that is lower than a
# present one comes up.
_LOCK_CONVERSATION: Final = """
    INSERT INTO trunkline_conversations (agent, context_id, account) VALUES ($1, $2, $3)
    ON CONFLICT (agent, context_id, account) DO UPDATE SET changed = now()"""
# The lock keeps the place of the request until this transaction has ended.
_ADD_TURN: Final = """
    WITH shared AS (
        SELECT place FROM trunkline_open_turns
        WHERE agent = $1 AND context_id = $2 AND account = $3 AND request = $6
        LIMIT 1 FOR KEY SHARE
    ), present AS (
        SELECT min(place) AS lowest, coalesce(max(place), 0) + 1 AS next FROM trunkline_open_turns
        WHERE agent = $1 AND context_id = $2 AND account = $3
    )
    INSERT INTO trunkline_open_turns
        (agent, context_id, account, task_id, number, request, ancestors, journal_id, place)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8,
        coalesce((SELECT place FROM shared), (SELECT next FROM present))
    ON CONFLICT (task_id, number) DO UPDATE SET number = excluded.number
    RETURNING place, place <= coalesce((SELECT lowest FROM present), place) AS is_first"""
_LIST_CONVERSATION: Final = """
    SELECT agent, context_id, account, task_id, number, ancestors, place FROM trunkline_open_turns
    WHERE agent = $1 AND context_id = $2 AND account = $3 ORDER BY place"""
_LIST_BELOW: Final = """
    SELECT agent, context_id, account, task_id, number, ancestors, place FROM trunkline_open_turns
    WHERE request = $2 AND $1 = ANY (ancestors)"""
_LIST_JOURNAL: Final = """
    SELECT agent, context_id, account, task_id, number, ancestors, place FROM trunkline_open_turns
    WHERE journal_id = $1"""
_REMOVE_TURN: Final = fenced("""
    gone AS (DELETE FROM trunkline_open_turns USING fence WHERE task_id = $3 AND number <= $4)""")
# As in SQLite: turns that were never resumed, and conversations without new messages.
_CLEAN: Final = (
    """DELETE FROM trunkline_checkpoints WHERE journal_id = $1 AND namespace = ''
        AND thread_id NOT LIKE 'graph/%' AND created < now() - interval '7 days'""",
    """DELETE FROM trunkline_checkpoints
        WHERE journal_id = $1 AND created < now() - interval '90 days'""",
    """DELETE FROM trunkline_checkpoint_writes
        WHERE journal_id = $1 AND created < now() - interval '90 days'""",
)
_CLEAN_CONVERSATIONS: Final = (
    "DELETE FROM trunkline_conversations AS old WHERE changed < now() - interval '90 days'"
    " AND NOT EXISTS (SELECT 1 FROM trunkline_open_turns AS turn WHERE turn.agent = old.agent"
    " AND turn.context_id = old.context_id AND turn.account = old.account)"
)


async def open_postgres_memory(
    database: PostgresDatabase, journal_id: str, epoch: int, local: LocalTurns | None = None
) -> AgentMemory:
    """Return the memory of the agents of a journal that this process owns.

    The journals of a process share `local`.

    Raises:
        JournalUnavailableError: the tables can't be used.
    """
    await database.prepare(CONVERSATIONS)
    tables = _FencedTables(database, journal_id, epoch)
    conversations = PostgresConversations(tables)
    order = TurnOrder(conversations, local or LocalTurns())
    await order.load()

    async def close() -> None:
        order.close()
        tables.is_closed = True

    return AgentMemory(PostgresCheckpoints(tables), conversations, order, tables.clean, close)


class _FencedTables:
    """Runs the statements of one owner of a journal.

    A statement whose connection was lost is repeated, so statements must bear to run twice.
    """

    def __init__(self, database: PostgresDatabase, journal_id: str, epoch: int) -> None:
        self.journal_id: str = journal_id
        self.is_closed: bool = False
        self._database = database
        self._epoch = epoch

    async def read(self, work: _Work[_Result], *, limit_s: float = PATIENCE_S) -> _Result:
        """Run statements on a connection.

        Raises:
            JournalUnavailableError: the database can't be reached for `limit_s` seconds.
        """

        async def run() -> _Result:
            if self.is_closed:
                problem = "it is closed"
                raise JournalUnusableError(self._database.name, problem)
            return await self._database.run(work)

        return await retry_while_unavailable(run, limit_s=limit_s)

    async def write(
        self, statement: str, *values: object, limit_s: float = PATIENCE_S
    ) -> asyncpg.Record:
        """Run a statement whose first values are the journal and the epoch. Return its row.

        Raises:
            FencedError: another host has taken over the journal.
            JournalUnavailableError: the database can't be reached for `limit_s` seconds.
        """
        row = await self.read(
            lambda connection: connection.fetchrow(
                statement, self.journal_id, self._epoch, *values
            ),
            limit_s=limit_s,
        )
        if row is None:
            raise FencedError(self.journal_id)
        return row

    async def write_all(self, work: _Work[_Result]) -> _Result:
        """Run statements in one transaction, as `write` does."""

        async def write(connection: Connection) -> _Result:
            async with begin(connection):
                await hold_fence(connection, self.journal_id, self._epoch)
                return await work(connection)

        return await self.read(write)

    async def clean(self) -> None:
        """Delete old rows; see `AgentMemory.clean`."""

        async def work(connection: Connection) -> None:
            for statement in _CLEAN:
                await connection.execute(statement, self.journal_id)
            await connection.execute(_CLEAN_CONVERSATIONS)

        await self.read(work)


class PostgresCheckpoints:
    """A `CheckpointStore` in a database."""

    is_durable: bool = True

    def __init__(self, tables: _FencedTables) -> None:
        self._tables = tables

    async def find(self, thread: ThreadKey, checkpoint_id: str = "") -> StoredCheckpoint | None:
        """Return a checkpoint with its writes; see `CheckpointStore`."""
        place = (self._tables.journal_id, *thread)

        async def work(connection: Connection) -> StoredCheckpoint | None:
            wanted = checkpoint_id
            if not wanted:
                rows = await connection.fetch(_LIST_CHECKPOINTS, *place)
                wanted = select_latest((row["checkpoint_id"], row["metadata"]) for row in rows)
            row = await connection.fetchrow(_FIND, *place, wanted)
            if row is None:
                return None
            writes = await connection.fetch(_FIND_WRITES, *place, row["checkpoint_id"])
            found = StoredCheckpoint(*row)
            return found._replace(writes=[StoredWrite(*write) for write in writes])

        return await self._tables.read(work, limit_s=_TURN_LIMIT_S)

    async def put(self, thread: ThreadKey, checkpoint: StoredCheckpoint) -> None:
        """Store a checkpoint; see `CheckpointStore`."""
        await self._tables.write(_PUT, *thread, *checkpoint[:5], limit_s=_TURN_LIMIT_S)

    async def add_writes(
        self,
        thread: ThreadKey,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replaces: bool,
    ) -> None:
        """Store writes after a checkpoint; see `CheckpointStore`."""
        statement = _REPLACE_WRITES if replaces else _ADD_WRITES
        columns = [list(column) for column in zip(*writes, strict=True)]
        if columns:
            await self._tables.write(
                statement, *thread, checkpoint_id, *columns, limit_s=_TURN_LIMIT_S
            )

    async def delete(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread; see `CheckpointStore`."""
        await self._tables.write(_DELETE, thread_id)


class PostgresConversations:
    """A `ConversationStore` in a database, for a host that owns a journal in it."""

    def __init__(self, tables: _FencedTables) -> None:
        self._tables = tables

    async def find(self, key: ConversationKey) -> StoredState | None:
        """Return the state of a conversation, or None if it is new."""
        row = await self._tables.read(
            lambda connection: connection.fetchrow(_FIND_STATE, *key), limit_s=_TURN_LIMIT_S
        )
        return None if row is None else StoredState(*row)

    async def replace(self, key: ConversationKey, state: StoredState, *, known_step: int) -> bool:
        """Replace the state of a conversation; see `ConversationStore`."""
        row = await self._tables.write(
            _REPLACE_STATE, *key, *state, known_step, limit_s=_TURN_LIMIT_S
        )
        return row["step"] is not None

    async def take_ticket(self, turn: Turn) -> Ticket:
        """Return the ticket of a turn; see `ConversationStore`."""

        async def work(connection: Connection) -> Ticket:
            await connection.execute(_LOCK_CONVERSATION, *turn.key)
            row = await connection.fetchrow(
                _ADD_TURN,
                *turn.key,
                turn.task_id,
                turn.number,
                turn.request,
                turn.ancestors,
                self._tables.journal_id,
            )
            assert row is not None  # noqa: S101  an insert returns its row
            return Ticket(turn, row["place"], row["is_first"])

        return await self._tables.write_all(work)

    async def list_tickets(self, key: ConversationKey) -> Sequence[Ticket]:
        """Return the tickets of a conversation; see `ConversationStore`."""
        rows = await self._list(_LIST_CONVERSATION, *key)
        return [_build_ticket(row, is_first=row["place"] == rows[0]["place"]) for row in rows]

    async def list_tickets_below(self, task_id: str, request: str) -> Sequence[Ticket]:
        """Return the tickets below a task; see `ConversationStore`."""
        return [_build_ticket(row) for row in await self._list(_LIST_BELOW, task_id, request)]

    async def list_own_tickets(self) -> Sequence[Ticket]:
        """Return the tickets of this journal; see `ConversationStore`."""
        rows = await self._list(_LIST_JOURNAL, self._tables.journal_id)
        return [_build_ticket(row) for row in rows]

    async def remove_ticket(self, task_id: str, number: int) -> None:
        """Remove the ticket of a turn; see `ConversationStore`."""
        await self._tables.write(_REMOVE_TURN, task_id, number)

    async def _list(self, query: str, *values: str) -> list[asyncpg.Record]:
        return await self._tables.read(lambda connection: connection.fetch(query, *values))


def _build_ticket(row: asyncpg.Record, *, is_first: bool = False) -> Ticket:
    agent, context_id, account, task_id, number, ancestors, place = row
    key = ConversationKey(agent, context_id, account)
    return Ticket(Turn(key, task_id, number, tuple(ancestors)), place, is_first)
