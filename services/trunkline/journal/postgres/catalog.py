"""The journals in one PostgreSQL database, shared by the hosts of many machines."""

import asyncio
import os
import secrets
import socket
import string
import time
from typing import Final

from trunkline.core.postgres import PostgresDatabase
from trunkline.core.runtime import run_with_late_cancel
from trunkline.core.task_states import INTERRUPTED
from trunkline.errors import JournalUnavailableError
from trunkline.journal.catalog import JournalContents, OrphanedJournal
from trunkline.journal.postgres.store import PostgresStore
from trunkline.journal.postgres.tables import JOURNALS

_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_ID_LENGTH: Final = 8
# The lease before its first renewal.
_FIRST_LEASE_S: Final = 10.0
_LONGEST_SCAN: Final = 100

# The row of the journal is locked before the lease is read, and before the epoch changes. Renewals
# lock both in this order, too.
_LOCK: Final = "SELECT journal_id FROM journals WHERE name = $1 FOR UPDATE"
_SELECT_LEASE: Final = (
    "SELECT journal_id, epoch, host, lease_until > clock_timestamp() AS is_live, "
    "extract(epoch FROM lease_until - clock_timestamp())::float8 AS left_s "
    "FROM journals JOIN leases USING (journal_id) WHERE name = $1"
)


class PostgresCatalog:
    """A `JournalCatalog` of the journals in a database.

    Leases are rows, and the clock of the database measures them. No process kills another: after a
    takeover, commits of the earlier owner find another epoch.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._host = f"{socket.gethostname()}/{os.getpid()}"

    async def list_names(self) -> frozenset[str]:
        """Return the names of all journals."""
        database = await self._prepare()
        return frozenset(row["name"] for row in await database.fetch("SELECT name FROM journals"))

    async def is_in_use(self, name: str) -> bool:
        """Return whether a process has a valid lease on the journal."""
        database = await self._prepare()
        row = await database.fetchrow(_SELECT_LEASE, name)
        return row is not None and bool(row["host"]) and row["is_live"]

    async def inspect(self, name: str) -> JournalContents | None:
        """Return the contents of a journal; see `JournalCatalog`."""
        database = await self._prepare()
        row = await database.fetchrow(_SELECT_LEASE, name)
        if row is None:
            return None
        agents = await self._list_unfinished(row["journal_id"])
        return JournalContents(bool(row["host"]), frozenset(agent for agent, _ in agents))

    async def open(self, name: str) -> PostgresStore:
        """Open a journal, or create it; see `JournalCatalog`."""
        return await self._open(name, may_create=True)

    async def take_over(self, name: str) -> PostgresStore:
        """Open a journal whose lease has expired; see `JournalCatalog`."""
        return await self._open(name, may_create=False)

    async def find_orphans(self, *, rereads: bool = False) -> list[OrphanedJournal]:
        """Return the journals that can be taken over; see `JournalCatalog`.

        While the database is away, no host can renew its lease. So after an error, a journal is an
        orphan only once the database has answered for the length of its lease.
        """
        database = await self._prepare()
        rows = await database.fetch(
            "SELECT name, journal_id, lease_s, "
            "extract(epoch FROM now() - lease_until)::float8 AS lost_for_s, "
            "NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.journal_id = leases.journal_id) "
            "AS is_empty FROM journals JOIN leases USING (journal_id) "
            "WHERE host <> '' AND lease_until <= now() ORDER BY lease_until LIMIT $1",
            _LONGEST_SCAN,
        )
        answered_s = time.monotonic() - database.recovered_s
        orphans = []
        for row in rows:
            if answered_s < row["lease_s"]:
                continue
            unfinished = await self._list_unfinished(row["journal_id"])
            orphans.append(
                OrphanedJournal(
                    row["name"],
                    row["journal_id"],
                    row["lost_for_s"],
                    frozenset(agent for agent, _ in unfinished),
                    is_only_waiting=bool(unfinished)
                    and all(state in INTERRUPTED for _, state in unfinished),
                    is_empty=row["is_empty"],
                )
            )
        return orphans

    async def is_leased(self, journal_id: str) -> bool:
        """Return whether a process has a valid lease on the journal with this id."""
        database = await self._prepare()
        row = await database.fetchrow(
            "SELECT 1 FROM leases WHERE journal_id = $1 AND host <> '' AND lease_until > now()",
            journal_id,
        )
        return row is not None

    async def delete_if_empty(self, name: str) -> bool:
        """Delete a journal if it contains no tasks; see `JournalCatalog`."""
        database = await self._prepare()
        async with database.transaction() as connection:
            await connection.execute(_LOCK, name)
            row = await connection.fetchrow(_SELECT_LEASE, name)
            if row is None:
                return False
            if await connection.fetchval(
                "SELECT 1 FROM tasks WHERE journal_id = $1 LIMIT 1", row["journal_id"]
            ):
                return False
            if row["host"] and row["is_live"]:
                raise self._in_use(name, row["host"], row["left_s"])
            for table in (
                "journals",
                "leases",
                "submission_keys",
                "aliases",
                "webhooks",
                "orphaned_children",
            ):
                await connection.execute(
                    " ".join(("DELETE FROM", table, "WHERE journal_id = $1")), row["journal_id"]
                )
        return True

    async def _open(self, name: str, *, may_create: bool) -> PostgresStore:
        async def release(opening: asyncio.Task[PostgresStore | Exception]) -> None:
            await asyncio.wait([opening])
            opened = opening.result()
            if isinstance(opened, PostgresStore):
                await opened.close(for_takeover=opened.was_lost)

        return await run_with_late_cancel(self._claim(name, may_create=may_create), release)

    async def _claim(self, name: str, *, may_create: bool) -> PostgresStore:
        database = await self._prepare()
        async with database.transaction() as connection:
            if may_create:
                journal_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
                # Of several processes, one creates it, and the others wait for its transaction.
                await connection.execute(
                    "WITH made AS (INSERT INTO journals (journal_id, name, epoch) "
                    "VALUES ($1, $2, 1) ON CONFLICT (name) DO NOTHING RETURNING journal_id) "
                    "INSERT INTO leases (journal_id, host, lease_until, lease_s, time_ns) "
                    "SELECT journal_id, '', now(), $3, 0 FROM made",
                    journal_id,
                    name,
                    _FIRST_LEASE_S,
                )
            await connection.execute(_LOCK, name)
            row = await connection.fetchrow(_SELECT_LEASE, name)
            if row is None:
                raise JournalUnavailableError(database.name, f"it has no journal {name!r}")
            if row["host"] and row["is_live"]:
                raise self._in_use(name, row["host"], row["left_s"])
            was_lost = bool(row["host"])
            epoch = row["epoch"] + was_lost
            await connection.execute(
                "UPDATE journals SET epoch = $2 WHERE journal_id = $1", row["journal_id"], epoch
            )
            await connection.execute(
                "UPDATE leases SET host = $2, lease_s = $3, "
                "lease_until = now() + make_interval(secs => $3) WHERE journal_id = $1",
                row["journal_id"],
                self._host,
                _FIRST_LEASE_S,
            )
        store = PostgresStore(database, row["journal_id"], epoch, was_lost=was_lost)
        try:
            await store.load()
        except BaseException:
            await store.close(for_takeover=was_lost)
            raise
        return store

    async def _prepare(self) -> PostgresDatabase:
        await self._database.prepare(JOURNALS)
        return self._database

    async def _list_unfinished(self, journal_id: str) -> list[tuple[str, int]]:
        """Return the agents of unfinished tasks with the tasks' states, without duplicates."""
        rows = await self._database.fetch(
            "SELECT DISTINCT agent, state FROM tasks WHERE journal_id = $1 AND ended_ns = 0",
            journal_id,
        )
        return [(row["agent"], row["state"]) for row in rows]

    def _in_use(self, name: str, host: str, left_s: float) -> JournalUnavailableError:
        problem = f"process {host} has journal {name!r}; its lease holds {left_s:.1f} s"
        return JournalUnavailableError(self._database.name, problem)
