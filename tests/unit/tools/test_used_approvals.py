"""Used approvals: stored in a private file, once, and for as long as they are valid."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.errors import JournalUnavailableError
from trunkline.tools.used_approvals import CONTINUATION_RETENTION, RETENTION, UsedApprovals

NOW = datetime.now(UTC)


def test_an_approval_is_used_once_by_all_processes(tmp_path: Path) -> None:
    first, second = UsedApprovals(tmp_path), UsedApprovals(tmp_path)
    assert first.use("a", NOW)
    assert not second.use("a", NOW)
    assert second.use("b", NOW)
    assert not UsedApprovals(tmp_path).use("b", NOW)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700


def test_approvals_that_are_not_valid_any_more_are_deleted(tmp_path: Path) -> None:
    used, minute = UsedApprovals(tmp_path), timedelta(minutes=1)
    assert used.use("a", NOW)
    assert not used.use("a", NOW + RETENTION - minute)
    assert used.use("a", NOW + RETENTION + minute)


def test_a_link_is_refused(tmp_path: Path) -> None:
    used = UsedApprovals(tmp_path)
    used.path.parent.mkdir(mode=0o700)
    used.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailableError, match="link"):
        used.use("a", NOW)


def test_a_call_that_asked_is_continued_once_also_after_a_restart(tmp_path: Path) -> None:
    UsedApprovals(tmp_path).allow_continuation("digest", NOW)
    used = UsedApprovals(tmp_path)
    assert not used.use_continuation("other", NOW)
    assert used.use_continuation("digest", NOW)
    assert not used.use_continuation("digest", NOW)


def test_a_question_that_is_too_old_is_not_continued(tmp_path: Path) -> None:
    used = UsedApprovals(tmp_path)
    used.allow_continuation("digest", NOW)
    late = NOW + CONTINUATION_RETENTION + timedelta(seconds=1)
    assert not used.use_continuation("digest", late)
