"""Backs up, restores and checks the database of `store`. A backup is a data directory."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.processes.data_folder import (
    DatabaseReport,
    check_database,
    require_sound,
    write_folder,
)
from trunkline.processes.database import require_database
from trunkline.processes.journals import open_bucket
from trunkline.processes.store_copy.copying import (
    CopyReport,
    check_journals,
    copy_to_database,
    copy_to_folder,
)


async def back_up_store(
    settings: Settings, folder: Path, *, must_be_stopped: bool = False
) -> CopyReport:
    """Copy the database to a new folder, and check the copy.

    Raises:
        ConfigurationError: there is no database in the settings, it is damaged, or the folder can't
            be written; and as `copy_to_folder`.
        JournalUnavailableError: as `copy_to_folder`.
    """
    with write_folder(folder) as unfinished:
        async with require_database(settings) as database:
            report = await copy_to_folder(
                database,
                unfinished,
                bucket=open_bucket(settings),
                must_be_stopped=must_be_stopped,
            )
        report.events = await require_sound(unfinished)
        if report.damage:
            raise ConfigurationError("store", f"is damaged: {report.damage[0]}")
    return report


async def restore_store(
    settings: Settings, folder: Path, *, must_be_stopped: bool = False
) -> CopyReport:
    """Check a data directory, and copy it to the database.

    Raises:
        ConfigurationError: there is no database in the settings, or the folder is damaged; and as
            `copy_to_database`.
        JournalUnavailableError: as `copy_to_database`.
    """
    events = await require_sound(folder)
    async with require_database(settings) as database:
        report = await copy_to_database(folder, database, must_be_stopped=must_be_stopped)
    report.events = events
    return report


async def check_store(settings: Settings) -> AsyncGenerator[DatabaseReport]:
    """Check a copy of each journal in the database. The paths in the reports are the names.

    Raises:
        ConfigurationError: there is no database in the settings; and as `check_journals`.
        JournalUnavailableError: as `check_journals`.
    """
    async with (
        require_database(settings) as database,
        aclosing(check_journals(database, bucket=open_bucket(settings))) as copies,
    ):
        async for path, damage in copies:
            report = await check_database(path, path.parent.parent, None)
            # They were not copied, so the copy lacks them.
            missing = {line.replace(" is damaged", " is missing") for line in damage}
            problems = [*damage, *(line for line in report.problems if line not in missing)]
            yield replace(report, path=Path(path.stem), problems=problems)
