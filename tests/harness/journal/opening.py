"""Opens journals in SQLite files by their paths, also without an event loop."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from harness.journal.suspending_store import suspending, with_disk
from trunkline.core.database import Synchronous
from trunkline.core.encryption import Keyring
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore

_Result = TypeVar("_Result")


def open_journal(
    path: Path,
    *,
    synchronous: Synchronous = "normal",
    keyring: Keyring | None = None,
    is_suspending: bool = False,
    disk: asyncio.Event | None = None,
    **options: Any,
) -> Journal:
    """Open the journal in a file, or create it there; see `JournalCatalog.open`.

    With `is_suspending`, its store suspends each caller. Commits wait until `disk`, if given, is
    set. `options` are those of `Journal`.
    """
    sqlite = SqliteStore.open(path, synchronous=synchronous, keyring=keyring)
    store = sqlite if disk is None else with_disk(sqlite, disk)
    return Journal(
        suspending(store) if is_suspending else store,
        run_at_once(sqlite.list_unfinished()),
        path=path,
        keyring=keyring,
        blobs=FolderBlobStore(blob_folder(path), keyring=keyring),
        **options,
    )


def take_over_journal(path: Path) -> Journal:
    """Open the journal of a process whose lease has expired; see `JournalCatalog.take_over`."""
    store = SqliteStore.take_over(path)
    blobs = FolderBlobStore(blob_folder(path))
    return Journal(store, run_at_once(store.list_unfinished()), path=path, blobs=blobs)


def run_at_once(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a coroutine that does not suspend its caller, as reads of SQLite."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    raise AssertionError("it suspends its caller")
