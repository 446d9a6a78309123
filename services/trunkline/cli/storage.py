"""The parts of a data directory: databases, files of tasks and the keyring, and their reports."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from trunkline.cli.audit import USED_SETTINGS
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json
from trunkline.core.database import find_files, is_sound
from trunkline.core.encryption import KEY_SETTINGS, Keyring, copy_keyring, keyring_path
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.journal.artifacts import BlobStore, blob_folder
from trunkline.journal.artifacts.admin import (
    check_blobs,
    copy_blobs,
    find_blob_folders,
    is_blob_file,
)
from trunkline.journal.sqlite.check import CheckReport, check_journal

_JOURNAL_FOLDER = "journals"
# The limit on reported problems with the files of one journal.
_MAX_FILE_PROBLEMS = 20
_ADVICE = "restore a backup, or move it away: the other journals stay usable"


def load_settings(data: Path | None) -> Settings:
    """Load the settings that the commands for a data directory use."""
    uses = {"data_dir", "compact_after_s", "retain_s", *KEY_SETTINGS, *USED_SETTINGS}
    return load_command_settings({"data_dir": data}, uses=uses)


def require_folder(settings: Settings) -> Path:
    """Return the data directory. ConfigurationError: there is none."""
    if not settings.data_dir.is_dir():
        problem = "is not a folder; give the data directory by --data"
        raise ConfigurationError(str(settings.data_dir), problem)
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
        "encrypted_rows": report.encrypted_count,
        "plain_rows": report.plain_count,
        "problems": report.problems,
    }


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
