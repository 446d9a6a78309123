"""Used approvals: stored in a private file, once, and for as long as they are valid."""

import stat
import time
from pathlib import Path

import pytest

from trunkline.errors import JournalUnavailableError
from trunkline.tools.used_approvals import RETENTION_S, UsedApprovals


def test_an_approval_is_used_once_by_all_processes(tmp_path: Path) -> None:
    first, second = UsedApprovals(tmp_path), UsedApprovals(tmp_path)
    assert first.use("a")
    assert not second.use("a")
    assert second.use("b")
    assert not UsedApprovals(tmp_path).use("b")
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700


def test_approvals_that_are_not_valid_any_more_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, used = time.time(), UsedApprovals(tmp_path)
    assert used.use("a")
    monkeypatch.setattr(time, "time", lambda: start + RETENTION_S - 60)
    assert not used.use("a")
    monkeypatch.setattr(time, "time", lambda: start + RETENTION_S + 60)
    assert used.use("a")


def test_a_link_is_refused(tmp_path: Path) -> None:
    used = UsedApprovals(tmp_path)
    used.path.parent.mkdir(mode=0o700)
    used.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailableError, match="link"):
        used.use("a")
