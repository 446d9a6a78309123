"""Journals on files of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.journal.journal import Journal


@pytest.fixture(params=["normal", "full"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """A journal that commits on the loop, and one that commits in a thread."""
    one = Journal.open(tmp_path / "journal.db", synchronous=request.param)
    yield one
    one.close()
