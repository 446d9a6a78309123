"""`trunkline data`: checks, backs up, restores, prunes and rekeys the data directory."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from trunkline.artifacts import BlobStore, blob_folder
from trunkline.artifacts.admin import (
    check_blobs,
    copy_blobs,
    find_blob_folders,
    is_blob_file,
    prune_blobs,
)
from trunkline.audit import Action
from trunkline.cli.audit import USED_SETTINGS, record_act
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json
from trunkline.encryption import (
    KEY_SETTINGS,
    Keyring,
    copy_keyring,
    keyring_path,
    open_keyring,
    read_keyring,
    rewrap,
)
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite.admin import (
    back_up_file,
    find_sqlite_files,
    list_task_ids,
    prune_journal,
)
from trunkline.journal.sqlite.check import CheckReport, check_journal, is_sound
from trunkline.settings import Settings

_JOURNAL_FOLDER = "journals"
# The limit on reported problems with the files of one journal.
_MAX_FILE_PROBLEMS = 20
_DAY_S = 24 * 3600.0
_ADVICE = "restore a backup, or move it away: the other journals stay usable"


def check_data(data: Path | None, *, as_json: bool) -> ExitCode:
    """Check every SQLite database and the files of tasks. The mesh may be running.

    The exit code is not 0 if one is damaged.

    Raises:
        ConfigurationError: there is no data directory.
    """
    settings = _settings(data)
    folder = _require_folder(settings)
    keyring = read_keyring(settings)
    reports = [_check_database(path, folder, keyring) for path in _databases(folder)]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            print(_format_report(report))
        if not reports:
            print(f"{folder}: no journals here")
    return ExitCode.FAILED if any(report["problems"] for report in reports) else ExitCode.OK


def back_up_data(target: Path, data: Path | None, *, as_json: bool) -> ExitCode:
    """Copy the databases and the files of tasks to a folder. The mesh may be running.

    Raises:
        ConfigurationError: there is no data directory, or the folder is not empty.
    """
    settings = _settings(data)
    folder = _require_folder(settings)
    _check_empty(target, "choose a new folder for the backup")
    copied = []
    for path in _databases(folder):
        name = path.relative_to(folder)
        back_up_file(path, target / name)
        copied.append({"file": str(name), "bytes": (target / name).stat().st_size})
    # Copied last, so that the copy has every file to which the copied journals refer.
    copied += _copy_files(folder, target)
    copied += _copy_keyring(folder, target)
    record_act(settings, Action.DATA_BACKUP)
    _print_files(copied, as_json=as_json, done=f"copied to {target}")
    return ExitCode.OK


def restore_data(source: Path, data: Path | None, *, as_json: bool) -> ExitCode:
    """Restore a backup into an empty or missing data directory, completely or not at all.

    Raises:
        ConfigurationError: the source is not a backup, or it is damaged; or the data directory is
            not empty, or can't be written.
    """
    settings = _settings(data)
    folder = settings.data_dir
    files = _databases(source) if source.is_dir() else []
    if not files:
        raise ConfigurationError(
            str(source), "is not a backup; `trunkline data backup DIR` makes one"
        )
    _check_empty(folder, "stop the mesh and move it away, or choose another one with --data")
    keyring = read_keyring(settings, source)
    for report in (_check_database(path, source, keyring) for path in files):
        if report["problems"]:
            raise ConfigurationError(
                str(source / report["file"]), f"is damaged: {report['problems'][0]}"
            )
    unfinished = folder.parent / f".{folder.name}.restoring-{os.getpid()}"
    try:
        restored = []
        for path in files:
            name = path.relative_to(source)
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            back_up_file(path, unfinished / name)
            restored.append({"file": str(name), "bytes": (unfinished / name).stat().st_size})
        restored += _copy_files(source, unfinished)
        restored += _copy_keyring(source, unfinished)
        # An existing target is empty, and rename() replaces it.
        unfinished.rename(folder)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(folder), problem) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    record_act(settings, Action.DATA_RESTORE)
    _print_files(restored, as_json=as_json, done=f"restored to {folder}")
    return ExitCode.OK


def prune_data(data: Path | None, *, older_than_days: float | None, as_json: bool) -> ExitCode:
    """Compact and delete old tasks by the settings' retention. The mesh must be stopped.

    A journal that a process uses is reported, skipped, and sets the exit code.

    Raises:
        ConfigurationError: there is no data directory.
    """
    settings = _settings(data)
    retention = Retention(compact_after_s=settings.compact_after_s, retain_s=settings.retain_s)
    if older_than_days is not None:
        retention = replace(retention, retain_s=older_than_days * _DAY_S)
    folder = _require_folder(settings)
    keyring = open_keyring(settings)
    reports: list[dict[str, Any]] = []
    code = ExitCode.OK
    for path in _journals(folder):
        before_bytes = path.stat().st_size
        try:
            pruned = prune_journal(path, retention, keyring)
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
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            print(
                f"{report['file']}: {report['forgotten']} tasks forgotten, "
                f"{report['compacted']} compacted, "
                f"{_format_size(report['bytes_before'])} -> {_format_size(report['bytes'])}"
            )
    return code


def rekey_data(data: Path | None, *, with_new_data_key: bool, as_json: bool) -> ExitCode:
    """Encrypt the data keys under the configured keys. The mesh may be running.

    Raises:
        ConfigurationError: no key is configured, it is wrong, or there is no keyring.
    """
    settings = _settings(data)
    content = rewrap(settings, with_new_data_key=with_new_data_key)
    record_act(settings, Action.DATA_REKEY)
    keys = sorted(content.data_keys[-1].wrapped)
    report = {
        "keys": keys,
        "data_keys": len(content.data_keys),
        "new_data_key": f"{content.data_keys[-1].id:08x}" if with_new_data_key else "",
    }
    if as_json:
        print_json(report)
        return ExitCode.OK
    print(f"{len(content.data_keys)} data keys are encrypted under {' and '.join(keys)}")
    if with_new_data_key:
        print(f"new data is encrypted under the data key {report['new_data_key']}")
    return ExitCode.OK


def _settings(data: Path | None) -> Settings:
    uses = {"data_dir", "compact_after_s", "retain_s", *KEY_SETTINGS, *USED_SETTINGS}
    return load_command_settings({"data_dir": data}, uses=uses)


def _require_folder(settings: Settings) -> Path:
    if not settings.data_dir.is_dir():
        problem = "is not a folder; give the data directory by --data"
        raise ConfigurationError(str(settings.data_dir), problem)
    return settings.data_dir


def _check_empty(folder: Path, advice: str) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), f"is not empty; {advice}")


def _databases(folder: Path) -> list[Path]:
    return [path for path in find_sqlite_files(folder) if not is_blob_file(path)]


def _copy_files(folder: Path, target: Path) -> list[dict[str, Any]]:
    """Copy the files of tasks; return the size of each journal's files in bytes."""
    folders = [(path.relative_to(folder), path) for path in find_blob_folders(folder)]
    return [{"file": str(name), "bytes": copy_blobs(path, target / name)} for name, path in folders]


def _copy_keyring(folder: Path, target: Path) -> list[dict[str, Any]]:
    """Copy the keyring: an encrypted backup needs it, and the signing keys of all journals."""
    size_bytes = copy_keyring(folder, target)
    name = keyring_path(target).relative_to(target)
    return [{"file": str(name), "bytes": size_bytes}] if size_bytes else []


def _journals(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / _JOURNAL_FOLDER).glob("*.db"))


def _check_database(path: Path, folder: Path, keyring: Keyring | None) -> dict[str, Any]:
    if path.parent == folder / _JOURNAL_FOLDER and path.suffix == ".db":
        report = check_journal(path, keyring)
        blobs = BlobStore(blob_folder(path), keyring=keyring)
        report.problems += islice(check_blobs(blobs, report.references), _MAX_FILE_PROBLEMS)
    else:
        report = CheckReport(path, problems=[] if is_sound(path) else ["SQLite finds it damaged"])
    return {
        "file": str(path.relative_to(folder)),
        "journal_id": report.journal_id,
        "owner_pid": report.owner_pid,
        "tasks": report.task_count,
        "events": report.event_count,
        "encrypted_rows": report.chains.encrypted_count,
        "plain_rows": report.chains.plain_count,
        "signed_by": keyring.fingerprint if keyring and report.chains.signed_ns else "",
        "unsigned_commits": report.chains.unsigned_count,
        "problems": report.problems,
    }


def _format_report(report: dict[str, Any]) -> str:
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
    text = f", signed by {report['signed_by']}" if report["signed_by"] else ""
    encrypted, plain = report["encrypted_rows"], report["plain_rows"]
    if encrypted:
        text += (
            f", encrypted except {plain} of {encrypted + plain} rows" if plain else ", encrypted"
        )
    return text


def _print_files(files: list[dict[str, Any]], *, as_json: bool, done: str) -> None:
    if as_json:
        print_json(files)
        return
    for file in files:
        print(f"{file['file']}: {_format_size(file['bytes'])} {done}")
    if not files:
        print(f"nothing to be {done}")


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
