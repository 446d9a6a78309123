"""Tests of the journal's clock while the wall clock is moved backward and forward."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.journal.builders import completed, created, working
from harness.journal.opening import open_journal
from trunkline.journal.clock import Clock, ClockReading, since_boot_ns
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.group_commit import KEY_TTL_NS
from trunkline.journal.journal import Journal
from trunkline.v1 import event_pb2

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS

SetWall = Callable[[int], None]


@pytest.fixture
def set_wall(monkeypatch: pytest.MonkeyPatch) -> SetWall:
    """Shift the wall clock by nanoseconds from the true time."""
    true_ns = time.time_ns

    def shift(by_ns: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() + by_ns)

    return shift


async def write_and_read_times(
    journal: Journal, count: int, set_wall: SetWall, *shifts_ns: int
) -> list[int]:
    """Append events after each shift of the wall clock; return the event times in order."""
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    for shift_ns in shifts_ns:
        set_wall(shift_ns)
        for _ in range(count):
            await journal.append(task_id, journal.epoch, [build_draft([working()])])
    batches = await journal.read(task_id, 0, limit_bytes=10**6)
    return [parse_header(batch).time.ToNanoseconds() for batch in batches]


async def test_times_of_events_never_go_back(journal: Journal, set_wall: SetWall) -> None:
    times_ns = await write_and_read_times(journal, 5, set_wall, 0, -HOUR_NS, 10**9, -DAY_NS, 0)
    assert len(times_ns) == 26
    assert times_ns == sorted(times_ns)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("last", [working(), completed()], ids=["unfinished", "ended"])
async def test_times_of_events_do_not_go_back_after_a_restart(
    tmp_path: Path, set_wall: SetWall, last: event_pb2.Event, is_killed: bool
) -> None:
    path = tmp_path / "journals" / "journal.db"
    journal = open_journal(path)
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([last])])
    last_ns = parse_header((await journal.read(task_id, 1))[0]).time.ToNanoseconds()
    if is_killed:
        # The files as a kill leaves them.
        path = Path(shutil.copytree(path.parent, tmp_path / "killed")) / path.name
    await journal.close()
    set_wall(-DAY_NS)
    journal = open_journal(path)
    assert min(await write_and_read_times(journal, 1, set_wall, -DAY_NS)) >= last_ns
    await journal.close()


@pytest.mark.parametrize("shift_ns", [-10 * DAY_NS, 10 * DAY_NS])
async def test_a_key_keeps_its_lifetime_when_the_wall_clock_is_changed(
    tmp_path: Path, set_wall: SetWall, shift_ns: int
) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    task_id = journal.new_task_id()
    await journal.create(task_id, created(), key="key", content_hash="hash")
    set_wall(shift_ns)
    await journal.renew_lease(10.0)
    again = await journal.create(journal.new_task_id(), created(), key="key", content_hash="hash")
    assert (again.task_id, again.is_new) == (task_id, False)
    await journal.close()
    journal = open_journal(path)
    await journal.renew_lease(10.0)
    again = await journal.create(journal.new_task_id(), created(), key="key", content_hash="hash")
    assert (again.task_id, again.is_new) == (task_id, False)
    await journal.close()


async def test_a_key_expires_by_the_journals_age_when_the_wall_clock_is_set_back(
    tmp_path: Path, set_wall: SetWall
) -> None:
    journal = open_journal(tmp_path / "journal.db")
    task_id = journal.new_task_id()
    await journal.create(task_id, created(), key="key", content_hash="hash")
    set_wall(-10 * DAY_NS)
    clock = journal._store.clock
    assert isinstance(clock, Clock)
    clock._created_ns -= KEY_TTL_NS
    again = await journal.create(journal.new_task_id(), created(), key="key", content_hash="hash")
    assert again.is_new
    await journal.close()


def test_age_continues_after_a_restart_by_the_boot_clock(set_wall: SetWall) -> None:
    reading = replace(
        Clock(ClockReading(age_ns=DAY_NS)).reading(), since_boot_ns=since_boot_ns() - HOUR_NS
    )
    for shift_ns in (0, -10 * DAY_NS, 10 * DAY_NS):
        set_wall(shift_ns)
        elapsed_ns = Clock(reading).age_ns() - DAY_NS
        assert elapsed_ns == pytest.approx(HOUR_NS, rel=0.1)


def test_age_continues_after_a_reboot_by_the_wall_clock_but_never_decreases(
    set_wall: SetWall,
) -> None:
    reading = replace(Clock(ClockReading(age_ns=DAY_NS)).reading(), boot="earlier")
    for shift_ns, expected in ((2 * HOUR_NS, 2 * HOUR_NS), (-10 * DAY_NS, 0)):
        set_wall(shift_ns)
        elapsed_ns = Clock(reading).age_ns() - DAY_NS
        assert expected <= elapsed_ns < expected + HOUR_NS
