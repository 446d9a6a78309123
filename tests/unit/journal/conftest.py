"""Fixtures of the journal tests: a journal in a file for each durability level."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.journal.suspending_store import suspending
from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore


@pytest.fixture(params=["normal", "full", "suspending"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """Return a journal that commits at once, in a thread, and in a store that suspends it."""
    path = tmp_path / "journal.db"
    if request.param == "suspending":
        store = SqliteStore.open(path)
        opened = Journal(suspending(store), store.read_unfinished(), path=path)
    else:
        opened = Journal.open(path, synchronous=request.param)
    yield opened
    await opened.close()
