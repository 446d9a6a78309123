"""The commands that read and maintain the data directory: `trunkline data` and `usage`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import (
    DataOption,
    JsonOption,
    argument,
    flag,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json
from trunkline.errors import ConfigurationError, JournalUnavailableError

_DAY_S = 24 * 3600.0

data = typer.Typer(help="Check, back up, restore, prune and rekey the data directory.")


def usage(data: DataOption = None, *, json: JsonOption = False) -> None:
    """Show tokens and cost of this day and month, and their budgets."""
    from datetime import UTC, datetime

    from trunkline.cli.budget_report import build_reports, print_reports

    settings = load_command_settings({"data_dir": data}, uses={"data_dir", "limits"})
    reports = build_reports(settings, datetime.now(UTC))
    if json:
        print_json(reports)
    else:
        print_reports(reports)


@command(data, "check")
def check_data(data: DataOption = None, *, json: JsonOption = False) -> ExitCode:
    """Check every journal. The mesh may be running. Exits 1 if one is damaged."""
    from trunkline.cli import storage as stored
    from trunkline.core.encryption import read_keyring

    settings = stored.load_settings(data)
    folder = stored.require_folder(settings)
    keyring = read_keyring(settings)
    reports = [
        stored.check_database(path, folder, keyring) for path in stored.list_databases(folder)
    ]
    if json:
        print_json(reports)
    else:
        for report in reports:
            print(stored.format_report(report))
        if not reports:
            print(f"{folder}: no journals here")
    return ExitCode.FAILED if any(report["problems"] for report in reports) else ExitCode.OK


@command(data, "backup")
def back_up_data(
    folder: Annotated[Path, argument("DIR", "A new folder for the copy.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Copy journals, checkpoints and traces. The mesh may be running."""
    from trunkline.cli import storage as stored
    from trunkline.cli.audit import record_act
    from trunkline.journal.sqlite.admin import back_up_file
    from trunkline.observe.audit import Action

    settings = stored.load_settings(data)
    source = stored.require_folder(settings)
    stored.check_empty(folder, "choose a new folder for the backup")
    copied = []
    for path in stored.list_databases(source):
        name = path.relative_to(source)
        back_up_file(path, folder / name)
        copied.append({"file": str(name), "bytes": (folder / name).stat().st_size})
    # Copied last, so that the copy has every file to which the copied journals refer.
    copied += stored.copy_rest(source, folder)
    record_act(settings, Action.DATA_BACKUP)
    stored.print_files(copied, as_json=json, done=f"copied to {folder}")


@command(data, "restore")
def restore_data(
    folder: Annotated[Path, argument("DIR", "The backup.")],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Restore a backup into an empty or new data directory."""
    import os
    import shutil

    from trunkline.cli import storage as stored
    from trunkline.cli.audit import record_act
    from trunkline.core.encryption import read_keyring
    from trunkline.journal.sqlite.admin import back_up_file
    from trunkline.observe.audit import Action

    settings = stored.load_settings(data)
    target = settings.data_dir
    files = stored.list_databases(folder) if folder.is_dir() else []
    if not files:
        raise ConfigurationError(
            str(folder), "is not a backup; `trunkline data backup DIR` makes one"
        )
    stored.check_empty(target, "stop the mesh and move it away, or choose another one with --data")
    keyring = read_keyring(settings, folder)
    for report in (stored.check_database(path, folder, keyring) for path in files):
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
        restored += stored.copy_rest(folder, unfinished)
        # An existing target is empty, and rename() replaces it.
        unfinished.rename(target)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(target), problem) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    record_act(settings, Action.DATA_RESTORE)
    stored.print_files(restored, as_json=json, done=f"restored to {target}")


@command(data, "prune")
def prune_data(
    data: DataOption = None,
    *,
    older_than: Annotated[
        float | None, option("DAYS", "Delete tasks that ended longer ago. [retain_s]", min=0)
    ] = None,
    json: JsonOption = False,
) -> ExitCode:
    """Compact and delete tasks that ended long ago. The mesh must be stopped."""
    import asyncio
    from dataclasses import replace

    from trunkline.cli import storage as stored
    from trunkline.cli.audit import record_act
    from trunkline.core.encryption import open_keyring
    from trunkline.journal.artifacts import BlobStore, blob_folder
    from trunkline.journal.artifacts.admin import prune_blobs
    from trunkline.journal.retention import Retention
    from trunkline.journal.sqlite.admin import list_task_ids, prune_journal
    from trunkline.observe.audit import Action

    settings = stored.load_settings(data)
    retention = Retention(compact_after_s=settings.compact_after_s, retain_s=settings.retain_s)
    if older_than is not None:
        retention = replace(retention, retain_s=older_than * _DAY_S)
    folder = stored.require_folder(settings)
    keyring = open_keyring(settings)
    reports: list[dict[str, Any]] = []
    code = ExitCode.OK
    for path in stored.list_journals(folder):
        before_bytes = path.stat().st_size
        try:
            pruned = asyncio.run(prune_journal(path, retention, keyring))
            prune_blobs(BlobStore(blob_folder(path)), list_task_ids(path))
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
            before, after = map(stored.format_size, (report["bytes_before"], report["bytes"]))
            print(
                f"{report['file']}: {report['forgotten']} tasks forgotten, "
                f"{report['compacted']} compacted, {before} -> {after}"
            )
    return code


@command(data, "rekey")
def rekey_data(
    data: DataOption = None,
    *,
    new_data_key: Annotated[
        bool, flag("Also encrypt new data under a new data key.", "--new-data-key")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Encrypt the data keys under the configured keys. The mesh may be running."""
    from trunkline.cli import storage as stored
    from trunkline.cli.audit import record_act
    from trunkline.core.encryption import rewrap
    from trunkline.observe.audit import Action

    settings = stored.load_settings(data)
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
