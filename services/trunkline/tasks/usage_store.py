"""The usage of accounts, keys and models in each day and month of UTC."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from trunkline.core.database import Database, Schema, open_read_only
from trunkline.core.private_files import PRIVATE_FOLDER, create_private_data_folder

_DAY_RETENTION: Final = timedelta(days=62)
_MONTH_RETENTION: Final = timedelta(days=400)
USAGE_TABLES: Final = Schema("""
-- period: a day as 2026-01-31, or a month as 2026-01
-- account, caller, model: an empty caller stands for all callers of the account, an empty account
-- for all accounts, an empty model for all models
-- cost: in 10^-9 US dollars
CREATE TABLE IF NOT EXISTS usage (
    period TEXT NOT NULL, account TEXT NOT NULL, caller TEXT NOT NULL, model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (period, account, caller, model)
) WITHOUT ROWID;
""")
_ADD: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    input_tokens = min(input_tokens + excluded.input_tokens, 1000000000000000000),
    output_tokens = min(output_tokens + excluded.output_tokens, 1000000000000000000),
    cost = min(cost + excluded.cost, 1000000000000000000)
"""
_SELECT: Final = """
SELECT input_tokens, output_tokens, cost FROM usage
WHERE period = ? AND account = ? AND caller = ? AND model = ?
"""
_DELETE: Final = "DELETE FROM usage WHERE length(period) = ? AND period < ?"
_LIST: Final = """
SELECT period, account, caller, model, input_tokens, output_tokens, cost FROM usage
WHERE period IN (?, ?) ORDER BY account, caller, model, period
"""
_MOST: Final = 10**18
NANO: Final = 10**9
"""The stored cost of one US dollar."""


class Usage(NamedTuple):
    """An amount of tokens, and their cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    nano_cost: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum. No number exceeds what every store holds."""
        return Usage(*(min(one + more, _MOST) for one, more in zip(self, other, strict=True)))

    @property
    def tokens(self) -> int:
        """The tokens that models read and wrote."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> float:
        """The cost in US dollars."""
        return self.nano_cost / NANO


class Subject(NamedTuple):
    """An account, a caller within an account, or a model of all accounts."""

    account: str = ""
    caller: str = ""
    model: str = ""

    def __str__(self) -> str:
        if self.model:
            return f"model {self.model!r}"
        if self.caller:
            return f"key {self.caller!r} of account {self.account!r}"
        return f"account {self.account!r}"


class UsageRecord(NamedTuple):
    """The usage of one reply of a model."""

    subjects: Sequence[Subject]
    usage: Usage
    time: datetime


def periods(now: datetime) -> tuple[str, str]:
    """Return the day and the month of a time in UTC."""
    return f"{now:%Y-%m-%d}", f"{now:%Y-%m}"


def oldest_periods(now: datetime) -> tuple[str, str]:
    """Return the oldest day and month of which the usage is stored at a time.

    Older usage is deleted, since every caller of every day has a row.
    """
    return periods(now - _DAY_RETENTION)[0], periods(now - _MONTH_RETENTION)[1]


class UsageStore(Protocol):
    """The usage that hosts share. Its methods block, and are called in one thread."""

    def add(self, records: Sequence[UsageRecord]) -> None:
        """Add usage to the day and the month of each subject.

        Raises:
            JournalUnavailableError: the usage can't be written.
        """

    def read(self, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        """Return the usage in periods by subjects, in the order of the keys.

        Raises:
            JournalUnavailableError: the usage can't be read.
        """

    def close(self) -> None:
        """Close the store. Usage that can't be written any more is logged."""


class SqliteUsageStore:
    """A `UsageStore` in a file, which the hosts of a data directory share. It is thread-safe."""

    def __init__(self, data_dir: Path) -> None:
        """Open the file of a data directory, or create it.

        Raises:
            ConfigurationError: its folder can't be used.
            JournalUnavailableError: the file can't be used.
        """
        path = usage_path(data_dir)
        create_private_data_folder(path.parent)
        self._database = Database(path, USAGE_TABLES)
        # The day for which old usage was deleted last.
        self._pruned_day = ""

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, records: Sequence[UsageRecord]) -> None:
        """Add usage to the day and the month of each subject.

        Raises:
            JournalUnavailableError: the file can't be written.
        """
        rows = [
            (period, *subject, *record.usage)
            for record in records
            for subject in record.subjects
            for period in periods(record.time)
        ]
        with self._database.write() as connection:
            connection.executemany(_ADD, rows)
            self._prune(connection, records[-1].time)

    def _prune(self, connection: sqlite3.Connection, now: datetime) -> None:
        """Delete old usage, once a day."""
        day, _ = periods(now)
        if day != self._pruned_day:
            self._pruned_day = day
            connection.executemany(
                _DELETE, [(len(oldest), oldest) for oldest in oldest_periods(now)]
            )

    def read(self, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        """Return the usage in periods by subjects, in the order of the keys.

        Raises:
            JournalUnavailableError: the file can't be read.
        """
        with self._database.read() as connection:
            rows = [
                connection.execute(_SELECT, (period, *subject)).fetchone()
                for period, subject in keys
            ]
        return [Usage(*row) if row else Usage() for row in rows]


def usage_path(data_dir: Path) -> Path:
    """Return the path of the usage file of a data directory."""
    return data_dir / PRIVATE_FOLDER / "usage.db"


def list_usage(data_dir: Path, now: datetime) -> Iterator[tuple[str, Subject, Usage]]:
    """Yield the usage in a data directory, in the day and the month of a time.

    Raises:
        JournalUnavailableError: the file can't be read.
    """
    path = usage_path(data_dir)
    if not path.exists():
        return
    with open_read_only(path) as database:
        for period, account, caller, model, *numbers in database.execute(_LIST, periods(now)):
            yield period, Subject(account, caller, model), Usage(*numbers)
