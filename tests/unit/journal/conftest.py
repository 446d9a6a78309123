"""Fixtures of the journal tests: a journal in a file for each durability level."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.journal.opening import open_journal
from trunkline.journal.journal import Journal


@pytest.fixture(params=["normal", "full", "suspending"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """Return a journal that commits at once, in a thread, and in a store that suspends it."""
    is_suspending = request.param == "suspending"
    opened = open_journal(
        tmp_path / "journal.db",
        synchronous="normal" if is_suspending else request.param,
        is_suspending=is_suspending,
    )
    yield opened
    await opened.close()
