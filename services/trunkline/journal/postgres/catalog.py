"""The journals in one PostgreSQL database, shared by the hosts of many machines."""

import os
import secrets
import socket
import string
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres import PostgresDatabase
from trunkline.core.task_states import INTERRUPTED
from trunkline.errors import JournalUnavailableError
from trunkline.journal.catalog import OrphanedJournal, open_or_release
from trunkline.journal.postgres.lease_clock import read_lease_clock
from trunkline.journal.postgres.store import PostgresStore
from trunkline.journal.postgres.tables import JOURNALS
from trunkline.journal.store import LIVE_WEBHOOKS

if TYPE_CHECKING:
    import asyncpg

_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_ID_LENGTH: Final = 8
# The lease before its first renewal.
_FIRST_LEASE_S: Final = 10.0

# The row of the journal is locked before the lease is read, and before the epoch changes. Renewals
# lock both in this order, too.
_LOCK: Final = "SELECT journal_id FROM trunkline_journals WHERE name = $1 FOR UPDATE"
# $2 is the time of the leases' clock.
_SELECT_LEASE: Final = (
    "SELECT journal_id, epoch, writes, host, until_s - $2 AS left_s "
    "FROM trunkline_journals JOIN trunkline_leases USING (journal_id) WHERE name = $1"
)
_FIND_ORPHANS: Final = (
    "SELECT name, journal_id, $1 - until_s AS lost_for_s, host = '' AS was_released, "
    "NOT EXISTS (SELECT 1 FROM trunkline_tasks AS t WHERE t.journal_id = l.journal_id) "
    "AS is_empty, "
    "ARRAY(SELECT DISTINCT agent FROM trunkline_tasks AS t "
    "WHERE t.journal_id = l.journal_id AND ended_ns = 0) AS agents, "
    "(SELECT bool_and(state = ANY($2)) FROM trunkline_tasks AS t "
    "WHERE t.journal_id = l.journal_id AND ended_ns = 0) AS is_only_waiting, "
    "EXISTS (SELECT 1 FROM trunkline_webhooks AS w "
    "WHERE w.journal_id = l.journal_id AND w.state = ANY($3)) AS has_webhooks "
    "FROM trunkline_leases AS l JOIN trunkline_journals USING (journal_id) "
    "WHERE until_s <= $1 ORDER BY until_s"
)


class PostgresCatalog:
    """A `JournalCatalog` of the journals in a database.

    Leases are rows, and end by a clock in the database, which stands still while no host can reach
    it. No process kills another: after a takeover, commits of the earlier owner find another epoch.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._host = f"{socket.gethostname()}/{os.getpid()}"

    async def list_names(self) -> frozenset[str]:
        """Return the names of all journals."""
        database = await self._prepare()
        return frozenset(
            row["name"] for row in await database.fetch("SELECT name FROM trunkline_journals")
        )

    async def is_in_use(self, name: str) -> bool:
        """Return whether a process has a valid lease on the journal."""
        database = await self._prepare()
        row = await database.fetchrow(_SELECT_LEASE, name, await read_lease_clock(database))
        return row is not None and _is_live(row)

    async def list_agents(self, name: str) -> frozenset[str] | None:
        """Return the agents of a journal's unfinished tasks; see `JournalCatalog`."""
        database = await self._prepare()
        row = await database.fetchrow(
            "SELECT ARRAY(SELECT DISTINCT agent FROM trunkline_tasks AS t "
            "WHERE t.journal_id = j.journal_id AND ended_ns = 0) AS agents "
            "FROM trunkline_journals AS j WHERE name = $1",
            name,
        )
        return None if row is None else frozenset(row["agents"])

    async def open(self, name: str) -> PostgresStore:
        """Open a journal, or create it; see `JournalCatalog`."""
        return await open_or_release(self._claim(name, may_create=True))

    async def take_over(self, name: str) -> PostgresStore:
        """Open a journal whose lease has expired; see `JournalCatalog`."""
        return await open_or_release(self._claim(name, may_create=False))

    async def find_orphans(self, *, rereads: bool = False) -> list[OrphanedJournal]:
        """Return the journals whose leases are over; see `JournalCatalog`."""
        database = await self._prepare()
        now_s = await read_lease_clock(database)
        rows = await database.fetch(
            _FIND_ORPHANS, now_s, [int(state) for state in INTERRUPTED], LIVE_WEBHOOKS
        )
        return [
            OrphanedJournal(
                row["name"],
                row["journal_id"],
                row["lost_for_s"],
                frozenset(row["agents"]),
                was_released=row["was_released"],
                is_only_waiting=bool(row["is_only_waiting"]),
                is_empty=row["is_empty"],
                has_webhooks=row["has_webhooks"],
            )
            for row in rows
        ]

    @property
    def leased_for_s(self) -> float:
        """Always 0, because each search also moves the clock of leases on; see `lease_clock`."""
        return 0.0

    async def is_leased(self, journal_id: str) -> bool:
        """Return whether a process has a valid lease on the journal with this id."""
        database = await self._prepare()
        row = await database.fetchrow(
            "SELECT 1 FROM trunkline_leases WHERE journal_id = $1 AND host <> '' AND until_s > $2",
            journal_id,
            await read_lease_clock(database),
        )
        return row is not None

    async def delete_if_empty(self, name: str) -> bool:
        """Delete a journal if it contains no tasks; see `JournalCatalog`."""
        database = await self._prepare()
        now_s = await read_lease_clock(database)
        async with database.transaction() as connection:
            await connection.execute(_LOCK, name)
            row = await connection.fetchrow(_SELECT_LEASE, name, now_s)
            if row is None:
                return False
            if await connection.fetchval(
                "SELECT 1 FROM trunkline_tasks WHERE journal_id = $1 LIMIT 1", row["journal_id"]
            ):
                return False
            if _is_live(row):
                raise self._in_use(name, row["host"], row["left_s"])
            for table in (
                "trunkline_journals",
                "trunkline_leases",
                "trunkline_submission_keys",
                "trunkline_aliases",
                "trunkline_webhooks",
                "trunkline_orphaned_children",
            ):
                await connection.execute(
                    " ".join(("DELETE FROM", table, "WHERE journal_id = $1")), row["journal_id"]
                )
        return True

    async def _claim(self, name: str, *, may_create: bool) -> PostgresStore:
        database = await self._prepare()
        now_s = await read_lease_clock(database)
        async with database.transaction() as connection:
            if may_create:
                journal_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
                # Of several processes, one creates it, and the others wait for its transaction.
                await connection.execute(
                    "WITH made AS (INSERT INTO trunkline_journals (journal_id, name, epoch) "
                    "VALUES ($1, $2, 0) ON CONFLICT (name) DO NOTHING RETURNING journal_id) "
                    "INSERT INTO trunkline_leases (journal_id, host, until_s, lease_s, time_ns) "
                    "SELECT journal_id, '', 0, $3, 0 FROM made",
                    journal_id,
                    name,
                    _FIRST_LEASE_S,
                )
            await connection.execute(_LOCK, name)
            row = await connection.fetchrow(_SELECT_LEASE, name, now_s)
            if row is None:
                raise JournalUnavailableError(database.name, f"it has no journal {name!r}")
            if _is_live(row):
                raise self._in_use(name, row["host"], row["left_s"])
            was_lost = bool(row["host"])
            epoch = row["epoch"] + 1
            await connection.execute(
                "UPDATE trunkline_journals SET epoch = $2 WHERE journal_id = $1",
                row["journal_id"],
                epoch,
            )
            await connection.execute(
                "UPDATE trunkline_leases SET host = $2, lease_s = $3, "
                "until_s = $4 WHERE journal_id = $1",
                row["journal_id"],
                self._host,
                _FIRST_LEASE_S,
                now_s + _FIRST_LEASE_S,
            )
        store = PostgresStore(database, row["journal_id"], epoch, row["writes"], was_lost=was_lost)
        try:
            await store.load()
        except BaseException:
            await store.close(for_takeover=was_lost)
            raise
        return store

    async def _prepare(self) -> PostgresDatabase:
        await self._database.prepare(JOURNALS)
        return self._database

    def _in_use(self, name: str, host: str, left_s: float) -> JournalUnavailableError:
        problem = f"process {host} has journal {name!r}; its lease holds {left_s:.1f} s"
        return JournalUnavailableError(self._database.name, problem)


def _is_live(lease: "asyncpg.Record") -> bool:
    return bool(lease["host"]) and lease["left_s"] > 0
