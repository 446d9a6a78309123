"""The clock of a journal: a wall time that never decreases, and the journal's age."""

import time
from dataclasses import dataclass

from trunkline.core.database.process import boot_id


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A stored reading of a journal's clock, with the machine's clocks at that moment."""

    time_ns: int = 0
    age_ns: int = 0
    wall_ns: int = 0
    """The wall clock in nanoseconds since 1970. It is 0 until a reading is stored."""
    boot: str = ""
    """The id of the boot; see `boot_id`."""
    since_boot_ns: int = 0
    """The machine's uptime."""


class Clock:
    """Two times of one journal.

    `time_ns` is for timestamps: the wall time, but it never decreases. `age_ns` is for expiry: the
    time since the journal was created, by the machine's uptime clock, so changes of the wall clock
    do not affect it. Only across a reboot, the wall clock measures the time. If it was set back
    meanwhile, that time counts as zero.
    """

    def __init__(self, stored: ClockReading) -> None:
        """Continue from the last stored reading."""
        self._last_ns = stored.time_ns
        self._created_ns = since_boot_ns() - stored.age_ns - _elapsed_since(stored)

    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970."""
        now_ns = time.time_ns()
        if now_ns > self._last_ns:
            self._last_ns = now_ns
        return self._last_ns

    def age_ns(self) -> int:
        """Return the journal's age in nanoseconds."""
        return since_boot_ns() - self._created_ns

    def advance_to(self, time_ns: int) -> None:
        """Ensure that `time_ns` never returns less than this, for example the time of an event."""
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
    """Return the machine's uptime in nanoseconds. On Linux, it includes the time in suspend."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


def _elapsed_since(stored: ClockReading) -> int:
    """Return the nanoseconds since a reading was stored."""
    if not stored.wall_ns:
        return 0
    if stored.boot and stored.boot == boot_id():
        return max(0, since_boot_ns() - stored.since_boot_ns)
    return max(0, time.time_ns() - stored.wall_ns)
