"""Reads the journals in PostgreSQL; see `tables`."""

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import JournalUnavailableError
from trunkline.journal.events import parse_header
from trunkline.journal.postgres.lease_clock import read_lease_clock
from trunkline.journal.postgres.tables import JOURNALS
from trunkline.journal.store import (
    TASK_COLUMNS,
    AliasName,
    LeaseState,
    StoredFold,
    TaskFilter,
    TaskPage,
    TaskRow,
    WebhookRow,
)

if TYPE_CHECKING:
    import asyncpg

_PAGE_BATCHES: Final = 64
# A list says no larger number of rows, because to count them would read all of them.
_MAX_TOTAL: Final = 10_000

_SELECT_TASKS: Final = " ".join(
    (
        "SELECT",
        TASK_COLUMNS,
        ", stage, CASE WHEN ended_ns = 0 THEN (SELECT max(sequence) FROM trunkline_events AS e "
        "WHERE e.task_id = trunkline_tasks.task_id) END AS last FROM trunkline_tasks WHERE",
    )
)


class PostgresTasks:
    """The `CommittedTasks` of one journal, or of all journals in a database."""

    def __init__(self, database: PostgresDatabase, journal_id: str = "") -> None:
        """Without a journal id, read all journals."""
        self._database = database
        self._journal_id = journal_id
        # Each query has the journal id as its first value.
        self._is_ours = "journal_id = $1" if journal_id else "$1::text = ''"

    async def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        """Return batches that end after the sequence `after`; see `CommittedTasks`."""
        batches: list[bytes] = []
        while True:
            rows = await self._database.fetch(
                "SELECT sequence, body FROM trunkline_events WHERE task_id = $1 AND sequence > $2 "
                "ORDER BY sequence LIMIT $3",
                task_id,
                after,
                _PAGE_BATCHES,
            )
            # Between two pages, the events of a task that was compacted may be deleted.
            if batches and rows and not _begins_at(rows[0]["body"], after + 1):
                return batches
            for sequence, body in rows:
                limit_bytes -= len(body)
                if batches and limit_bytes < 0:
                    return batches
                batches.append(body)
                after = sequence
            if len(rows) < _PAGE_BATCHES:
                return batches

    async def find_rows(self, task_ids: Collection[str]) -> dict[str, TaskRow]:
        """Return the rows of those tasks that exist; see `CommittedTasks`."""
        rows = await self._select_tasks("task_id = ANY($2)", list(task_ids))
        return {row.task_id: row for row in rows}

    async def find_fold(self, task_id: str) -> StoredFold | None:
        """Return the fold of a compacted task."""
        row = await self._database.fetchrow(
            "SELECT snapshot, epoch, forwarded FROM trunkline_folds WHERE task_id = $1", task_id
        )
        if row is None:
            return None
        return StoredFold(row["snapshot"], row["epoch"], json.loads(row["forwarded"]))

    async def find_aliases(self, names: Collection[AliasName]) -> dict[AliasName, str]:
        """Return the task ids that aliases are bound to in any journal; see `CommittedTasks`."""
        query = (
            "SELECT account, alias, task_id FROM trunkline_aliases "
            "JOIN unnest($1::text[], $2::text[]) AS n (a, b) ON account = a AND alias = b "
            # Of an alias that two hosts bound at the same time, the later task counts.
            "ORDER BY split_part(task_id, '-', 2)"
        )
        rows = await self._database.fetch(
            query,
            [account for account, _ in names],
            [alias for _, alias in names],
        )
        return {(account, alias): task_id for account, alias, task_id in rows}

    async def find_webhooks(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks, the newest first; see `CommittedTasks`."""
        query = (
            "SELECT task_id, config_id, state, content FROM trunkline_webhooks WHERE "
            "($2 = '' OR task_id = $2) AND (cardinality($3::integer[]) = 0 OR state = ANY($3)) AND"
        )
        rows = await self._database.fetch(
            " ".join((query, self._is_ours, "ORDER BY number DESC LIMIT $4")),
            self._journal_id,
            task_id,
            list(states),
            limit,
        )
        return [WebhookRow(*row) for row in rows]

    async def list_rows(
        self, task_filter: TaskFilter, *, limit: int, after: tuple[int, str] | None = None
    ) -> TaskPage:
        """Return a page of rows; see `CommittedTasks`."""
        conditions = task_filter.list_conditions()
        where = " AND ".join(f"{text} ${at}" for at, text in enumerate(conditions, start=2))
        values = list(conditions.values())
        count = (
            "SELECT count(*) FROM (SELECT 1 FROM trunkline_tasks WHERE",
            self._is_ours,
            "AND",
            where,
        )
        total = await self._database.fetchrow(
            " ".join((*count, f"LIMIT {_MAX_TOTAL}) AS counted")), self._journal_id, *values
        )
        if after is not None:
            at = len(values) + 2
            where += (
                f" AND (status_time_ns < ${at} OR (status_time_ns = ${at} AND task_id > ${at + 1}))"
            )
            values += after
        order = f"ORDER BY status_time_ns DESC, task_id LIMIT ${len(values) + 2}"
        rows = await self._select_tasks(" ".join((where, order)), *values, limit)
        return TaskPage(rows, total[0] if total else 0)

    async def _select_tasks(self, rest: str, *values: object) -> list[TaskRow]:
        query = (_SELECT_TASKS, self._is_ours, "AND", rest)
        rows = await self._database.fetch(" ".join(query), self._journal_id, *values)
        return [_parse_task(row) for row in rows]


class PostgresReader(PostgresTasks):
    """A `JournalReader` of the journals in a database."""

    def __init__(self, database: PostgresDatabase, store_id: str) -> None:
        """Use `open`, which reads the id."""
        super().__init__(database)
        self.name: str = database.name
        self.store_id: str = store_id

    @classmethod
    async def open(cls, database: PostgresDatabase) -> "PostgresReader":
        """Return a reader; raises JournalUnavailableError."""
        await database.prepare(JOURNALS)
        row = await database.fetchrow("SELECT store_id FROM trunkline_store")
        if row is None:
            raise JournalUnavailableError(database.name, "its table trunkline_store is empty")
        return cls(database, row["store_id"])

    async def find_leases(self, journal_ids: Collection[str]) -> dict[str, LeaseState]:
        """Return the leases of those journals that exist; see `JournalReader`."""
        now_s = await read_lease_clock(self._database)
        rows = await self._database.fetch(
            "SELECT journal_id, host, greatest(until_s - $2, 0) AS remaining_s "
            "FROM trunkline_leases WHERE journal_id = ANY($1)",
            list(journal_ids),
            now_s,
        )
        return {row["journal_id"]: LeaseState(row["host"], row["remaining_s"]) for row in rows}


def _parse_task(columns: "asyncpg.Record") -> TaskRow:
    *stored, stage, last = columns
    return TaskRow(*stored).at_stage(stage, last)


def _begins_at(batch: bytes, sequence: int) -> bool:
    """Return whether a batch begins at this sequence. If it is damaged, it does not."""
    try:
        return parse_header(batch).first_sequence == sequence
    except (DecodeError, TypeError):
        return False
