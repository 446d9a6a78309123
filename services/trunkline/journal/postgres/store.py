"""Stores a journal in PostgreSQL; see `tables`."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import astuple
from typing import Final

import asyncpg
from google.protobuf.message import DecodeError

from trunkline.core.database.process import boot_id
from trunkline.core.postgres import Connection, PostgresDatabase, begin
from trunkline.core.postgres.columns import split_columns
from trunkline.errors import JournalUnavailableError
from trunkline.journal.clock import Clock, ClockReading, since_boot_ns
from trunkline.journal.events import parse_header
from trunkline.journal.postgres.fence import HOLD_FENCE
from trunkline.journal.postgres.lease_clock import read_lease_clock
from trunkline.journal.postgres.reader import PostgresTasks
from trunkline.journal.postgres.writer import FENCE, Fence, PostgresWriter
from trunkline.journal.store import (
    UNPROVEN_ALIAS_NS,
    ClaimedError,
    CommitGroup,
    OrphanedChild,
    StoredFold,
    SubmissionKey,
    TaskRow,
    TaskStage,
)

logger = logging.getLogger(__name__)

# The number of expired keys that a renewal deletes.
_EXPIRED_KEYS: Final = 1000
# The shortest time for a renewal.
_RENEWAL_S: Final = 1.0
# The time for the end of a write in flight and the release.
_CLOSE_S: Final = 5.0

_WRITE_EVENTS: Final = (
    "written AS (INSERT INTO trunkline_events (task_id, sequence, body) "
    "SELECT t, s, b FROM fence, unnest($5::text[], $6::bigint[], $7::bytea[]) AS e (t, s, b))"
)
_WRITE_TASKS: Final = (
    "created AS (INSERT INTO trunkline_tasks (journal_id, task_id, context_id, account, agent, "
    "state, "
    "status_time_ns, create_time_ns, parent_task_id, head, metadata, ended_ns) "
    "SELECT $1, i, c, a, g, s, st, ct, p, h, m, e FROM fence, unnest($8::text[], $9::text[], "
    "$10::text[], $11::text[], $12::smallint[], $13::bigint[], $14::bigint[], $15::text[], "
    "$16::bigint[], $17::bytea[], $18::bigint[]) AS r (i, c, a, g, s, st, ct, p, h, m, e)), "
    "changed AS (UPDATE trunkline_tasks SET state = r.s, status_time_ns = r.st, head = r.h, "
    "metadata = r.m, ended_ns = r.e FROM fence, unnest($19::text[], $20::smallint[], "
    "$21::bigint[], $22::bigint[], $23::bytea[], $24::bigint[]) AS r (i, s, st, h, m, e) "
    "WHERE task_id = r.i), "
    # A key of another journal is taken only once it has expired there.
    "claimed AS (INSERT INTO trunkline_submission_keys AS u (journal_id, key, content_hash, "
    "task_id, expires_ns) SELECT $1, k, h, i, e FROM fence, unnest($25::text[], $26::text[], "
    "$27::text[], $28::bigint[]) AS r (k, h, i, e) ORDER BY k ON CONFLICT (key) DO UPDATE "
    "SET journal_id = $1, content_hash = excluded.content_hash, task_id = excluded.task_id, "
    "expires_ns = excluded.expires_ns WHERE u.journal_id = $1 OR u.expires_ns <= "
    "(SELECT extract(epoch FROM now() - created) * 1000000000 FROM trunkline_journals AS j "
    "WHERE j.journal_id = u.journal_id) RETURNING key)"
)


# Divides by zero if another journal has a key, so that nothing is written.
_IF_CLAIMED: Final = (
    "SELECT held, 1 / CASE WHEN (SELECT count(*) FROM claimed) = cardinality($25::text[]) "
    "THEN 1 ELSE 0 END FROM fence"
)


# An alias of another journal moves to this one. Divides by zero if it stands for another task.
_BIND_ALIAS: Final = (
    "WITH moved AS (UPDATE trunkline_aliases SET journal_id = $1, task_id = $4, unproven_ns = $6 "
    "WHERE account = $2 AND alias = $3 AND task_id IN ($4, $5) RETURNING 1), "
    "made AS (INSERT INTO trunkline_aliases (journal_id, account, alias, task_id, unproven_ns) "
    "SELECT $1, $2, $3, $4, $6 WHERE NOT EXISTS "
    "(SELECT 1 FROM trunkline_aliases WHERE account = $2 AND alias = $3) RETURNING 1) "
    "SELECT 1 / (SELECT count(*) FROM (SELECT 1 FROM moved UNION ALL SELECT 1 FROM made) AS bound)"
)


def _fence(*writes: str, select: str = "SELECT held FROM fence") -> str:
    """Return one statement of these writes, which returns a row if FENCE does."""
    return " ".join(("WITH", ", ".join((f"fence AS ({FENCE})", *writes)), select))


_COMMIT_EVENTS: Final = _fence(_WRITE_EVENTS)
_COMMIT_TASKS: Final = _fence(_WRITE_EVENTS, _WRITE_TASKS, select=_IF_CLAIMED)


class PostgresStore(PostgresTasks):
    """A `JournalStore` on PostgreSQL. A commit is one statement on a connection of its own.

    It survives what the database survives. `synchronous_commit` and the replication are settings
    of the database.
    """

    needs_checkpoint: bool = False

    def __init__(
        self,
        database: PostgresDatabase,
        journal_id: str,
        epoch: int,
        writes: int,
        *,
        was_lost: bool,
    ) -> None:
        """Use a claimed journal. `load` follows."""
        super().__init__(database, journal_id)
        self.id: str = journal_id
        self.epoch: int = epoch
        self.was_lost: bool = was_lost
        self.clock: Clock = Clock(ClockReading())
        self._writer = PostgresWriter(database, journal_id, epoch, writes)
        self._is_closed = False

    async def load(self) -> None:
        """Read the clock of the journal, and continue it after the latest events."""
        row = await self._database.fetchrow(
            "SELECT (extract(epoch FROM now() - created) * 1000000000)::bigint AS age_ns, time_ns "
            "FROM trunkline_journals JOIN trunkline_leases USING (journal_id) WHERE journal_id = "
            "$1",
            self.id,
        )
        if row is None:
            raise JournalUnavailableError(self._database.name, f"journal {self.id} is gone")
        self.clock = Clock(
            ClockReading(
                time_ns=row["time_ns"],
                age_ns=row["age_ns"],
                wall_ns=time.time_ns(),
                boot=boot_id(),
                since_boot_ns=since_boot_ns(),
            )
        )
        latest = await self._database.fetch(
            "WITH latest AS (SELECT task_id FROM trunkline_tasks WHERE journal_id = $1 AND "
            "ended_ns = 0 "
            "UNION ALL (SELECT task_id FROM trunkline_tasks WHERE journal_id = $1 AND ended_ns > 0 "
            "AND stage = 0 ORDER BY ended_ns DESC LIMIT 1)) "
            "SELECT (SELECT body FROM trunkline_events WHERE trunkline_events.task_id = "
            "latest.task_id "
            "ORDER BY sequence DESC LIMIT 1) AS body FROM latest",
            self.id,
        )
        for (body,) in latest:
            # Damage is reported when the task is read.
            with contextlib.suppress(DecodeError, TypeError):
                self.clock.advance_to(parse_header(body).time.ToNanoseconds())

    async def commit(self, group: CommitGroup) -> None:
        """Write the group in one transaction; see `JournalStore`."""
        commit = self._commit_all if group.aliases or group.webhooks else self._commit
        try:
            await self._writer.write(lambda connection, fence: commit(connection, fence, group))
        except JournalUnavailableError as error:
            claimed = (asyncpg.DivisionByZeroError, asyncpg.UniqueViolationError)
            claims = group.created or group.aliases
            if claims and isinstance(error.__cause__, claimed):
                problem = "another submission has the same key or the same task id; try again"
                raise ClaimedError(self._database.name, problem) from error
            raise

    async def find_keys(self, keys: Collection[str], *, now_ns: int) -> dict[str, SubmissionKey]:
        """Return those idempotency keys that have not expired; see `JournalStore`."""
        rows = await self._database.fetch(
            "SELECT key, content_hash, task_id, expires_ns FROM trunkline_submission_keys AS u "
            "JOIN trunkline_journals USING (journal_id) WHERE key = ANY($2) AND expires_ns > "
            "CASE WHEN u.journal_id = $1 THEN $3::bigint "
            "ELSE extract(epoch FROM now() - created) * 1000000000 END",
            self.id,
            list(keys),
            now_ns,
        )
        return {row["key"]: SubmissionKey(*row) for row in rows}

    async def list_unfinished(self) -> list[TaskRow]:
        """Return the rows of all unfinished tasks, the oldest first."""
        return await self._select_tasks("ended_ns = 0 ORDER BY create_time_ns")

    async def list_ended(self, age_ns: int, *, stage: TaskStage, limit: int) -> list[TaskRow]:
        """Return rows of tasks that ended long ago; see `JournalStore`."""
        return await self._select_tasks(
            "ended_ns > 0 AND stage = $2 AND ended_ns <= $3 ORDER BY ended_ns LIMIT $4",
            int(stage),
            age_ns,
            limit,
        )

    async def compact(self, folds: Mapping[str, StoredFold]) -> None:
        """Replace tasks' events by folds; see `JournalStore`."""

        async def work(connection: Connection) -> None:
            await connection.executemany(
                "INSERT INTO trunkline_folds (task_id, epoch, snapshot, forwarded) VALUES ($1, "
                "$2, $3, $4) "
                "ON CONFLICT (task_id) DO NOTHING",
                [
                    (task_id, fold.epoch, fold.snapshot, json.dumps(dict(fold.forwarded)))
                    for task_id, fold in folds.items()
                ],
            )
            await _set_stage(connection, folds, TaskStage.COMPACTED)

        await self._write(work)

    async def delete_events(self, task_ids: Sequence[str], *, limit: int) -> list[str]:
        """Delete the oldest events of compacted tasks; see `JournalStore`."""
        cleared: list[str] = []

        async def work(connection: Connection) -> None:
            cleared.clear()
            remaining = limit
            for task_id in task_ids:
                tag = await connection.execute(
                    "DELETE FROM trunkline_events WHERE task_id = $1 AND sequence <= (SELECT "
                    "max(sequence) "
                    "FROM (SELECT sequence FROM trunkline_events WHERE task_id = $1 "
                    "ORDER BY sequence LIMIT $2) AS oldest)",
                    task_id,
                    remaining,
                )
                deleted = int(tag.split()[-1])
                if deleted == remaining:
                    break
                remaining -= deleted
                cleared.append(task_id)
            await _set_stage(connection, cleared, TaskStage.CLEARED)

        await self._write(work)
        return cleared

    async def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks; see `JournalStore`."""

        async def work(connection: Connection) -> None:
            for table in (
                "trunkline_submission_keys",
                "trunkline_folds",
                "trunkline_tasks",
                "trunkline_aliases",
                "trunkline_webhooks",
            ):
                await connection.execute(
                    " ".join(("DELETE FROM", table, "WHERE task_id = ANY($1)")), list(task_ids)
                )

        await self._write(work)

    async def checkpoint(self) -> bool:
        """Return True: the database does that by itself."""
        if self._is_closed:
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        return True

    async def renew_lease(self, lease_s: float) -> None:
        """Extend the lease, and delete expired keys and aliases; see `JournalStore`.

        A renewal that takes longer than a third of the lease fails, so that the next one uses
        another connection.
        """
        try:
            async with asyncio.timeout(max(lease_s / 3, _RENEWAL_S)):
                await self._renew_lease(lease_s)
        except TimeoutError:
            problem = "the renewal of the lease took too long"
            raise JournalUnavailableError(self._database.name, problem) from None

    async def _renew_lease(self, lease_s: float) -> None:
        age_ns = self.clock.age_ns()
        until_s = await read_lease_clock(self._database) + lease_s
        async with self._fenced() as connection:
            await connection.execute(
                "UPDATE trunkline_leases SET until_s = $2, lease_s = $3, time_ns = $4 "
                "WHERE journal_id = $1",
                self.id,
                until_s,
                lease_s,
                self.clock.reading().time_ns,
            )
            # A commit may use an expired key again while this statement waits for it, so the outer
            # condition compares the time once more.
            await connection.execute(
                "DELETE FROM trunkline_submission_keys WHERE journal_id = $1 AND expires_ns <= $2 "
                "AND key IN (SELECT key FROM trunkline_submission_keys "
                "WHERE journal_id = $1 AND expires_ns <= $2 LIMIT $3)",
                self.id,
                age_ns,
                _EXPIRED_KEYS,
            )
            values = (self.id, age_ns - UNPROVEN_ALIAS_NS)
            await connection.execute(
                "DELETE FROM trunkline_aliases WHERE journal_id = $1 AND unproven_ns <= $2 "
                "AND task_id LIKE journal_id || '-%' AND NOT EXISTS "
                "(SELECT 1 FROM trunkline_tasks WHERE trunkline_tasks.task_id = "
                "trunkline_aliases.task_id)",
                *values,
            )
            await connection.execute(
                "UPDATE trunkline_aliases SET unproven_ns = NULL WHERE journal_id = $1 AND "
                "unproven_ns <= $2",
                *values,
            )

    async def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task."""
        async with self._fenced() as connection:
            await connection.execute(
                "INSERT INTO trunkline_orphaned_children "
                "(journal_id, task_id, account, until_s, user_statement) "
                "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (journal_id, task_id) DO UPDATE "
                "SET account = excluded.account, until_s = excluded.until_s, "
                "user_statement = excluded.user_statement",
                self.id,
                child.task_id,
                child.account,
                child.until_s,
                child.user_statement,
            )

    async def delete_orphaned_child(self, task_id: str) -> None:
        """Delete a child of an ended task."""
        async with self._fenced() as connection:
            await connection.execute(
                "DELETE FROM trunkline_orphaned_children WHERE journal_id = $1 AND task_id = $2",
                self.id,
                task_id,
            )

    async def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        rows = await self._database.fetch(
            "SELECT task_id, account, until_s, user_statement FROM trunkline_orphaned_children "
            "WHERE journal_id = $1",
            self.id,
        )
        return [OrphanedChild(*row) for row in rows]

    async def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal; see `JournalStore`.

        If that takes too long, or the database is away, the lease ends by itself.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.close()
                await self._release(for_takeover=for_takeover)
        except (JournalUnavailableError, TimeoutError) as error:
            extra = {"journal": self.id, "problem": str(error) or "it took too long"}
            logger.warning("journal.not_released", extra=extra)
        finally:
            self._writer.disconnect()

    async def _release(self, *, for_takeover: bool) -> None:
        now_s = await read_lease_clock(self._database)
        async with self._database.transaction() as connection:
            if await connection.fetchval(HOLD_FENCE, self.id, self.epoch) is None:
                return
            await connection.execute(
                "UPDATE trunkline_leases SET until_s = $2, time_ns = $3, "
                "host = CASE WHEN $4 THEN host ELSE '' END WHERE journal_id = $1",
                self.id,
                now_s,
                self.clock.reading().time_ns,
                for_takeover,
            )

    @contextlib.asynccontextmanager
    async def _fenced(self) -> AsyncIterator[Connection]:
        """Run a block in a transaction of the owner, beside the commits."""
        if self._is_closed:
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        async with self._database.transaction() as connection:
            await self._writer.hold_fence(connection)
            yield connection

    async def _write(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Run statements in one transaction of the writer. They may run again."""

        async def run(connection: Connection, fence: Fence) -> bool:
            async with begin(connection):
                if not await connection.fetchval(FENCE, *fence):
                    return False
                await work(connection)
            return True

        await self._writer.write(run)

    async def _commit(self, connection: Connection, fence: Fence, group: CommitGroup) -> bool:
        events = (
            [batch.task_id for batch in group.batches],
            [batch.first_sequence + batch.count - 1 for batch in group.batches],
            [batch.sealed for batch in group.batches],
        )
        if not (group.created or group.changed or group.keys):
            return bool(await connection.fetchval(_COMMIT_EVENTS, *fence, *events))
        changed = [
            (row.task_id, row.state, row.status_time_ns, row.head, row.metadata, row.ended_ns)
            for row in group.updated_rows
        ]
        keys = [(key.key, key.content_hash, key.task_id, key.expires_ns) for key in group.keys]
        held = await connection.fetchval(
            _COMMIT_TASKS,
            *fence,
            *events,
            # In the order of the fields.
            *split_columns(group.created_rows, 11),
            *split_columns(changed, 6),
            *split_columns(keys, 4),
        )
        return bool(held)

    async def _commit_all(self, connection: Connection, fence: Fence, group: CommitGroup) -> bool:
        """Write a group with aliases or webhooks, which are rare, in several statements."""
        async with begin(connection):
            if not await self._commit(connection, fence, group):
                return False
            age_ns = self.clock.age_ns()
            for record in group.aliases:
                await connection.execute(_BIND_ALIAS, self.id, *astuple(record), age_ns)
            await self._write_webhooks(connection, group)
        return True

    async def _write_webhooks(self, connection: Connection, group: CommitGroup) -> None:
        """Store or delete webhooks. A new one gets the next number, which is their order."""
        await connection.executemany(
            "INSERT INTO trunkline_webhooks (journal_id, task_id, config_id, state, content, "
            "number) "
            "VALUES ($1, $2, $3, $4, $5, "
            "(SELECT coalesce(max(number), 0) + 1 FROM trunkline_webhooks WHERE journal_id = $1)) "
            "ON CONFLICT (task_id, config_id) "
            "DO UPDATE SET state = excluded.state, content = excluded.content",
            [
                (self.id, row.task_id, row.config_id, row.state, row.content)
                for row in group.stored_webhooks
            ],
        )
        await connection.executemany(
            "DELETE FROM trunkline_webhooks WHERE task_id = $1 AND config_id = $2",
            group.deleted_webhooks,
        )


async def _set_stage(connection: Connection, task_ids: Iterable[str], stage: TaskStage) -> None:
    await connection.execute(
        "UPDATE trunkline_tasks SET stage = $2 WHERE task_id = ANY($1)", list(task_ids), int(stage)
    )
