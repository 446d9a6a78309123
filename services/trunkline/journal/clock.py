"""A journal's own time: it never goes back, and counts what passes whatever the wall clock does."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What a journal's clock showed when it was written down, and when that was."""

    time_ns: int = 0
    age_ns: int = 0
    wall_ns: int = 0
    boot: str = ""
    since_boot_ns: int = 0


class Clock:
    """Two times of one journal.

    `time_ns` is for people: the wall clock's, but never before what it was. `age_ns` is for what
    expires: how long the journal has existed, by the clock that counts from the machine's boot.
    Over a reboot only the wall clock can tell what has passed; a step back counts as nothing.
    """

    def __init__(self, noted: ClockReading) -> None:
        """Go on from what was noted last."""
        self._last_ns = noted.time_ns
        self._began_ns = since_boot_ns() - noted.age_ns - _passed_since(noted)

    def time_ns(self) -> int:
        """Return the time, in nanoseconds since 1970."""
        now_ns = time.time_ns()
        if now_ns > self._last_ns:
            self._last_ns = now_ns
        return self._last_ns

    def age_ns(self) -> int:
        """Return how long the journal has existed."""
        return since_boot_ns() - self._began_ns

    def advance_to(self, time_ns: int) -> None:
        """Never show an earlier time than this, which an event has."""
        self._last_ns = max(self._last_ns, time_ns)

    def reading(self) -> ClockReading:
        """Return what to go on from after a restart."""
        return ClockReading(
            time_ns=self._last_ns,
            age_ns=self.age_ns(),
            wall_ns=time.time_ns(),
            boot=boot_id(),
            since_boot_ns=since_boot_ns(),
        )


def since_boot_ns() -> int:
    """Return how long the machine has been up, its sleep included where the system counts that."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


@cache
def boot_id() -> str:
    """Return what tells this run of the machine from others; empty where nothing does."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _passed_since(noted: ClockReading) -> int:
    if not noted.wall_ns:
        return 0
    if noted.boot and noted.boot == boot_id():
        return max(0, since_boot_ns() - noted.since_boot_ns)
    return max(0, time.time_ns() - noted.wall_ns)
