"""The usage of tokens and cost: in the database of the mesh, or in the data directory."""

from collections.abc import Iterable
from datetime import datetime

from trunkline.core.settings import Settings
from trunkline.processes.database import create_database
from trunkline.tasks.usage_store import (
    SqliteUsageStore,
    Subject,
    Usage,
    UsageStore,
    list_usage,
)


def open_usage_store(settings: Settings) -> UsageStore:
    """Open the usage that the hosts of these settings share.

    Raises:
        ConfigurationError: the settings are wrong, or the data directory can't be used.
        JournalUnavailableError: the file of usage can't be used.
    """
    if (database := create_database(settings)) is None:
        return SqliteUsageStore(settings.data_dir)
    from trunkline.tasks.postgres_usage import PostgresUsageStore

    return PostgresUsageStore(database)


def read_usage(settings: Settings, now: datetime) -> Iterable[tuple[str, Subject, Usage]]:
    """Return the usage in the day and the month of a time. It blocks.

    Raises:
        ConfigurationError: the settings are wrong.
        JournalUnavailableError: the usage can't be read.
    """
    if (database := create_database(settings)) is None:
        return list_usage(settings.data_dir, now)
    from trunkline.tasks.postgres_usage import PostgresUsageStore

    store = PostgresUsageStore(database)
    try:
        return store.list_usage(now)
    finally:
        store.close()
