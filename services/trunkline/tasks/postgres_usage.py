"""The usage of all hosts of a mesh in PostgreSQL."""

import logging
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trunkline.core.postgres import PostgresDatabase, Schema
from trunkline.core.postgres.blocking import BlockingDatabase
from trunkline.core.postgres.columns import split_columns
from trunkline.errors import JournalUnavailableError
from trunkline.tasks.usage_store import Subject, Usage, UsageRecord, oldest_periods, periods

logger = logging.getLogger(__name__)

USAGE: Final = Schema(
    "usage",
    [
        [
            # The columns are those of the file of usage. `host` is a random name; see
            # PostgresUsageStore.
            "CREATE TABLE trunkline_usage (period text NOT NULL, account text NOT NULL, "
            "caller text NOT NULL, model text NOT NULL, host text NOT NULL, "
            "input_tokens bigint NOT NULL, output_tokens bigint NOT NULL, cost bigint NOT NULL, "
            "PRIMARY KEY (period, account, caller, model, host))"
        ]
    ],
)
_SAVE: Final = (
    "INSERT INTO trunkline_usage AS usage (host, period, account, caller, model, input_tokens, "
    "output_tokens, cost) SELECT $1, p, a, c, m, i, o, n FROM unnest($2::text[], $3::text[], "
    "$4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[]) AS total (p, a, c, m, i, "
    "o, n) ON CONFLICT (period, account, caller, model, host) DO UPDATE SET "
    # A lost connection's statement may end after a later one.
    "input_tokens = greatest(usage.input_tokens, excluded.input_tokens), "
    "output_tokens = greatest(usage.output_tokens, excluded.output_tokens), "
    "cost = greatest(usage.cost, excluded.cost)"
)
_READ: Final = (
    "SELECT coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint, "
    "coalesce(sum(cost), 0)::bigint FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) "
    "WITH ORDINALITY AS key (period, account, caller, model, number) LEFT JOIN trunkline_usage "
    "USING (period, account, caller, model) GROUP BY number ORDER BY number"
)
_LIST: Final = (
    "SELECT period, account, caller, model, sum(input_tokens)::bigint, sum(output_tokens)::bigint, "
    "sum(cost)::bigint FROM trunkline_usage WHERE period = ANY($1) "
    "GROUP BY period, account, caller, model ORDER BY account, caller, model, period"
)
_TIMEOUT_S: Final = 5.0
_DELETE: Final = "DELETE FROM trunkline_usage WHERE length(period) = $1 AND period < $2"


class PostgresUsageStore:
    """A `UsageStore` in a database, so that budgets hold over the hosts of all machines.

    Each host stores its own totals, and a read adds up the totals of all hosts. So a write that is
    repeated after a lost connection counts nothing twice, and what can't be written is part of the
    next write. Every day a host begins new rows under a new random name, and forgets the old ones.

    Its methods block, because models are called in threads, too. So it has an event loop and a
    connection of its own, in the thread that uses it.
    """

    def __init__(self, database: PostgresDatabase, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Use a database that nothing else uses; see `BlockingDatabase`."""
        self._database = database
        self._blocking = BlockingDatabase(database, timeout_s=timeout_s)
        self._host = ""
        self._day = ""
        self._totals: dict[tuple[str, Subject], Usage] = {}
        self._unsaved: set[tuple[str, Subject]] = set()

    def add(self, records: Sequence[UsageRecord]) -> None:
        """Add usage to the day and the month of each subject; see `UsageStore`."""
        now = records[-1].time
        day, _ = periods(now)
        is_new_day = day != self._day and not self._unsaved
        if is_new_day:
            self._day, self._host = day, secrets.token_hex(8)
            self._totals.clear()
        for subjects, usage, time in records:
            for key in ((period, subject) for period in periods(time) for subject in subjects):
                self._totals[key] = self._totals.get(key, Usage()).plus(usage)
                self._unsaved.add(key)
        self._blocking.run(self._save())
        if is_new_day:
            self._blocking.run(self._delete_old(now))

    def read(self, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        """Return the usage in periods by subjects; see `UsageStore`."""
        return self._blocking.run(self._read(keys))

    def list_usage(self, now: datetime) -> list[tuple[str, Subject, Usage]]:
        """Return the usage of all hosts in the day and the month of a time.

        Raises:
            JournalUnavailableError: the usage can't be read.
        """
        return self._blocking.run(self._list(now))

    def close(self) -> None:
        """Write what is not written yet, and close the database; see `UsageStore`."""
        try:
            if self._unsaved:
                self._blocking.run(self._save())
        except JournalUnavailableError as error:
            logger.error("budget.not_recorded", extra={"problem": error.problem})
        finally:
            self._blocking.close()

    async def _save(self) -> None:
        keys = list(self._unsaved)
        totals = [self._totals[key] for key in keys]
        await self._database.prepare(USAGE)
        await self._database.fetch(
            _SAVE,
            self._host,
            [period for period, _ in keys],
            *split_columns([subject for _, subject in keys], len(Subject._fields)),
            *split_columns(totals, len(Usage._fields)),
        )
        self._unsaved.clear()

    async def _read(self, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        if self._unsaved:
            await self._save()
        await self._database.prepare(USAGE)
        rows = await self._database.fetch(
            _READ,
            [period for period, _ in keys],
            *split_columns([subject for _, subject in keys], len(Subject._fields)),
        )
        return [Usage(*row) for row in rows]

    async def _list(self, now: datetime) -> list[tuple[str, Subject, Usage]]:
        await self._database.prepare(USAGE)
        rows = await self._database.fetch(_LIST, list(periods(now)))
        return [(row[0], Subject(*row[1:4]), Usage(*row[4:])) for row in rows]

    async def _delete_old(self, now: datetime) -> None:
        for oldest in oldest_periods(now):
            await self._database.fetch(_DELETE, len(oldest), oldest)
