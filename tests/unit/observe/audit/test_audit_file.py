"""The audit log's file: append only, whole lines, bounded, private."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.errors import ConfigurationError
from trunkline.observe.audit import (
    Action,
    Actor,
    ActorKind,
    AuditFile,
    AuditRecord,
    audit_file,
    follow_records,
    read_records,
)

DAY_S = 24 * 3600.0


def open_file(path: Path, *, size_bytes: int = 1 << 20, age_s: float = DAY_S) -> AuditFile:
    return AuditFile(path, size_bytes=size_bytes, age_s=age_s, files=4)


def line(number: int) -> bytes:
    return b'{"number":%d}\n' % number


def numbers(path: Path) -> list[int]:
    return [record.entry["number"] for record in read_records(path) if record.entry is not None]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "private" / "audit.jsonl"
    open_file(path).append(line(1))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(mode=0o600)
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        open_file(tmp_path / "audit.jsonl")


@pytest.mark.parametrize("mode", [0o644, 0o622])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="other users may"):
        open_file(path)


def test_a_full_file_is_rotated_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = open_file(path, size_bytes=60)
    for number in range(100, 130):
        file.append(line(number))
    # A line has 15 bytes. The file of the newest two lines is the eighth.
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "audit.000005.jsonl",
        "audit.000006.jsonl",
        "audit.000007.jsonl",
        "audit.jsonl",
    ]
    assert numbers(path) == list(range(116, 130))


def test_an_old_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = open_file(path)
    file.append(b'{"time":"2020-01-01T00:00:00.000000Z","number":1}\n')
    file.append(line(2))
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == [
        "audit.000001.jsonl",
        "audit.jsonl",
    ]
    assert numbers(path) == [1, 2]


def test_a_line_that_was_cut_off_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = open_file(path)
    file.append(line(1))
    with path.open("ab") as cut:
        cut.write(b'{"number":')
    file.append(line(2))
    assert [record.entry for record in read_records(path)] == [{"number": 1}, None, {"number": 2}]


def test_a_removed_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = open_file(path)
    file.append(line(1))
    path.unlink()
    file.append(line(2))
    assert numbers(path) == [2]


WRITER = """
import sys
from pathlib import Path
from trunkline.observe.audit import AuditFile

file = AuditFile(Path(sys.argv[1]), size_bytes=5000, age_s=1e6, files=1000)
sys.stdin.readline()
for number in range(300):
    file.append(b'{"writer":%s,"number":%d}\\n' % (sys.argv[2].encode(), number))
"""


def test_processes_that_write_and_rotate_together_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)], stdin=subprocess.PIPE
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.close()
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0, 0]
    entries = [record.entry for record in read_records(path)]
    assert None not in entries
    for writer_number in range(3):
        own = [entry["number"] for entry in entries if entry and entry["writer"] == writer_number]
        assert own == list(range(300))
    assert len(list(tmp_path.iterdir())) > 3


def test_a_reader_follows_over_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "_FOLLOW_INTERVAL_S", 0.001)
    path = tmp_path / "audit.jsonl"
    file = open_file(path, size_bytes=40)
    file.append(line(100))
    followed = follow_records(path)
    seen = []
    for number in range(101, 108):
        while (record := next(followed)) is not None:
            assert record.entry is not None
            seen.append(record.entry["number"])
        file.append(line(number))
    while len(seen) < 8:
        if (record := next(followed)) is not None and record.entry is not None:
            seen.append(record.entry["number"])
    assert seen == list(range(100, 108))


HOSTILE = 'x"}\n{"action":"forged"}\r\u2028\u202e\x1b[2J\x7f'


def test_a_text_of_others_forges_no_line() -> None:
    record = AuditRecord(
        action=Action.TASK_GET,
        actor=Actor(kind=ActorKind.JWT, account=HOSTILE, name=HOSTILE, address=HOSTILE),
        objects={"task": HOSTILE, "agent": "y" * 100_000},
    )
    encoded = record.to_line("bridge")
    text = encoded.decode()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert all(character.isprintable() for character in text[:-1])
    entry = json.loads(text)
    assert entry["object"]["task"] == entry["actor"]["name"] == HOSTILE
    assert len(encoded) < 3000


def test_lone_surrogates_are_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    actor = Actor(kind=ActorKind.ANONYMOUS, name="\udc80")
    record = AuditRecord(action=Action.TASK_GET, actor=actor)
    open_file(path).append(record.to_line(os.fsdecode(b"\xff")))
    assert [read.entry is not None for read in read_records(path)] == [True]
