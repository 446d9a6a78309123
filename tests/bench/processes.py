"""Server processes under measurement: what they use, from the operating system."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class System:
    """One of the things that are compared: it answers A2A at `url`, over these processes."""

    name: str
    url: str
    pids: Mapping[str, int]
    """Its processes by what they do; their children count with them."""

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by process.

        Raises:
            ProcessLookupError: one has ended; what it used can't be known any more.
        """
        return {role: self._tree_cpu_s(role) for role in self.pids}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory, by process."""
        return {role: sum(map(_rss_bytes, _tree(pid))) for role, pid in self.pids.items()}

    def _tree_cpu_s(self, role: str) -> float:
        pid = self.pids[role]
        used = _cpu_s(pid)
        if used is None:
            raise ProcessLookupError(f"the {role} of {self.name} has ended")
        return used + sum(_cpu_s(below) or 0.0 for below in _tree(pid) if below != pid)


def used_s(system: System, before: Mapping[str, float]) -> float:
    """CPU seconds of all of a system's processes since `before`; raises as `cpu_s` does."""
    return sum(system.cpu_s().values()) - sum(before.values())


def _tree(pid: int) -> Iterable[int]:
    """A process and its living descendants."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [(thread / "children").read_text().split() for thread in threads]
    except FileNotFoundError:
        return
    for child in (int(one) for some in children for one in some):
        yield from _tree(child)


def _cpu_s(pid: int) -> float | None:
    """User and system time of a process: what /proc/PID/stat says in ticks, in nanoseconds.

    None: there is no such process.
    """
    # Linux: the clock of a process has the inverted id above three bits, 2 being scheduler time.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0
