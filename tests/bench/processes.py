"""Server processes under measurement: their CPU time and memory from the operating system."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class System:
    """A system in the comparison: it answers A2A at `url` with these processes."""

    name: str
    url: str
    pids: Mapping[str, int]
    """Process ids by role; their child processes count with them."""
    metrics: Sequence[str] = ()
    """The addresses at which the processes serve their own metrics."""

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds so far, by process.

        Raises:
            ProcessLookupError: a process has ended, so its usage is unknown.
        """
        return {role: self._tree_cpu_s(role) for role in self.pids}

    def rss_bytes(self) -> dict[str, int]:
        """Return the resident memory, by process."""
        return {role: sum(map(_rss_bytes, _tree(pid))) for role, pid in self.pids.items()}

    def _tree_cpu_s(self, role: str) -> float:
        pid = self.pids[role]
        used = _cpu_s(pid)
        if used is None:
            raise ProcessLookupError(f"the {role} of {self.name} has ended")
        return used + sum(_cpu_s(child) or 0.0 for child in _tree(pid) if child != pid)


def used_s(system: System, before: Mapping[str, float]) -> float:
    """Return the CPU seconds of a system since `before`, over all processes; raises as `cpu_s`."""
    return sum(system.cpu_s().values()) - sum(before.values())


def used_by(pid: int | None) -> float:
    """Return the CPU seconds of a process so far, without its children; 0 if there is none."""
    return 0.0 if pid is None else _cpu_s(pid) or 0.0


def _tree(pid: int) -> Iterable[int]:
    """Yield a process and its living descendants."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [(thread / "children").read_text().split() for thread in threads]
    except FileNotFoundError:
        return
    for child in (int(child_id) for ids in children for child_id in ids):
        yield from _tree(child)


def _cpu_s(pid: int) -> float | None:
    """Return the user and system time of a process, with nanoseconds; None if it has ended."""
    # Linux: the clock id of a process is its inverted id above three bits; 2 selects scheduler
    # time.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0
