"""Identifies processes by pid and start time, because pids are reused."""

import contextlib
import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from trunkline.journal.clock import boot_id

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.002
_PROC = Path("/proc")
# Indexes of the fields in /proc/<pid>/stat that follow the process's name. The name may contain
# spaces and parentheses.
_STATE_FIELD = 0
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """A process that opened a journal."""

    pid: int
    started: str
    """The start time; see `process_start`. Empty: there is no such process."""

    @classmethod
    def this_process(cls) -> Self:
        """Return the current process."""
        pid = os.getpid()
        return cls(pid, process_start(pid))

    @property
    def is_alive(self) -> bool:
        """The process exists, also if it is stopped. A zombie does not count."""
        return self.started != "" and process_start(self.pid) == self.started

    @property
    def is_this_process(self) -> bool:
        """It is the current process."""
        return self.pid == os.getpid() and self.is_alive

    @property
    def is_from_this_boot(self) -> bool:
        """The process was started since the machine's boot. True if the system has no boot id."""
        return not boot_id() or self.started.startswith(f"{boot_id()}/")

    def kill(self, *, timeout_s: float) -> bool:
        """Kill the process if it exists, also if it is stopped. Wait for its end.

        Return whether it has ended within the time. The reason is logged here, because a killed
        process cannot log it.
        """
        deadline_s = time.monotonic() + timeout_s
        if self.is_alive:
            reason = "its lease is over: it was stopped, or too busy to renew it"
            logger.warning("host.killed", extra={"pid": self.pid, "reason": reason})
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        while self.is_alive:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


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
