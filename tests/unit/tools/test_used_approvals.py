"""Used approvals of SQLite: in a private file that is no link."""

import stat
from pathlib import Path

import pytest

from trunkline.errors import JournalUnavailableError
from trunkline.tools.used_approvals import SqliteUsedApprovals


async def test_the_file_is_private(tmp_path: Path) -> None:
    used = SqliteUsedApprovals(tmp_path)
    assert await used.use("a")
    assert stat.S_IMODE(used.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(used.path.parent.stat().st_mode) == 0o700


async def test_a_link_is_refused(tmp_path: Path) -> None:
    used = SqliteUsedApprovals(tmp_path)
    used.path.parent.mkdir(mode=0o700)
    used.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailableError, match="link"):
        await used.use("a")
