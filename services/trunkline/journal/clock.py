"""The clock of a journal: wall time that never decreases, and an age that ignores wall time."""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A stored reading of a journal's clock, with the wall time and the uptime at that moment."""

    time_ns: int = 0
    age_ns: int = 0
    wall_ns: int = 0
    boot: str = ""
    since_boot_ns: int = 0


class Clock:
    """Two times of one journal.

    `time_ns` is for people: wall time that never decreases. `age_ns` is for expiry: the time since
    the journal was created, measured by the machine's uptime clock. Only the wall clock can measure
    the time between two boots. If it was set back meanwhile, that time counts as zero.
    """

    def __init__(self, noted: ClockReading) -> None:
        """Continue from the last stored reading."""
        self._last_ns = noted.time_ns
        self._began_ns = since_boot_ns() - noted.age_ns - _passed_since(noted)

    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970."""
        now_ns = time.time_ns()
        if now_ns > self._last_ns:
            self._last_ns = now_ns
        return self._last_ns

    def age_ns(self) -> int:
        """Return the journal's age in nanoseconds."""
        return since_boot_ns() - self._began_ns

    def advance_to(self, time_ns: int) -> None:
        """Let `time_ns` never return less than this, the time of an event."""
        self._last_ns = max(self._last_ns, time_ns)

    def reading(self) -> ClockReading:
        """Return the reading to store. A clock made from it continues after a restart."""
        return ClockReading(
            time_ns=self._last_ns,
            age_ns=self.age_ns(),
            wall_ns=time.time_ns(),
            boot=boot_id(),
            since_boot_ns=since_boot_ns(),
        )


def since_boot_ns() -> int:
    """Return the machine's uptime in nanoseconds, with time asleep where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine. Empty: the system has none."""
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
