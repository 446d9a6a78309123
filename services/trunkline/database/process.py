"""Identifies processes by pid and start time, because pids are reused."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Indexes of the fields in /proc/<pid>/stat that follow the process's name. The name may contain
# spaces and parentheses.
_STATE_FIELD = 0
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """A process that opened a file."""

    pid: int
    started: str
    """The start time; see `process_start`. Empty: there is no such process."""

    @classmethod
    def this_process(cls) -> Self:
        """Return the current process."""
        return cls.from_pid(os.getpid())

    @classmethod
    def from_pid(cls, pid: int) -> Self:
        """Return the process that has a pid now."""
        return cls(pid, process_start(pid) if pid > 0 else "")

    @property
    def is_alive(self) -> bool:
        """The process exists, also if it is stopped. A zombie does not count."""
        return self.started != "" and process_start(self.pid) == self.started

    @property
    def is_from_this_boot(self) -> bool:
        """The process was started since the machine's boot. True if the system has no boot id."""
        return not boot_id() or self.started.startswith(f"{boot_id()}/")


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine. Empty: the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """Return a text that identifies the start of a process, also across reboots.

    It is the boot id and the ticks since boot, or the start time by `ps` on systems without /proc.
    Empty: there is no such process.
    """
    if (_PROC / "self/stat").exists():
        return _start_by_proc(pid)
    return _start_by_ps(pid)


def _start_by_proc(pid: int) -> str:
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie runs no code.
    if fields[_STATE_FIELD] in "ZX":
        return ""
    return f"{boot_id()}/{fields[_START_FIELD]}"


def _start_by_ps(pid: int) -> str:
    """Return the start time from `ps`, on systems without /proc."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()
