"""The commands that read and maintain the data directory: `trunkline data`."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import (
    AUDIT_SETTINGS,
    DataOption,
    JsonOption,
    argument,
    flag,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json
from trunkline.core.database import find_files, is_sound
from trunkline.core.encryption import (
    KEY_SETTINGS,
    Keyring,
    copy_keyring,
    keyring_path,
    open_keyring,
    read_keyring,
    rewrap,
)
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.artifacts.folder.admin import (
    check_blobs,
    copy_blobs,
    find_blob_folders,
    is_blob_file,
    prune_blobs,
)
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite.admin import back_up_file, list_task_ids, prune_journal
from trunkline.journal.sqlite.check import CheckReport, check_journal

if TYPE_CHECKING:
    from trunkline.core.postgres import PostgresDatabase
    from trunkline.processes.store_copy import CopyReport

_Result = TypeVar("_Result")

_DAY_S = 24 * 3600.0

group = typer.Typer()

_JOURNAL_FOLDER = "journals"
# The limit on reported problems with the files of one journal.
_MAX_FILE_PROBLEMS = 20
_ADVICE = "restore a backup, or move it away: the other journals stay usable"


@command(group, "check")
def check_data(data: DataOption = None, *, json: JsonOption = False) -> ExitCode:
    """Check every journal. The mesh may be running. Exits 1 if one is damaged."""
    settings = load_settings(data)
    if settings.store:
        place, reports = "the database", _check_store(settings)
    else:
        folder = require_folder(settings)
        keyring = read_keyring(settings)
        reports = [check_database(path, folder, keyring) for path in list_databases(folder)]
        place = str(folder)
    if json:
        print_json(reports)
    else:
        for report in reports:
            print(format_report(report))
        if not reports:
            print(f"{place}: no journals here")
    return ExitCode.FAILED if any(report["problems"] for report in reports) else ExitCode.OK


@command(group, "backup")
def back_up_data(
    folder: Annotated[Path, argument("DIR", "A new folder for the copy.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Copy journals, checkpoints and traces. The mesh may be running.

    With `store`, copy the database instead.
    """
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_settings(data)
    if settings.store:
        check_empty(folder, "choose a new folder for the backup")
        report = _copy_to_folder(settings, folder)
        record_act(settings, Action.DATA_BACKUP)
        print_copy(report, as_json=json, done=f"copied to {folder}")
        return
    source = require_folder(settings)
    check_empty(folder, "choose a new folder for the backup")
    copied = []
    for path in list_databases(source):
        name = path.relative_to(source)
        back_up_file(path, folder / name)
        copied.append({"file": str(name), "bytes": (folder / name).stat().st_size})
    # Copied last, so that the copy has every file to which the copied journals refer.
    copied += copy_rest(source, folder)
    record_act(settings, Action.DATA_BACKUP)
    print_files(copied, as_json=json, done=f"copied to {folder}")


@command(group, "restore")
def restore_data(
    folder: Annotated[Path, argument("DIR", "The backup.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Restore a backup into an empty or new data directory.

    With `store`, restore it into an empty database instead.
    """
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_settings(data)
    target = settings.data_dir
    files = list_databases(folder) if folder.is_dir() else []
    if not files:
        raise ConfigurationError(
            str(folder), "is not a backup; `trunkline data backup DIR` makes one"
        )
    if settings.store:
        copied = _copy_to_database(settings, folder)
        record_act(settings, Action.DATA_RESTORE)
        print_copy(copied, as_json=json, done="restored to the database")
        return
    check_empty(target, "stop the mesh and move it away, or choose another one with --data")
    keyring = read_keyring(settings, folder)
    for report in (check_database(path, folder, keyring) for path in files):
        if report["problems"]:
            raise ConfigurationError(
                str(folder / report["file"]), f"is damaged: {report['problems'][0]}"
            )
    unfinished = target.parent / f".{target.name}.restoring-{os.getpid()}"
    try:
        restored = []
        for path in files:
            name = path.relative_to(folder)
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            back_up_file(path, unfinished / name)
            restored.append({"file": str(name), "bytes": (unfinished / name).stat().st_size})
        restored += copy_rest(folder, unfinished)
        # An existing target is empty, and rename() replaces it.
        unfinished.rename(target)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(target), problem) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _restore_join_records(settings, folder)
    record_act(settings, Action.DATA_RESTORE)
    print_files(restored, as_json=json, done=f"restored to {target}")


@command(group, "copy")
def copy_data(
    source: Annotated[str, argument("FROM", "A data directory, or the URL of a database.")],
    target: Annotated[str, argument("TO", "A database without tables, or a new folder.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Copy everything between SQLite and PostgreSQL, and compare. The mesh must be stopped."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_settings(data)
    is_from, is_to = (
        place.startswith(("postgresql://", "postgres://")) for place in (source, target)
    )
    if is_from == is_to:
        problem = "name a data directory and the URL of a database, in either order"
        raise ConfigurationError("FROM and TO", f"are of the same kind; {problem}")
    if is_to:
        if not Path(source).is_dir():
            raise ConfigurationError(source, "is not a folder")
        report = _copy_to_database(
            load_settings(data, store=target), Path(source), must_be_stopped=True
        )
        done = "copied to the database"
    else:
        check_empty(Path(target), "choose a new folder")
        report = _copy_to_folder(
            load_settings(data, store=source), Path(target), must_be_stopped=True
        )
        _restore_join_records(settings, Path(target))
        done = f"copied to {target}"
    record_act(settings, Action.DATA_COPY)
    print_copy(report, as_json=json, done=done)


@command(group, "prune")
def prune_data(
    data: DataOption = None,
    *,
    older_than: Annotated[
        float | None, option("DAYS", "Delete tasks that ended longer ago. [retain_s]", min=0)
    ] = None,
    json: JsonOption = False,
) -> ExitCode:
    """Compact and delete tasks that ended long ago. The mesh must be stopped."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_settings(data)
    retention = Retention(compact_after_s=settings.compact_after_s, retain_s=settings.retain_s)
    if older_than is not None:
        retention = replace(retention, retain_s=older_than * _DAY_S)
    folder = require_folder(settings)
    keyring = open_keyring(settings)
    reports: list[dict[str, Any]] = []
    code = ExitCode.OK
    for path in list_journals(folder):
        before_bytes = path.stat().st_size
        try:
            pruned = asyncio.run(prune_journal(path, retention, keyring))
            asyncio.run(prune_blobs(FolderBlobStore(blob_folder(path)), list_task_ids(path)))
        except JournalUnavailableError as error:
            code = print_error(error)
            continue
        reports.append(
            {
                "file": str(path.relative_to(folder)),
                "compacted": pruned.compacted,
                "forgotten": pruned.deleted,
                "damaged": pruned.damaged,
                "bytes_before": before_bytes,
                "bytes": path.stat().st_size,
            }
        )
    record_act(settings, Action.DATA_PRUNE)
    if json:
        print_json(reports)
    else:
        for report in reports:
            before, after = map(format_size, (report["bytes_before"], report["bytes"]))
            print(
                f"{report['file']}: {report['forgotten']} tasks forgotten, "
                f"{report['compacted']} compacted, {before} -> {after}"
            )
    return code


@command(group, "rekey")
def rekey_data(
    data: DataOption = None,
    *,
    new_data_key: Annotated[
        bool, flag("Also encrypt new data under a new data key.", "--new-data-key")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Encrypt the data keys under the configured keys. The mesh may be running."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action

    settings = load_settings(data)
    content = rewrap(settings, with_new_data_key=new_data_key)
    record_act(settings, Action.DATA_REKEY)
    keys = sorted(content.data_keys[-1].wrapped)
    report = {
        "keys": keys,
        "data_keys": len(content.data_keys),
        "new_data_key": f"{content.data_keys[-1].id:08x}" if new_data_key else "",
    }
    if json:
        print_json(report)
        return
    print(f"{len(content.data_keys)} data keys are encrypted under {' and '.join(keys)}")
    if new_data_key:
        print(f"new data is encrypted under the data key {report['new_data_key']}")


@command(group, "migrate")
def migrate_data(
    data: DataOption = None,
    *,
    dry_run: Annotated[
        bool, flag("Print the statements, and change nothing.", "--dry-run")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bring the tables in the database of `store` to this version. The mesh may be running."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action
    from trunkline.processes.stored_tables import migrate, plan_migrations

    settings = load_settings(data)
    change = plan_migrations if dry_run else migrate
    migrations = asyncio.run(_use_database(settings, change))
    # An empty database stays without records, so that a backup can be restored into it.
    if not dry_run and any(each.before and each.script for each in migrations):
        record_act(settings, Action.DATA_MIGRATE)
    if json:
        print_json([asdict(migration) for migration in migrations])
        return
    for migration in migrations:
        if dry_run:
            for statement in migration.script:
                print(f"{statement};")
        elif migration.script:
            print(f"{migration.part}: version {migration.before} -> {migration.after}")
        else:
            print(f"{migration.part}: version {migration.after}")


async def _use_database(
    settings: Settings, work: "Callable[[PostgresDatabase], Awaitable[_Result]]"
) -> _Result:
    """Run work on the database of `store`.

    Raises:
        ConfigurationError: there is none.
    """
    from trunkline.processes.database import create_database

    database = create_database(settings)
    if database is None:
        problem = "is not set; journals in the data directory are migrated when they are opened"
        raise ConfigurationError("store", problem)
    async with database:
        return await work(database)


def _copy_to_folder(
    settings: Settings, folder: Path, *, must_be_stopped: bool = False
) -> "CopyReport":
    """Copy and check the database of `store`. A folder is there only if all is well."""
    from trunkline.processes.journals import open_bucket
    from trunkline.processes.store_copy import copy_to_folder

    unfinished = folder.parent / f".{folder.name}.copying-{os.getpid()}"
    try:
        report = asyncio.run(
            _use_database(
                settings,
                lambda database: copy_to_folder(
                    database,
                    unfinished,
                    bucket=open_bucket(settings),
                    must_be_stopped=must_be_stopped,
                ),
            )
        )
        report.events = _require_sound(unfinished)
        if report.damage:
            raise ConfigurationError("store", f"is damaged: {report.damage[0]}")
        # An existing target is empty, and rename() replaces it.
        unfinished.rename(folder)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(folder), problem) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return report


def _copy_to_database(
    settings: Settings, folder: Path, *, must_be_stopped: bool = False
) -> "CopyReport":
    """Check a data directory, and copy it to the database of `store`."""
    from trunkline.processes.store_copy import copy_to_database

    events = _require_sound(folder)
    report = asyncio.run(
        _use_database(
            settings,
            lambda database: copy_to_database(folder, database, must_be_stopped=must_be_stopped),
        )
    )
    report.events = events
    return report


def _restore_join_records(settings: Settings, folder: Path) -> None:
    """Add the records of processes that joined, in a copy of a database, to this machine's."""
    from trunkline.processes.database import restore_join_records
    from trunkline.processes.store_copy import OTHER_FOLDER

    asyncio.run(restore_join_records(settings, folder / OTHER_FOLDER))


def _require_sound(folder: Path) -> int:
    """Check the databases of a folder, and return the number of events in its journals."""
    events = 0
    for path in list_databases(folder):
        report = check_database(path, folder, None)
        if report["problems"]:
            raise ConfigurationError(
                str(folder / report["file"]), f"is damaged: {report['problems'][0]}"
            )
        events += report["events"]
    return events


def _check_store(settings: Settings) -> list[dict[str, Any]]:
    """Check a copy of each journal in the database of `store`."""
    from trunkline.processes.journals import open_bucket
    from trunkline.processes.store_copy import check_journals

    async def check(database: "PostgresDatabase") -> list[dict[str, Any]]:
        reports = []
        async with aclosing(check_journals(database, bucket=open_bucket(settings))) as copies:
            async for path, damage in copies:
                report = await asyncio.to_thread(check_database, path, path.parent.parent, None)
                # They were not copied, so the copy lacks them.
                missing = {line.replace(" is damaged", " is missing") for line in damage}
                problems = [*damage, *(line for line in report["problems"] if line not in missing)]
                reports.append({**report, "file": path.stem, "problems": problems})
        return reports

    return asyncio.run(_use_database(settings, check))


def print_copy(report: "CopyReport", *, as_json: bool, done: str) -> None:
    """Print what was copied and compared."""
    if as_json:
        print_json(asdict(report))
        return
    print(f"{report.journals} journals, {report.events} events: {done}, and compared")
    for name, count in report.rows.items():
        if count:
            print(f"{count} {name}")
    if report.files:
        print(f"{report.files} files, {format_size(report.file_bytes)}")
    for name in report.left_out:
        print(f"{name}: only for a database, in the folder postgresql")


def load_settings(data: Path | None, *, store: str | None = None) -> Settings:
    """Load the settings that the commands for a data directory use, with another `store`."""
    uses = {
        "data_dir",
        "store",
        "files",
        "mesh",
        "identity_folder",
        "compact_after_s",
        "retain_s",
        *KEY_SETTINGS,
        *AUDIT_SETTINGS,
    }
    return load_command_settings({"data_dir": data, "store": store}, uses=uses)


def require_folder(settings: Settings) -> Path:
    """Return the data directory. ConfigurationError: there is none."""
    if not settings.data_dir.is_dir():
        problem = "is not a folder; give the data directory by --data"
        raise ConfigurationError(str(settings.data_dir), problem)
    if settings.store:
        note = "journals are in the database of `store`, which this command leaves out"
        print(f"note: {note}", file=sys.stderr)
    return settings.data_dir


def check_empty(folder: Path, advice: str) -> None:
    """Check that a folder is missing or empty. ConfigurationError: it is not."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), f"is not empty; {advice}")


def list_databases(folder: Path) -> list[Path]:
    """Return the SQLite databases of a data directory."""
    return [path for path in find_files(folder) if not is_blob_file(path)]


def copy_rest(folder: Path, target: Path) -> list[dict[str, Any]]:
    """Copy the files of tasks and the keyring, which an encrypted backup needs.

    Return the size of each in bytes.
    """
    copied = []
    for path in find_blob_folders(folder):
        name = path.relative_to(folder)
        copied.append({"file": str(name), "bytes": copy_blobs(path, target / name)})
    if size_bytes := copy_keyring(folder, target):
        name = keyring_path(target).relative_to(target)
        copied.append({"file": str(name), "bytes": size_bytes})
    return copied


def list_journals(folder: Path) -> Iterator[Path]:
    """Yield the journals of a data directory."""
    yield from sorted((folder / _JOURNAL_FOLDER).glob("*.db"))


def check_database(path: Path, folder: Path, keyring: Keyring | None) -> dict[str, Any]:
    """Check a database, and a journal's files of tasks, too; return what is found as JSON."""
    if path.parent == folder / _JOURNAL_FOLDER and path.suffix == ".db":
        report = check_journal(path, keyring)
        blobs = FolderBlobStore(blob_folder(path), keyring=keyring)
        report.problems += asyncio.run(_find_problems(blobs, report.references))
    else:
        report = CheckReport(path, problems=[] if is_sound(path) else ["SQLite finds it damaged"])
    return {
        "file": str(path.relative_to(folder)),
        "journal_id": report.journal_id,
        "owner_pid": report.owner_pid,
        "tasks": report.task_count,
        "events": report.event_count,
        "encrypted_rows": report.encrypted_count,
        "plain_rows": report.plain_count,
        "problems": report.problems,
    }


async def _find_problems(blobs: FolderBlobStore, references: Iterable[str]) -> list[str]:
    """Return the first problems with the files of a journal's tasks."""
    problems: list[str] = []
    async with aclosing(check_blobs(blobs, references)) as lines:
        async for line in lines:
            problems.append(line)
            if len(problems) == _MAX_FILE_PROBLEMS:
                break
    return problems


def format_report(report: dict[str, Any]) -> str:
    """Return what was found in a database, on a line."""
    if report["problems"]:
        first, *others = report["problems"]
        more = f" (and {len(others)} more)" if others else ""
        return f"{report['file']}: DAMAGED: {first}{more}; {_ADVICE}"
    if not report["journal_id"]:
        return f"{report['file']}: ok"
    owner = f", in use by process {report['owner_pid']}" if report["owner_pid"] else ""
    counts = f"{report['tasks']} tasks, {report['events']} events"
    return f"{report['file']}: ok, {counts}{_format_protection(report)}{owner}"


def _format_protection(report: dict[str, Any]) -> str:
    encrypted, plain = report["encrypted_rows"], report["plain_rows"]
    if not encrypted:
        return ""
    return f", encrypted except {plain} of {encrypted + plain} rows" if plain else ", encrypted"


def print_files(files: list[dict[str, Any]], *, as_json: bool, done: str) -> None:
    """Print the files that were copied; `done` says where to."""
    if as_json:
        print_json(files)
        return
    for file in files:
        print(f"{file['file']}: {format_size(file['bytes'])} {done}")
    if not files:
        print(f"nothing to be {done}")


def format_size(size_bytes: int) -> str:
    """Return a size as a person reads it."""
    return f"{size_bytes / 1e6:.1f} MB"
