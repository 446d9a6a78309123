"""The tables of a kind of file, with their version and migrations."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trunkline.database.connection import transaction
from trunkline.errors import JournalUnavailableError


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a kind of file.

    A file stores its version in SQLite's header (`user_version`). Files from before that have
    version 0, as new files have.
    """

    tables: str
    """The script that makes the tables in a file of version 0, unless it has them."""
    version: int = 1
    migrations: Mapping[int, str] = field(default_factory=dict)
    """The scripts that bring files of earlier versions to this version."""
    application_id: int = 0
    """The number in SQLite's header by which a file is known as one of this kind. 0: none."""

    def prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        """Make the tables of a new file, or migrate them, in one transaction.

        Raises:
            JournalUnavailableError: another program, or a later version, made the file.
        """
        if self._read_header(connection) == (self.application_id, self.version):
            return
        with transaction(connection):
            application_id, version = self._read_header(connection)
            if version > self.version or application_id not in (0, self.application_id):
                problem = "another program, or a later version, made it; use another data directory"
                raise JournalUnavailableError(str(path), problem)
            # Another process may have made the tables meanwhile.
            if version < self.version:
                run_script(connection, self.migrations.get(version, self.tables))
                connection.execute(f"PRAGMA application_id = {self.application_id}")
                connection.execute(f"PRAGMA user_version = {self.version}")

    def _read_header(self, connection: sqlite3.Connection) -> tuple[int, int]:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return application_id, version


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run the statements of a script within the caller's transaction.

    `executescript` of the sqlite3 module would commit that transaction first.
    """
    for statement in _split(script):
        connection.execute(statement)


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script, each of which ends at the end of a line."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
