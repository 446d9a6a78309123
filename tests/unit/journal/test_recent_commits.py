"""Tests of the cache of recent commits, also when SQLite reuses an id."""

from trunkline.journal.sqlite.batch_index import BatchPosition
from trunkline.journal.sqlite.settling import RecentCommits


def test_a_batch_is_read_by_its_position() -> None:
    latest = RecentCommits()
    latest.add(1, bytearray(b"....one"))
    latest.add(2, bytearray(b"....two.....three"))
    positions = [BatchPosition(1, 4, 3), BatchPosition(2, 4, 3), BatchPosition(2, 12, 5)]
    assert latest.read_batches(positions) == [b"one", b"two", b"three"]


def test_the_oldest_commits_are_evicted_first() -> None:
    latest = RecentCommits(limit_bytes=10)
    for commit_id in (1, 2, 3):
        latest.add(commit_id, bytearray(5))
    assert latest.read_batches([BatchPosition(2, 0, 5), BatchPosition(3, 0, 5)]) is not None
    assert latest.read_batches([BatchPosition(1, 0, 5), BatchPosition(3, 0, 5)]) is None


def test_a_reused_id_refers_to_the_latest_commit() -> None:
    latest = RecentCommits(limit_bytes=10)
    latest.add(1, bytearray(b"old.."))
    latest.add(2, bytearray(b"two.."))
    latest.add(1, bytearray(b"new.."))
    assert latest.read_batches([BatchPosition(1, 0, 3), BatchPosition(2, 0, 3)]) == [b"new", b"two"]
    latest.add(3, bytearray(b"three"))
    assert latest.read_batches([BatchPosition(1, 0, 3), BatchPosition(3, 0, 5)]) == [
        b"new",
        b"three",
    ]
    assert latest.read_batches([BatchPosition(2, 0, 3)]) is None
