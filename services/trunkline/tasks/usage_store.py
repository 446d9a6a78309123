"""The file with the usage of accounts, keys and models in each day and month of UTC.

Processes with the same data directory share the file. Its methods block and are thread-safe.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

from trunkline.errors import ConfigurationError
from trunkline.journal.sqlite.connection import check_access, connect, open_read_only
from trunkline.journal.sqlite.connection import translate_errors as translate_sqlite_errors
from trunkline.private_files import PRIVATE_FOLDER, create_private_folder

# Older usage is deleted, since every caller of every day has a row.
_DAY_RETENTION: Final = timedelta(days=62)
_MONTH_RETENTION: Final = timedelta(days=400)
_SCHEMA: Final = """
-- period: a day as 2026-01-31, or a month as 2026-01
-- account, caller, model: an empty caller stands for all callers of the account, an empty account
-- for all accounts, an empty model for all models
-- cost: in 10^-9 US dollars
CREATE TABLE IF NOT EXISTS usage (
    period TEXT NOT NULL, account TEXT NOT NULL, caller TEXT NOT NULL, model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (period, account, caller, model)
) WITHOUT ROWID;
"""
_ADD: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cost = cost + excluded.cost
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
NANO: Final = 10**9
"""The stored cost of one US dollar."""


class Usage(NamedTuple):
    """An amount of tokens, and their cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    nano_cost: int = 0

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


def periods(now: datetime) -> tuple[str, str]:
    """Return the day and the month of a time in UTC."""
    return f"{now:%Y-%m-%d}", f"{now:%Y-%m}"


class UsageStore:
    """A usage file that is open for writing."""

    def __init__(self, data_dir: Path) -> None:
        """Open the file of a data directory, or create it.

        Raises:
            ConfigurationError: its folder can't be used.
            JournalUnavailableError: the file can't be used.
        """
        path = usage_path(data_dir)
        try:
            create_private_folder(path.parent)
        except OSError as error:
            problem = f"can't be used: {error.strerror}; choose another with --data"
            raise ConfigurationError(f"data directory {data_dir}", problem) from error
        check_access(path)
        self._path = path
        self._lock = threading.Lock()
        with translate_sqlite_errors(path):
            # Names of accounts and keys are private, so only the owner may read the file.
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = connect(path)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
        # The day for which old usage was deleted last.
        self._pruned_day = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def add(self, subjects: Sequence[Subject], usage: Usage, now: datetime) -> None:
        """Add usage to the day and the month of each subject.

        Raises:
            JournalUnavailableError: the file can't be written.
        """
        rows = [(period, *subject, *usage) for subject in subjects for period in periods(now)]
        with self._lock, translate_sqlite_errors(self._path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._database.executemany(_ADD, rows)
                self._prune(now)
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _prune(self, now: datetime) -> None:
        """Delete old usage, once a day."""
        day, month = periods(now)
        if day != self._pruned_day:
            self._pruned_day = day
            oldest_day, _ = periods(now - _DAY_RETENTION)
            _, oldest_month = periods(now - _MONTH_RETENTION)
            oldest = ((len(day), oldest_day), (len(month), oldest_month))
            self._database.executemany(_DELETE, oldest)

    def read(self, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        """Return the usage in periods by subjects, in the order of the keys.

        Raises:
            JournalUnavailableError: the file can't be read.
        """
        with self._lock, translate_sqlite_errors(self._path):
            rows = [
                self._database.execute(_SELECT, (period, *subject)).fetchone()
                for period, subject in keys
            ]
        return [Usage(*row) if row else Usage() for row in rows]


def usage_path(data_dir: Path) -> Path:
    """Return the path of the usage file of a data directory."""
    return data_dir / PRIVATE_FOLDER / "usage.db"


def list_usage(data_dir: Path, now: datetime) -> Iterator[tuple[str, Subject, Usage]]:
    """Yield the usage in the day and the month of a time, by period and subject.

    Raises:
        JournalUnavailableError: the file can't be read.
    """
    path = usage_path(data_dir)
    if not path.exists():
        return
    with open_read_only(path) as database:
        for period, account, caller, model, *numbers in database.execute(_LIST, periods(now)):
            yield period, Subject(account, caller, model), Usage(*numbers)
