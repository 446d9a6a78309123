"""Copies a store between a data directory and a database; see `tables` for what is where."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.conversations.sqlite import checkpoint_path
from trunkline.core.database import (
    FileLock,
    Schema,
    connect,
    create_file,
    open_read_only,
    transaction,
    translate_errors,
)
from trunkline.core.encryption import keyring_path
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.private_files import (
    PRIVATE_FOLDER,
    create_private_data_folder,
    read_private_file,
    write_private_file,
)
from trunkline.errors import (
    ArtifactNotFoundError,
    ConfigurationError,
    JournalUnavailableError,
)
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.artifacts.postgres.chunks import DamagedContentError
from trunkline.journal.artifacts.references import Reference
from trunkline.journal.clock import Clock, ClockReading
from trunkline.journal.postgres.lease_clock import read_lease_clock
from trunkline.journal.sqlite import JOURNAL_FOLDER
from trunkline.journal.sqlite.schema import (
    SCHEMA_VERSION,
    create_copy,
    read_clock,
    read_ownership,
    read_version,
)
from trunkline.processes.data_folder import list_journals
from trunkline.processes.database import DATABASE_FOLDER
from trunkline.processes.store_copy.tables import (
    CHECKPOINT_COPIES,
    CHECKPOINTS,
    IDENTITY,
    JOURNAL_TABLES,
    MESSAGES_FILE,
    OTHERS,
    PASSING,
    SELECT_OTHER_SMALL_FILES,
    SELECT_SMALL_FILES,
    SHARED_FILES,
    SMALL_FILES,
    CopiedTable,
    Row,
)
from trunkline.processes.stored_tables import (
    SCHEMAS,
    list_filled_tables,
    list_tables,
    migrate,
    plan_migrations,
)

if TYPE_CHECKING:
    import asyncpg

    from trunkline.journal.artifacts import Blob
    from trunkline.journal.artifacts.postgres.objects import ObjectBucket

# The rows of one insertion.
_ROWS: Final = 200
_VERSIONS: Final = "versions.json"
_LEASE_S: Final = 10.0
_LOOKS_PER_LEASE: Final = 8
_SELECT_JOURNALS: Final = (
    "SELECT journal_id, name, epoch, time_ns, "
    "(extract(epoch FROM now() - created) * 1000000000)::bigint AS age_ns "
    "FROM trunkline_journals JOIN trunkline_leases USING (journal_id) ORDER BY name"
)
# Their names for people, their folder in a data directory, and their names in it.
_SMALL_FILES: Final = (
    ("small files", PRIVATE_FOLDER, SMALL_FILES),
    ("records of identity", DATABASE_FOLDER, (IDENTITY,)),
)
_TABLES: Final = (
    *JOURNAL_TABLES,
    *CHECKPOINT_COPIES,
    *(table for file in SHARED_FILES for table in file.tables),
)


@dataclass(slots=True)
class CopyReport:
    """The numbers of what was copied, and compared with the source."""

    journals: int = 0
    events: int = 0
    """The events of all tasks, which were folded one after another."""
    rows: dict[str, int] = field(default_factory=dict)
    """The rows of each kind, such as `tasks`."""
    files: int = 0
    file_bytes: int = 0
    damage: list[str] = field(default_factory=list)
    """A line for each damaged file, which was not copied."""
    left_out: list[str] = field(default_factory=list)
    """What was not copied, for people."""

    def add(self, name: str, count: int) -> None:
        """Count rows, unless they have no name."""
        if name:
            self.rows[name] = self.rows.get(name, 0) + count


@dataclass(slots=True)
class _Digest:
    """The number of rows and a checksum that does not depend on their order."""

    count: int = 0
    checksum: int = 0

    def add(self, row: Row) -> None:
        digest = hashlib.blake2b(repr(row).encode(), digest_size=16).digest()
        self.checksum = (self.checksum + int.from_bytes(digest, "big")) % 2**128
        self.count += 1


class _Side(Protocol):
    """A place with tables: a SQLite file, or the database."""

    def read(self, table: CopiedTable) -> AsyncIterator[Row]: ...

    async def read_claimed(self, table: CopiedTable) -> Set[str]: ...

    async def write(self, table: CopiedTable, rows: Sequence[Row]) -> None: ...


class _File:
    """The tables in a SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

    async def read(self, table: CopiedTable) -> AsyncIterator[Row]:
        # A table of a later build is missing in the file of an earlier one.
        if table.from_sqlite.split(" FROM ")[-1].split()[0] not in self._tables:
            return
        for row in self._connection.execute(table.from_sqlite):
            yield row

    async def read_claimed(self, table: CopiedTable) -> Set[str]:
        return frozenset()

    async def write(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        self._connection.executemany(table.to_sqlite, rows)


class _Database:
    """The tables in the database, of one journal if `values` has its id."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", *values: object) -> None:
        self._connection = connection
        self._values = values

    async def read(self, table: CopiedTable) -> AsyncIterator[Row]:
        rows = self._connection.cursor(table.from_postgres, *self._values, prefetch=_ROWS)
        async for row in rows:
            yield tuple(row)

    async def read_claimed(self, table: CopiedTable) -> Set[str]:
        if not table.claimed:
            return frozenset()
        return {claimed for (claimed,) in await self._connection.fetch(table.claimed)}

    async def write(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        extended = rows if table.extend is None else map(table.extend, rows)
        await self._connection.executemany(
            table.to_postgres, [(*self._values, *row) for row in extended]
        )


async def _copy_tables(
    tables: Sequence[CopiedTable], source: _Side, target: _Side, report: CopyReport
) -> None:
    """Copy the rows of tables, and compare them at both sides."""
    for table in tables:
        stored, copied = _Digest(), _Digest()
        batch: list[Row] = []
        claimed, left_out = await target.read_claimed(table), 0
        async for row in source.read(table):
            if row[0] in claimed:
                left_out += 1
                continue
            stored.add(row)
            batch.append(row)
            if len(batch) == _ROWS:
                await target.write(table, batch)
                batch.clear()
        await target.write(table, batch)
        async for row in target.read(table):
            copied.add(row)
        if stored != copied:
            raise _differs(table.name or table.postgres, table.postgres)
        report.add(table.name, stored.count)
        if left_out:
            report.add(f"{table.name} left out, because another journal has them", left_out)


async def copy_to_folder(
    database: PostgresDatabase,
    folder: Path,
    *,
    bucket: "ObjectBucket | None" = None,
    must_be_stopped: bool = False,
) -> CopyReport:
    """Copy all that is in a database to a new data directory, and compare the copy.

    One transaction reads one consistent state, so the mesh may be running. Bytes of files in a
    bucket are copied, too.

    Raises:
        ConfigurationError: the tables have another version, or the mesh must be stopped and runs.
        JournalUnavailableError: the database can't be read, the folder can't be written, or the
            copy differs.
    """
    await _require_version(database)
    if must_be_stopped:
        await _require_no_leases(database)
    report = CopyReport()
    async with _snapshot(database) as connection:
        for row in await connection.fetch(_SELECT_JOURNALS):
            await _copy_journal_out(database, connection, row, folder, report, bucket)
        for file in SHARED_FILES:
            with _create(folder / file.path, file.schema) as copy:
                await _copy_tables(file.tables, _Database(connection), _File(copy), report)
        await _copy_small_files_out(connection, folder, report)
        await _copy_others_out(connection, folder, report)
    return report


async def check_journals(
    database: PostgresDatabase, *, bucket: "ObjectBucket | None" = None
) -> AsyncGenerator[tuple[Path, list[str]]]:
    """Yield a copy of each journal, which is deleted after its turn, and what is wrong with files.

    So a check of a journal is the same in files and in a database.

    Raises:
        ConfigurationError: the tables have another version.
        JournalUnavailableError: the database can't be read, or a copy differs.
    """
    await _require_version(database)
    async with _snapshot(database) as connection:
        for row in await connection.fetch(_SELECT_JOURNALS):
            with TemporaryDirectory(prefix="trunkline-check-") as folder:
                report = CopyReport()
                path = await _copy_journal_out(
                    database, connection, row, Path(folder), report, bucket
                )
                yield path, report.damage


async def copy_to_database(
    folder: Path, database: PostgresDatabase, *, must_be_stopped: bool = False
) -> CopyReport:
    """Copy a data directory to an empty database, in one transaction, and compare the copy.

    Raises:
        ConfigurationError: the database is not empty, the folder is encrypted or of an earlier
            version, or the mesh must be stopped and runs.
        JournalUnavailableError: the folder can't be read, the database can't be written, or the
            copy differs.
    """
    if keyring_path(folder).exists():
        problem = "is encrypted, which a database of `store` can't be yet"
        raise ConfigurationError(str(folder), problem)
    await migrate(database)
    report = CopyReport()
    paths = list_journals(folder)
    with contextlib.ExitStack() as locks:
        if must_be_stopped:
            for path in (*paths, *filter(Path.exists, [folder / MESSAGES_FILE])):
                locks.enter_context(contextlib.closing(FileLock.acquire(path)))
        async with _connect(database) as connection, connection.transaction():
            await _require_empty(database, connection)
            for path in paths:
                await _copy_journal_in(connection, path, report)
            for file in SHARED_FILES:
                if (path := folder / file.path).exists():
                    with open_read_only(path) as source:
                        target = _Database(connection)
                        await _copy_tables(file.tables, _File(source), target, report)
            await _copy_small_files_in(connection, folder, report)
            await _copy_others_in(connection, folder, report)
    return report


async def _copy_journal_out(
    database: PostgresDatabase,
    connection: "asyncpg.Connection[asyncpg.Record]",
    journal: "asyncpg.Record",
    folder: Path,
    report: CopyReport,
    bucket: "ObjectBucket | None",
) -> Path:
    """Copy a journal with its checkpoints and files to new files of a folder; return its path."""
    path = folder / JOURNAL_FOLDER / f"{journal['name']}.db"
    reading = ClockReading(time_ns=journal["time_ns"], age_ns=journal["age_ns"])
    source = _Database(connection, journal["journal_id"])
    with _create(path) as copy:
        create_copy(copy, path, journal["journal_id"], journal["epoch"], reading)
        await _copy_tables(JOURNAL_TABLES, source, _File(copy), report)
    with _create(checkpoint_path(path), CHECKPOINTS) as copy:
        await _copy_tables(CHECKPOINT_COPIES, source, _File(copy), report)
    blobs = PostgresBlobStore(database, journal["journal_id"], 0, bucket=bucket)
    target = FolderBlobStore(blob_folder(path))
    for row in await connection.fetch(
        "SELECT task_id, blob_id, media_type, filename, sha256 FROM trunkline_blobs "
        "WHERE journal_id = $1 AND sha256 <> ''",
        journal["journal_id"],
    ):
        reference = Reference(row["task_id"], row["blob_id"])
        content = blobs.read(reference)
        try:
            blob: Blob | None = await target.put(
                reference, content, media_type=row["media_type"], filename=row["filename"]
            )
        except ArtifactNotFoundError:
            continue  # Retention deleted its task meanwhile.
        except DamagedContentError:
            blob = None
        finally:
            await content.aclose()
        if blob is None or blob.sha256 != row["sha256"]:
            report.damage.append(f"task {reference.task_id}: file {reference.blob_id} is damaged")
            continue
        report.files += 1
        report.file_bytes += blob.size_bytes
    report.journals += 1
    return path


async def _copy_journal_in(
    connection: "asyncpg.Connection[asyncpg.Record]", path: Path, report: CopyReport
) -> None:
    with open_read_only(path) as source:
        ownership = read_ownership(source, path)
        if read_version(source) != SCHEMA_VERSION:
            problem = "is of an earlier version; start this version once with this data directory"
            raise ConfigurationError(str(path), problem)
        if source.execute("SELECT data_key FROM meta").fetchone()[0]:
            raise ConfigurationError(str(path), "is encrypted, which a database can't be yet")
        clock = Clock(read_clock(source))
        await connection.execute(
            "INSERT INTO trunkline_journals (journal_id, name, epoch, created) "
            "VALUES ($1, $2, $3, now() - $4 * interval '1 second')",
            ownership.journal_id,
            path.stem,
            # A cursor of an event that was written after the copy has this epoch or a later one.
            ownership.epoch,
            clock.age_ns() / 1e9,
        )
        await connection.execute(
            "INSERT INTO trunkline_leases (journal_id, host, until_s, lease_s, time_ns) "
            "VALUES ($1, $2, 0, $3, $4)",
            ownership.journal_id,
            "" if ownership.is_released else "copied",
            _LEASE_S,
            clock.time_ns(),
        )
        target = _Database(connection, ownership.journal_id)
        await _copy_tables(JOURNAL_TABLES, _File(source), target, report)
    if (checkpoints := checkpoint_path(path)).exists():
        with open_read_only(checkpoints) as source:
            await _copy_tables(CHECKPOINT_COPIES, _File(source), target, report)
    await _copy_blobs_in(connection, path, ownership.journal_id, report)
    report.journals += 1


async def _copy_blobs_in(
    connection: "asyncpg.Connection[asyncpg.Record]",
    path: Path,
    journal_id: str,
    report: CopyReport,
) -> None:
    blobs = FolderBlobStore(blob_folder(path))
    for task_id in await blobs.list_task_ids():
        for file in sorted((blobs.folder / task_id).iterdir()):
            if file.suffix:
                continue
            blob = await blobs.get(Reference.create(task_id, file.name))
            content = secrets.token_hex(16)
            await connection.execute(
                "INSERT INTO trunkline_blobs (task_id, blob_id, journal_id, content, writer, "
                "size_bytes, sha256, media_type, filename) VALUES ($1, $2, $3, $4, '', $5, $6, "
                "$7, $8)",
                task_id,
                file.name,
                journal_id,
                content,
                blob.size_bytes,
                blob.sha256,
                blob.media_type,
                blob.filename,
            )
            position = 0
            async for chunk in blobs.read(blob.reference):
                await connection.execute(
                    "INSERT INTO trunkline_blob_chunks (content, position, size_bytes, body) "
                    "VALUES ($1, $2, $3, $4)",
                    content,
                    position,
                    len(chunk),
                    chunk,
                )
                position += len(chunk)
            await _check_content(connection, content, blob.sha256, file)
            report.files += 1
            report.file_bytes += blob.size_bytes


async def _check_content(
    connection: "asyncpg.Connection[asyncpg.Record]", content: str, sha256: str, file: Path
) -> None:
    digest = hashlib.sha256()
    async for row in connection.cursor(
        "SELECT body FROM trunkline_blob_chunks WHERE content = $1 ORDER BY position",
        content,
        prefetch=8,
    ):
        digest.update(row["body"])
    if digest.hexdigest() != sha256:
        raise _differs(f"file {file.name}", file)


async def _copy_small_files_out(
    connection: "asyncpg.Connection[asyncpg.Record]", folder: Path, report: CopyReport
) -> None:
    for kind, root, names in _SMALL_FILES:
        create_private_data_folder(folder / root)
        for path, content in await connection.fetch(SELECT_SMALL_FILES, names):
            write_private_file(folder / root / path, content)
            report.add(kind, 1)


async def _copy_small_files_in(
    connection: "asyncpg.Connection[asyncpg.Record]", folder: Path, report: CopyReport
) -> None:
    for kind, root, names in _SMALL_FILES:
        for place in (folder / root / name for name in names):
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    await connection.execute(
                        "INSERT INTO trunkline_small_files (path, content) VALUES ($1, $2)",
                        str(path.relative_to(folder / root)),
                        read_private_file(path),
                    )
                    report.add(kind, 1)


async def _copy_others_out(
    connection: "asyncpg.Connection[asyncpg.Record]", folder: Path, report: CopyReport
) -> None:
    """Copy the tables that have no file in a data directory, each in PostgreSQL's form."""
    others = folder / DATABASE_FOLDER
    versions = json.dumps({schema.part: schema.version for schema in SCHEMAS})
    (others / _VERSIONS).write_text(versions)
    for table, query in _select_others().items():
        with (others / table).open("xb") as file:
            tag = await connection.copy_from_query(query, output=file, format="binary")
        count = int(tag.split()[-1])
        if count:
            report.left_out.append(f"{count} rows of {table}")


async def _copy_others_in(
    connection: "asyncpg.Connection[asyncpg.Record]", folder: Path, report: CopyReport
) -> None:
    others = folder / DATABASE_FOLDER
    if not (others / _VERSIONS).exists():
        return
    versions = json.loads((others / _VERSIONS).read_text())
    ours = {schema.part: schema.version for schema in SCHEMAS}
    if versions != ours:
        problem = f"has tables of the versions {versions}, and this program of {ours}; restore it "
        raise ConfigurationError(str(others), f"{problem}with the program that made it")
    for table in _select_others():
        # Some tables have a first row from their creation.
        if table not in OTHERS:
            await connection.execute(" ".join(("DELETE FROM", table)))
        with (others / table).open("rb") as file:
            tag = await connection.copy_to_table(table, source=file, format="binary")
        report.add(table, int(tag.split()[-1]))


def _select_others() -> dict[str, str]:
    """Return the tables that have no file in a data directory, each with the query of its rows."""
    known = {table.postgres for table in _TABLES} | OTHERS | PASSING
    others = {
        table: " ".join(("SELECT * FROM", table)) for table in list_tables() if table not in known
    }
    return {**others, "trunkline_small_files": SELECT_OTHER_SMALL_FILES}


async def _require_version(database: PostgresDatabase) -> None:
    """Check the versions of the tables, and create those of parts that no process has used yet."""
    plan = await plan_migrations(database)
    # A database without any part is more likely the wrong one.
    is_empty = not any(each.before for each in plan)
    if behind := [each.part for each in plan if each.script and (each.before or is_empty)]:
        problem = f"has no tables of this version of {', '.join(behind)}; run "
        raise ConfigurationError(database.name, f"{problem}`trunkline data migrate`")
    await migrate(database)


async def _require_empty(
    database: PostgresDatabase, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    for table in sorted(set(list_tables()) - PASSING - list_filled_tables()):
        if await connection.fetchval(" ".join(("SELECT 1 FROM", table, "LIMIT 1"))):
            problem = f"is not empty: {table} has rows; choose an empty database or schema"
            raise ConfigurationError(database.name, problem)


async def _require_no_leases(database: PostgresDatabase) -> None:
    """Wait until the leases of killed hosts have ended; refuse if a host renews one meanwhile."""
    first: dict[str, tuple[str, float]] = {}
    while held := await _read_leases(database):
        current = {row["journal_id"]: (row["host"], row["until_s"]) for row in held}
        first = first or current
        for journal_id, (host, until_s) in current.items():
            if first.get(journal_id) != (host, until_s):
                problem = f"is in use by {host}; stop the mesh first"
                raise ConfigurationError(database.name, problem)
        # The clock stands still without readers, and a look moves it on by a quarter of the
        # shortest lease at most. With longer pauses it would fall behind.
        await asyncio.sleep(min(row["lease_s"] for row in held) / _LOOKS_PER_LEASE)


async def _read_leases(database: PostgresDatabase) -> "list[asyncpg.Record]":
    now_s = await read_lease_clock(database)
    return await database.fetch(
        "SELECT journal_id, host, until_s, lease_s FROM trunkline_leases "
        "WHERE host <> '' AND until_s > $1",
        now_s,
    )


@asynccontextmanager
async def _connect(
    database: PostgresDatabase,
) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await database.connect()
    try:
        with database.translate_errors():
            yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def _snapshot(
    database: PostgresDatabase,
) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Give a block a connection that reads one consistent state."""
    async with (
        _connect(database) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        yield connection


@contextlib.contextmanager
def _create(path: Path, schema: Schema | None = None) -> Iterator[sqlite3.Connection]:
    """Give a block a new SQLite file, in one transaction."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    create_file(path)
    with translate_errors(path), contextlib.closing(connect(path)) as connection:
        if schema is not None:
            schema.prepare(connection, path)
        with transaction(connection):
            yield connection


def _differs(what: str, where: object) -> JournalUnavailableError:
    return JournalUnavailableError(str(where), f"the copy of {what} differs from the source")
