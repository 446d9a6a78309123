"""Fixtures of the journal tests: a journal in a file for each durability level."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trunkline.journal.journal import Journal


@pytest.fixture(params=["normal", "full"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """Return a journal that commits on the event loop, and one that commits in a thread."""
    opened = Journal.open(tmp_path / "journal.db", synchronous=request.param)
    yield opened
    await opened.close()
