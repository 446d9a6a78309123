"""The audit log of a process: bounded in memory and on disk, also when the disk is full."""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.logs import find_logged
from trunkline.core.runtime import run_in_background
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.observe.audit import (
    Action,
    Actor,
    ActorKind,
    AuditFile,
    AuditLog,
    FileAuditReader,
    FileAuditWriter,
    audit_log,
    read_records,
)
from trunkline.observe.audit.audit_log import open_audit_log

ANN = Actor(kind=ActorKind.API_KEY, account="acme", name="ann", key_id="0123")


class UnreliableFile(AuditFile):
    """A file on a disk that is full while `is_full` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, size_bytes=1 << 30, age_s=1e9, files=2)
        self.is_full = False
        self.failures = 0
        self.lines = 0
        self.called = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def append(self, lines: bytes) -> None:
        self._loop.call_soon_threadsafe(self.called.set)
        if self.is_full:
            self.failures += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(lines)
        self.lines += lines.count(b"\n")

    async def wait_until(self, predicate: Callable[[], bool]) -> None:
        """Wait for calls of `append` until the predicate holds."""
        async with asyncio.timeout(300):
            while not predicate():
                self.called.clear()
                await self.called.wait()


@asynccontextmanager
async def open_log(path: Path) -> AsyncIterator[tuple[AuditLog, UnreliableFile]]:
    file = UnreliableFile(path)
    writer, reader = FileAuditWriter(file), FileAuditReader(path)
    log = AuditLog(writer, reader, process="test", records_reads=False)
    async with run_in_background(log.run()):
        yield log, file
    await log.close()


def entries(path: Path) -> list[dict[str, Any]]:
    records = list(read_records(path))
    assert all(record.entry is not None for record in records)
    return [record.entry for record in records if record.entry is not None]


async def test_records_are_in_the_file_when_the_log_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with open_log(path) as (log, _):
        for number in range(1200):
            log.record(Action.TASK_CANCEL, ANN, task=f"t-{number}", context="")
    assert [entry["object"] for entry in entries(path)] == [
        {"task": f"t-{number}"} for number in range(1200)
    ]
    first = entries(path)[0]
    assert first["time"].endswith("Z")
    del first["time"]
    assert first == {
        "process": "test",
        "action": "task.cancel",
        "outcome": "ok",
        "actor": {"kind": "api_key", "account": "acme", "name": "ann", "key_id": "0123"},
        "object": {"task": "t-0"},
    }


async def test_a_full_disk_is_logged_once_and_lost_records_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "_BATCH_S", 0.01)
    monkeypatch.setattr(audit_log, "_RETRY_S", 0.01)
    path = tmp_path / "audit.jsonl"
    with caplog.at_level(logging.ERROR):
        async with open_log(path) as (log, file):
            file.is_full = True
            for number in range(10_300):
                log.record(Action.TASK_CANCEL, ANN, task=f"t-{number}")
            await file.wait_until(lambda: file.failures > 1)
            file.is_full = False
            await file.wait_until(lambda: file.lines > 9_000)
    assert [record.message for record in find_logged(caplog)] == ["audit.not_written"]
    written = entries(path)
    # The loss is said before what was written after it.
    assert written[0]["action"] == "audit.lost"
    assert written[0]["count"] == 300
    assert [entry["object"]["task"] for entry in written[1:]] == [
        f"t-{number}" for number in range(10_000)
    ]


async def test_what_can_not_be_written_at_the_end_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        async with open_log(tmp_path / "audit.jsonl") as (log, file):
            file.is_full = True
            log.record(Action.TASK_CANCEL, ANN, task="t")
    lost = [vars(record) for record in caplog.records if record.message == "audit.lost"]
    assert [record["count"] for record in lost] == [1]


def refuse(log: AuditLog, address: str) -> None:
    actor = Actor(kind=ActorKind.ANONYMOUS, address=address)
    log.record_refusal(Action.CALLER_AUTHENTICATE, actor)


async def test_repeated_refusals_of_an_address_are_two_records(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with open_log(path) as (log, _):
        for _ in range(500):
            refuse(log, "203.0.113.9")
        refuse(log, "203.0.113.10")
    records = [(entry["actor"]["address"], entry.get("count", 1)) for entry in entries(path)]
    assert records == [("203.0.113.9", 1), ("203.0.113.10", 1), ("203.0.113.9", 499)]
    assert {entry["outcome"] for entry in entries(path)} == {"denied"}


async def test_refusals_of_many_addresses_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with open_log(path) as (log, _):
        for number in range(5000):
            refuse(log, f"2001:db8::{number:x}")
    assert len(entries(path)) <= 2 * 101
    assert sum(entry.get("count", 1) for entry in entries(path)) == 5000


async def test_nothing_is_opened_if_it_is_off(tmp_path: Path) -> None:
    async with open_audit_log(Settings(data_dir=tmp_path, audit=False), process="test") as log:
        assert log is None
    assert not await asyncio.to_thread((tmp_path / "private").exists)


async def test_a_folder_that_can_not_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "private").touch()
    with pytest.raises(ConfigurationError, match="not a folder"):
        async with open_audit_log(Settings(data_dir=tmp_path), process="test"):
            pass
