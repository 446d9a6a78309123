"""The data directory as a whole: its check, backup, restore and retention."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.core.database import find_files, is_sound
from trunkline.core.encryption import Keyring, copy_keyring, keyring_path
from trunkline.errors import ConfigurationError
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.artifacts.folder.admin import (
    check_blobs,
    copy_blobs,
    find_blob_folders,
    is_blob_file,
    prune_blobs,
)
from trunkline.journal.retention import Retention
from trunkline.journal.sqlite import JOURNAL_FOLDER
from trunkline.journal.sqlite.admin import (
    PruneResult,
    back_up_file,
    list_task_ids,
    prune_journal,
)
from trunkline.journal.sqlite.check import CheckReport, check_journal

DatabaseReport: TypeAlias = CheckReport
"""The result of a check of a database. Only journals have counts."""
# The limit on reported problems with the files of one journal.
_MAX_FILE_PROBLEMS: Final = 20


def list_databases(folder: Path) -> list[Path]:
    """Return the SQLite databases of a data directory."""
    return [path for path in find_files(folder) if not is_blob_file(path)]


def list_journals(folder: Path) -> list[Path]:
    """Return the journals of a data directory."""
    return sorted((folder / JOURNAL_FOLDER).glob("*.db"))


async def check_folder(folder: Path, keyring: Keyring | None) -> AsyncGenerator[DatabaseReport]:
    """Check each database, and the files of the tasks in journals. Other processes may use them.

    The paths in the reports are relative to the folder.
    """
    for path in list_databases(folder):
        yield await check_database(path, folder, keyring)


async def check_database(path: Path, folder: Path, keyring: Keyring | None) -> DatabaseReport:
    """Check one of the databases of a folder; see `check_folder`."""
    if path.parent == folder / JOURNAL_FOLDER and path.suffix == ".db":
        report = await asyncio.to_thread(check_journal, path, keyring)
        blobs = FolderBlobStore(blob_folder(path), keyring=keyring)
        problems: list[str] = []
        async with aclosing(check_blobs(blobs, report.references)) as lines:
            async for line in lines:
                problems.append(line)
                if len(problems) == _MAX_FILE_PROBLEMS:
                    break
        report.problems += problems
    else:
        sound = await asyncio.to_thread(is_sound, path)
        report = CheckReport(path, problems=[] if sound else ["SQLite finds it damaged"])
    report.path = path.relative_to(folder)
    return report


async def require_sound(folder: Path, keyring: Keyring | None = None) -> int:
    """Check a folder as `check_folder`, and return the number of events in its journals.

    Raises:
        ConfigurationError: a database is damaged.
    """
    events = 0
    async with aclosing(check_folder(folder, keyring)) as reports:
        async for report in reports:
            if report.problems:
                problem = f"is damaged: {report.problems[0]}"
                raise ConfigurationError(str(folder / report.path), problem)
            events += report.event_count
    return events


def copy_folder(folder: Path, target: Path) -> dict[str, int]:
    """Copy databases, the files of tasks and the keyring, which an encrypted backup needs.

    Other processes may write meanwhile. Return the size of each in bytes, by its path.

    Raises:
        JournalUnavailableError: a database can't be read, or its copy can't be written.
    """
    sizes: dict[str, int] = {}
    for path in list_databases(folder):
        name = path.relative_to(folder)
        back_up_file(path, target / name)
        sizes[str(name)] = (target / name).stat().st_size
    # Copied last, so that the copy has every file to which the copied journals refer.
    for path in find_blob_folders(folder):
        name = path.relative_to(folder)
        sizes[str(name)] = copy_blobs(path, target / name)
    if size_bytes := copy_keyring(folder, target):
        sizes[str(keyring_path(target).relative_to(target))] = size_bytes
    return sizes


def require_empty(folder: Path, advice: str) -> None:
    """Check that a folder is missing or empty.

    Raises:
        ConfigurationError: it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), f"is not empty; {advice}")


@contextlib.contextmanager
def write_folder(target: Path) -> Iterator[Path]:
    """Give a block a folder to write, which is at the target only if the block succeeds.

    Raises:
        ConfigurationError: it can't be written.
    """
    unfinished = target.parent / f".{target.name}.unfinished-{os.getpid()}"
    try:
        yield unfinished
        # An existing target is empty, and rename() replaces it.
        unfinished.rename(target)
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        raise ConfigurationError(str(target), problem) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


async def prune_files(path: Path, retention: Retention, keyring: Keyring | None) -> PruneResult:
    """Apply retention to a journal that no process has open, and to the files of its tasks.

    Raises:
        JournalUnavailableError: a process has it open, or it can't be read or written.
    """
    pruned = await prune_journal(path, retention, keyring)
    await prune_blobs(FolderBlobStore(blob_folder(path)), list_task_ids(path))
    return pruned
