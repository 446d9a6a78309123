"""The commands that read and maintain the data directory and the database: `trunkline data`."""

import asyncio
import sys
from collections.abc import AsyncIterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trunkline.cli.audit import record_act
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
from trunkline.core.encryption import KEY_SETTINGS, open_keyring, read_keyring, rewrap
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.retention import Retention
from trunkline.observe.audit import Action
from trunkline.processes.data_folder import (
    DatabaseReport,
    check_folder,
    copy_folder,
    list_databases,
    list_journals,
    prune_files,
    require_empty,
    require_sound,
    write_folder,
)
from trunkline.processes.database import require_database, restore_join_records

if TYPE_CHECKING:
    from trunkline.processes.store_copy import CopyReport

group = typer.Typer()

_DAY_S: Final = 24 * 3600.0
_ADVICE: Final = "restore a backup, or move it away: the other journals stay usable"


@command(group, "check")
def check_data(data: DataOption = None, *, json: JsonOption = False) -> ExitCode:
    """Check every journal. The mesh may be running. Exits 1 if one is damaged."""
    settings = _load_settings(data)
    if settings.store:
        from trunkline.processes.store_copy import check_store

        place, reports = "the database", asyncio.run(_collect(check_store(settings)))
    else:
        folder = _require_folder(settings)
        place = str(folder)
        reports = asyncio.run(_collect(check_folder(folder, read_keyring(settings))))
    if json:
        print_json([_build_report(report) for report in reports])
    else:
        for report in reports:
            print(_format_report(report))
        if not reports:
            print(f"{place}: no journals here")
    return ExitCode.FAILED if any(report.problems for report in reports) else ExitCode.OK


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
    settings = _load_settings(data)
    if settings.store:
        from trunkline.processes.store_copy import back_up_store

        require_empty(folder, "choose a new folder for the backup")
        report = asyncio.run(back_up_store(settings, folder))
        record_act(settings, Action.DATA_BACKUP)
        _print_copy(report, as_json=json, done=f"copied to {folder}")
        return
    source = _require_folder(settings)
    require_empty(folder, "choose a new folder for the backup")
    copied = copy_folder(source, folder)
    record_act(settings, Action.DATA_BACKUP)
    _print_files(copied, as_json=json, done=f"copied to {folder}")


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
    settings = _load_settings(data)
    target = settings.data_dir
    if not (folder.is_dir() and list_databases(folder)):
        problem = "is not a backup; `trunkline data backup DIR` makes one"
        raise ConfigurationError(str(folder), problem)
    if settings.store:
        from trunkline.processes.store_copy import restore_store

        report = asyncio.run(restore_store(settings, folder))
        record_act(settings, Action.DATA_RESTORE)
        _print_copy(report, as_json=json, done="restored to the database")
        return
    require_empty(target, "stop the mesh and move it away, or choose another one with --data")
    asyncio.run(require_sound(folder, read_keyring(settings, folder)))
    with write_folder(target) as unfinished:
        restored = copy_folder(folder, unfinished)
    asyncio.run(restore_join_records(settings, folder))
    record_act(settings, Action.DATA_RESTORE)
    _print_files(restored, as_json=json, done=f"restored to {target}")


@command(group, "copy")
def copy_data(
    source: Annotated[str, argument("FROM", "A data directory, or the URL of a database.")],
    target: Annotated[str, argument("TO", "A database without tables, or a new folder.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Copy everything between SQLite and PostgreSQL, and compare. The mesh must be stopped."""
    from trunkline.processes.store_copy import back_up_store, restore_store

    settings = _load_settings(data)
    is_from, is_to = (
        place.startswith(("postgresql://", "postgres://")) for place in (source, target)
    )
    if is_from == is_to:
        problem = "name a data directory and the URL of a database, in either order"
        raise ConfigurationError("FROM and TO", f"are of the same kind; {problem}")
    if is_to:
        if not Path(source).is_dir():
            raise ConfigurationError(source, "is not a folder")
        stored = _load_settings(data, store=target)
        report = asyncio.run(restore_store(stored, Path(source), must_be_stopped=True))
        done = "copied to the database"
    else:
        require_empty(Path(target), "choose a new folder")
        stored = _load_settings(data, store=source)
        report = asyncio.run(back_up_store(stored, Path(target), must_be_stopped=True))
        asyncio.run(restore_join_records(settings, Path(target)))
        done = f"copied to {target}"
    record_act(settings, Action.DATA_COPY)
    _print_copy(report, as_json=json, done=done)


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
    settings = _load_settings(data)
    retention = Retention(compact_after_s=settings.compact_after_s, retain_s=settings.retain_s)
    if older_than is not None:
        retention = replace(retention, retain_s=older_than * _DAY_S)
    folder = _require_folder(settings)
    keyring = open_keyring(settings)
    reports: list[dict[str, Any]] = []
    code = ExitCode.OK
    for path in list_journals(folder):
        before_bytes = path.stat().st_size
        try:
            pruned = asyncio.run(prune_files(path, retention, keyring))
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
            before, after = map(_format_size, (report["bytes_before"], report["bytes"]))
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
    settings = _load_settings(data)
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
    from trunkline.processes.stored_tables import Migration, migrate, plan_migrations

    settings = _load_settings(data)

    async def change() -> list[Migration]:
        async with require_database(settings) as database:
            return await (plan_migrations if dry_run else migrate)(database)

    migrations = asyncio.run(change())
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


async def _collect(reports: AsyncIterable[DatabaseReport]) -> list[DatabaseReport]:
    return [report async for report in reports]


def _load_settings(data: Path | None, *, store: str | None = None) -> Settings:
    """Load the settings that the commands use, with another `store`."""
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


def _require_folder(settings: Settings) -> Path:
    """Return the data directory. ConfigurationError: there is none."""
    if not settings.data_dir.is_dir():
        problem = "is not a folder; give the data directory by --data"
        raise ConfigurationError(str(settings.data_dir), problem)
    if settings.store:
        note = "journals are in the database of `store`, which this command leaves out"
        print(f"note: {note}", file=sys.stderr)
    return settings.data_dir


def _build_report(report: DatabaseReport) -> dict[str, Any]:
    return {
        "file": str(report.path),
        "journal_id": report.journal_id,
        "owner_pid": report.owner_pid,
        "tasks": report.task_count,
        "events": report.event_count,
        "encrypted_rows": report.encrypted_count,
        "plain_rows": report.plain_count,
        "problems": report.problems,
    }


def _format_report(report: DatabaseReport) -> str:
    """Return what was found in a database, on a line."""
    if report.problems:
        first, *others = report.problems
        more = f" (and {len(others)} more)" if others else ""
        return f"{report.path}: DAMAGED: {first}{more}; {_ADVICE}"
    if not report.journal_id:
        return f"{report.path}: ok"
    counts = f"{report.task_count} tasks, {report.event_count} events"
    encrypted, plain = report.encrypted_count, report.plain_count
    if encrypted:
        exception = f" except {plain} of {encrypted + plain} rows" if plain else ""
        counts += f", encrypted{exception}"
    owner = f", in use by process {report.owner_pid}" if report.owner_pid else ""
    return f"{report.path}: ok, {counts}{owner}"


def _print_copy(report: "CopyReport", *, as_json: bool, done: str) -> None:
    """Print what was copied and compared."""
    if as_json:
        print_json(asdict(report))
        return
    print(f"{report.journals} journals, {report.events} events: {done}, and compared")
    for name, count in report.rows.items():
        if count:
            print(f"{count} {name}")
    if report.files:
        print(f"{report.files} files, {_format_size(report.file_bytes)}")
    for name in report.left_out:
        print(f"{name}: only for a database, in the folder postgresql")


def _print_files(sizes: Mapping[str, int], *, as_json: bool, done: str) -> None:
    """Print the files that were copied; `done` says where to."""
    if as_json:
        print_json([{"file": name, "bytes": size_bytes} for name, size_bytes in sizes.items()])
        return
    for name, size_bytes in sizes.items():
        print(f"{name}: {_format_size(size_bytes)} {done}")
    if not sizes:
        print(f"nothing to be {done}")


def _format_size(size_bytes: int) -> str:
    """Return a size as a person reads it."""
    return f"{size_bytes / 1e6:.1f} MB"
