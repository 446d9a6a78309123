"""Tells processes apart: a pid and when its process started, since pids are used again."""

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
# In /proc/<pid>/stat, counted behind the name, which may itself hold spaces and parentheses.
_STATE_FIELD = 0
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """A process that opened a journal."""

    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Self:
        """Return the process that runs this."""
        pid = os.getpid()
        return cls(pid, process_start(pid))

    @property
    def is_alive(self) -> bool:
        """The very process is still there; a stopped one is."""
        return self.started != "" and process_start(self.pid) == self.started

    @property
    def is_this_process(self) -> bool:
        """It is the one that runs this."""
        return self.pid == os.getpid() and self.is_alive

    @property
    def is_from_this_boot(self) -> bool:
        """It was started since the machine was, as far as its words tell: those of `ps` don't."""
        return not boot_id() or self.started.startswith(f"{boot_id()}/")

    def kill(self, *, timeout_s: float) -> bool:
        """Kill the very process, if it is there; tell whether it is gone in time.

        A stopped process ends as well. One that only waits for its parent is gone. What is killed
        can't say why any more: it is said here.
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
    """Return when a process started, in words that differ after a reboot; empty: there is none."""
    if (_PROC / "self/stat").exists():
        return _start_by_proc(pid)
    return _start_by_ps(pid)


def _start_by_proc(pid: int) -> str:
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie runs no code any more; it only waits for its parent.
    if fields[_STATE_FIELD] in "ZX":
        return ""
    return f"{boot_id()}/{fields[_START_FIELD]}"


def _start_by_ps(pid: int) -> str:
    """For systems without /proc."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return listing.stdout.strip()
