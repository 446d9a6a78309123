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
# Field numbers in /proc/<pid>/stat after the name, which may contain spaces and parentheses.
_STATE_FIELD = 0
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """A process that opened a journal."""

    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Self:
        """Return the current process."""
        pid = os.getpid()
        return cls(pid, process_start(pid))

    @property
    def is_alive(self) -> bool:
        """The same process still exists. A stopped process does."""
        return self.started != "" and process_start(self.pid) == self.started

    @property
    def is_this_process(self) -> bool:
        """It is the current process."""
        return self.pid == os.getpid() and self.is_alive

    @property
    def is_from_this_boot(self) -> bool:
        """It was started in this boot, as far as the start time tells: that of `ps` does not."""
        return not boot_id() or self.started.startswith(f"{boot_id()}/")

    def kill(self, *, timeout_s: float) -> bool:
        """Kill the process if it still exists. Return whether it is gone within the time.

        A stopped process is killed, too. A zombie counts as gone. The reason is logged here,
        because a killed process cannot log it.
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
    """Return the start time of a process as text that differs after a reboot. Empty: no process."""
    if (_PROC / "self/stat").exists():
        return _start_by_proc(pid)
    return _start_by_ps(pid)


def _start_by_proc(pid: int) -> str:
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie runs no code. It only waits for its parent.
    if fields[_STATE_FIELD] in "ZX":
        return ""
    return f"{boot_id()}/{fields[_START_FIELD]}"


def _start_by_ps(pid: int) -> str:
    """Return the start time from `ps`, on systems without /proc."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return listing.stdout.strip()
