"""Stores a journal in PostgreSQL; see `tables`."""

import contextlib
import json
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
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.core.database.process import boot_id
from trunkline.core.postgres import Connection, PostgresDatabase
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.clock import Clock, ClockReading, since_boot_ns
from trunkline.journal.events import parse_header
from trunkline.journal.postgres.reader import PostgresTasks
from trunkline.journal.postgres.writer import SELECT_FENCE, PostgresWriter
from trunkline.journal.store import (
    CommitGroup,
    OrphanedChild,
    SealedBatch,
    StoredFold,
    SubmissionKey,
    TaskRow,
    TaskStage,
    WebhookKey,
    WebhookRow,
)

_UNPROVEN_LIFE_NS: Final = 24 * 60 * 60 * 1_000_000_000
# The number of expired keys that a renewal deletes.
_EXPIRED_KEYS: Final = 1000

_WRITE_EVENTS: Final = (
    "written AS (INSERT INTO events (task_id, sequence, body) "
    "SELECT t, s, b FROM fence, unnest($3::text[], $4::bigint[], $5::bytea[]) AS e (t, s, b))"
)
_WRITE_TASKS: Final = (
    "created AS (INSERT INTO tasks (journal_id, task_id, context_id, account, agent, state, "
    "status_time_ns, create_time_ns, parent_task_id, head, metadata, ended_ns) "
    "SELECT $1, i, c, a, g, s, st, ct, p, h, m, e FROM fence, unnest($6::text[], $7::text[], "
    "$8::text[], $9::text[], $10::smallint[], $11::bigint[], $12::bigint[], $13::text[], "
    "$14::bigint[], $15::bytea[], $16::bigint[]) AS r (i, c, a, g, s, st, ct, p, h, m, e)), "
    "changed AS (UPDATE tasks SET state = r.s, status_time_ns = r.st, head = r.h, "
    "metadata = r.m, ended_ns = r.e FROM fence, unnest($17::text[], $18::smallint[], "
    "$19::bigint[], $20::bigint[], $21::bytea[], $22::bigint[]) AS r (i, s, st, h, m, e) "
    "WHERE task_id = r.i), "
    "used AS (INSERT INTO submission_keys (journal_id, key, content_hash, task_id, expires_ns) "
    "SELECT $1, k, h, i, e FROM fence, unnest($23::text[], $24::text[], $25::text[], "
    "$26::bigint[]) AS r (k, h, i, e) ON CONFLICT (journal_id, key) DO UPDATE "
    "SET content_hash = excluded.content_hash, task_id = excluded.task_id, "
    "expires_ns = excluded.expires_ns)"
)


def _fence(*writes: str) -> str:
    """Return one statement of these writes, which returns a row if the epoch has not changed."""
    tables = ", ".join((f"fence AS ({SELECT_FENCE})", *writes))
    return " ".join(("WITH", tables, "SELECT held FROM fence"))


_COMMIT_EVENTS: Final = _fence(_WRITE_EVENTS)
_COMMIT_TASKS: Final = _fence(_WRITE_EVENTS, _WRITE_TASKS)


class PostgresStore(PostgresTasks):
    """A `JournalStore` on PostgreSQL. A commit is one statement on a connection of its own.

    It survives what the database survives. `synchronous_commit` and the replication are settings
    of the database.
    """

    needs_checkpoint: bool = False

    def __init__(
        self, database: PostgresDatabase, journal_id: str, epoch: int, *, was_lost: bool
    ) -> None:
        """Use a claimed journal. `load` follows."""
        super().__init__(database, journal_id)
        self.id: str = journal_id
        self.epoch: int = epoch
        self.was_lost: bool = was_lost
        """The previous owner did not release the journal."""
        self.clock: Clock = Clock(ClockReading())
        self._writer = PostgresWriter(database, journal_id, epoch)
        self._is_closed = False

    async def load(self) -> None:
        """Read the clock of the journal, and continue it after the latest events."""
        row = await self._database.fetchrow(
            "SELECT (extract(epoch FROM now() - created) * 1000000000)::bigint AS age_ns, time_ns "
            "FROM journals JOIN leases USING (journal_id) WHERE journal_id = $1",
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
            "WITH latest AS (SELECT task_id FROM tasks WHERE journal_id = $1 AND ended_ns = 0 "
            "UNION ALL (SELECT task_id FROM tasks WHERE journal_id = $1 AND ended_ns > 0 "
            "AND stage = 0 ORDER BY ended_ns DESC LIMIT 1)) "
            "SELECT (SELECT body FROM events WHERE events.task_id = latest.task_id "
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
        # Aliases and webhooks without events can be written again.
        first = group.batches[0] if group.batches else None
        await self._writer.write(
            lambda connection: commit(connection, group),
            was_stored=None if first is None else partial(_is_stored, first),
        )

    async def find_keys(self, keys: Collection[str], *, now_ns: int) -> dict[str, SubmissionKey]:
        """Return those idempotency keys that have not expired; see `JournalStore`."""
        rows = await self._database.fetch(
            "SELECT key, content_hash, task_id, expires_ns FROM submission_keys "
            "WHERE journal_id = $1 AND key = ANY($2) AND expires_ns > $3",
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
                "INSERT INTO folds (task_id, epoch, snapshot, forwarded) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (task_id) DO NOTHING",
                [
                    (task_id, fold.epoch, fold.snapshot, json.dumps(dict(fold.forwarded)))
                    for task_id, fold in folds.items()
                ],
            )
            await _set_stage(connection, folds, TaskStage.COMPACTED)

        await self._write_repeatable(work)

    async def delete_events(self, task_ids: Sequence[str], *, limit: int) -> list[str]:
        """Delete the oldest events of compacted tasks; see `JournalStore`."""
        cleared: list[str] = []

        async def work(connection: Connection) -> None:
            cleared.clear()
            remaining = limit
            for task_id in task_ids:
                tag = await connection.execute(
                    "DELETE FROM events WHERE task_id = $1 AND sequence <= (SELECT max(sequence) "
                    "FROM (SELECT sequence FROM events WHERE task_id = $1 "
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

        await self._write_repeatable(work)
        return cleared

    async def delete_tasks(self, task_ids: Sequence[str]) -> None:
        """Delete compacted tasks; see `JournalStore`."""

        async def work(connection: Connection) -> None:
            for table in ("folds", "tasks", "aliases", "webhooks"):
                await connection.execute(
                    " ".join(("DELETE FROM", table, "WHERE task_id = ANY($1)")), list(task_ids)
                )

        await self._write_repeatable(work)

    async def checkpoint(self) -> bool:
        """Return True: the database does that by itself."""
        if self._is_closed:
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        return True

    async def renew_lease(self, lease_s: float) -> None:
        """Extend the lease, and delete expired keys and aliases; see `JournalStore`."""
        age_ns = self.clock.age_ns()
        async with self._fenced() as connection:
            await connection.execute(
                "UPDATE leases SET lease_until = now() + make_interval(secs => $2), lease_s = $2, "
                "time_ns = $3 WHERE journal_id = $1",
                self.id,
                lease_s,
                self.clock.reading().time_ns,
            )
            await connection.execute(
                "DELETE FROM submission_keys WHERE (journal_id, key) IN (SELECT journal_id, key "
                "FROM submission_keys WHERE journal_id = $1 AND expires_ns <= $2 LIMIT $3)",
                self.id,
                age_ns,
                _EXPIRED_KEYS,
            )
            # An alias is bound before its task is created, which may fail. Each alias is examined
            # once: `unproven_ns`, the journal's age at the binding, is then NULL.
            values = (self.id, age_ns - _UNPROVEN_LIFE_NS)
            await connection.execute(
                "DELETE FROM aliases WHERE journal_id = $1 AND unproven_ns <= $2 "
                "AND task_id LIKE journal_id || '-%' AND NOT EXISTS "
                "(SELECT 1 FROM tasks WHERE tasks.task_id = aliases.task_id)",
                *values,
            )
            await connection.execute(
                "UPDATE aliases SET unproven_ns = NULL WHERE journal_id = $1 AND unproven_ns <= $2",
                *values,
            )

    async def add_orphaned_child(self, child: OrphanedChild) -> None:
        """Store a child of an ended task."""
        async with self._fenced() as connection:
            await connection.execute(
                "INSERT INTO orphaned_children "
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
                "DELETE FROM orphaned_children WHERE journal_id = $1 AND task_id = $2",
                self.id,
                task_id,
            )

    async def list_orphaned_children(self) -> list[OrphanedChild]:
        """Return the stored children of ended tasks."""
        rows = await self._database.fetch(
            "SELECT task_id, account, until_s, user_statement FROM orphaned_children "
            "WHERE journal_id = $1",
            self.id,
        )
        return [OrphanedChild(*row) for row in rows]

    async def close(self, *, for_takeover: bool = False) -> None:
        """Release the journal; see `JournalStore`."""
        self._is_closed = True
        await self._writer.close()
        await self._database.fetchrow(
            "UPDATE leases SET lease_until = now(), time_ns = $3, "
            "host = CASE WHEN $4 THEN host ELSE '' END WHERE journal_id = $1 "
            "AND EXISTS (SELECT 1 FROM journals WHERE journal_id = $1 AND epoch = $2)",
            self.id,
            self.epoch,
            self.clock.reading().time_ns,
            for_takeover,
        )

    @contextlib.asynccontextmanager
    async def _fenced(self) -> AsyncIterator[Connection]:
        """Run a block in a transaction of the owner, beside the commits."""
        if self._is_closed:
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        async with self._database.transaction() as connection:
            if await connection.fetchval(SELECT_FENCE, self.id, self.epoch) is None:
                raise FencedError(self.id)
            yield connection

    async def _write_repeatable(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Run statements in one transaction. They may run again although they were stored."""

        async def run(connection: Connection) -> bool:
            async with connection.transaction():
                if await connection.fetchval(SELECT_FENCE, self.id, self.epoch) is None:
                    return False
                await work(connection)
            return True

        await self._writer.write(run)

    async def _commit(self, connection: Connection, group: CommitGroup) -> bool:
        events = (
            [batch.task_id for batch in group.batches],
            [batch.first_sequence + batch.count - 1 for batch in group.batches],
            [batch.sealed for batch in group.batches],
        )
        if not (group.created or group.changed or group.keys):
            held = await connection.fetchval(_COMMIT_EVENTS, self.id, self.epoch, *events)
            return held is not None
        created = [group.changed.get(task_id, row) for task_id, row in group.created.items()]
        changed = [row for task_id, row in group.changed.items() if task_id not in group.created]
        held = await connection.fetchval(
            _COMMIT_TASKS,
            self.id,
            self.epoch,
            *events,
            [row.task_id for row in created],
            [row.context_id for row in created],
            [row.account for row in created],
            [row.agent for row in created],
            [row.state for row in created],
            [row.status_time_ns for row in created],
            [row.create_time_ns for row in created],
            [row.parent_task_id for row in created],
            [row.head for row in created],
            [row.metadata for row in created],
            [row.ended_ns for row in created],
            [row.task_id for row in changed],
            [row.state for row in changed],
            [row.status_time_ns for row in changed],
            [row.head for row in changed],
            [row.metadata for row in changed],
            [row.ended_ns for row in changed],
            [key.key for key in group.keys],
            [key.content_hash for key in group.keys],
            [key.task_id for key in group.keys],
            [key.expires_ns for key in group.keys],
        )
        return held is not None

    async def _commit_all(self, connection: Connection, group: CommitGroup) -> bool:
        """Write a group with aliases or webhooks, which are rare, in several statements."""
        async with connection.transaction():
            if await connection.fetchval(SELECT_FENCE, self.id, self.epoch) is None:
                return False
            if group.batches:
                await self._commit(connection, group)
            if group.aliases:
                age_ns = self.clock.age_ns()
                await connection.executemany(
                    "INSERT INTO aliases (journal_id, account, alias, task_id, unproven_ns) "
                    "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (journal_id, account, alias) "
                    "DO UPDATE SET task_id = excluded.task_id, unproven_ns = excluded.unproven_ns",
                    [
                        (self.id, record.account, record.alias, record.task_id, age_ns)
                        for record in group.aliases
                    ],
                )
            await self._write_webhooks(connection, group.webhooks)
        return True

    async def _write_webhooks(
        self, connection: Connection, changed: Mapping[WebhookKey, WebhookRow | None]
    ) -> None:
        """Store or delete webhooks. A new one gets the next number, which is their order."""
        await connection.executemany(
            "INSERT INTO webhooks (journal_id, task_id, config_id, state, content, number) "
            "VALUES ($1, $2, $3, $4, $5, "
            "(SELECT coalesce(max(number), 0) + 1 FROM webhooks WHERE journal_id = $1)) "
            "ON CONFLICT (task_id, config_id) "
            "DO UPDATE SET state = excluded.state, content = excluded.content",
            [
                (self.id, row.task_id, row.config_id, row.state, row.content)
                for row in changed.values()
                if row is not None
            ],
        )
        await connection.executemany(
            "DELETE FROM webhooks WHERE task_id = $1 AND config_id = $2",
            [key for key, row in changed.items() if row is None],
        )


async def _is_stored(batch: SealedBatch, connection: Connection) -> bool:
    body = await connection.fetchval(
        "SELECT body FROM events WHERE task_id = $1 AND sequence = $2",
        batch.task_id,
        batch.first_sequence + batch.count - 1,
    )
    return body is not None and bytes(body) == batch.sealed


async def _set_stage(connection: Connection, task_ids: Iterable[str], stage: TaskStage) -> None:
    await connection.execute(
        "UPDATE tasks SET stage = $2 WHERE task_id = ANY($1)", list(task_ids), int(stage)
    )
