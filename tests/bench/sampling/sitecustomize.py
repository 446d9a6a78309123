"""Samples the CPU time of a process, if BENCH_PROFILE names a folder for the results.

Python imports this at the start of any process that has its folder in PYTHONPATH. SIGUSR1 begins
the sampling, SIGUSR2 ends it and writes `<BENCH_ROLE>.txt`. Samples are taken by CPU time, on the
main thread; C code counts for the function that calls it. Other threads show by their CPU time
only.
"""

import collections
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

_INTERVAL_S = 0.002
_LIBRARY = str(Path(os.__file__).parent.parent) + "/"
_Names = collections.Counter[str]


class _Sampler:
    def __init__(self, path: Path) -> None:
        self._path = path
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, _signal: int, _frame: FrameType | None) -> None:
        self._own, self._lines, self._total, self._packages = _Names(), _Names(), _Names(), _Names()
        self._samples = 0
        self._started_s = time.monotonic()
        self._cpu_s = time.process_time()
        self._threads = _threads_s()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self._samples += 1
        name = _name(frame)
        self._own[name] += 1
        self._lines[f"{name}:{frame.f_lineno}"] += 1
        self._packages[_package(frame)] += 1
        names: set[str] = set()
        current: FrameType | None = frame
        while current is not None:
            names.add(_name(current))
            current = current.f_back
        self._total.update(names)

    def _end(self, _signal: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        elapsed_s, cpu_s = time.monotonic() - self._started_s, time.process_time() - self._cpu_s
        lines = [f"{cpu_s:.2f} CPU-s in {elapsed_s:.1f} s, {self._samples} samples", "", "threads:"]
        for name, used_s in sorted(_threads_s().items(), key=lambda item: -item[1]):
            used_s -= self._threads.get(name, 0.0)
            if used_s >= 0.01:
                lines.append(f"  {used_s:6.2f} s  {name}")
        common = {name for name, count in self._total.items() if count > 0.99 * self._samples}
        for title, counts, limit in (
            ("by package, own time", self._packages, 25),
            ("by function, own time", self._own, 40),
            ("by line, own time", self._lines, 30),
            ("by function, with what it calls", self._total, 70),
        ):
            lines += ["", f"{title}:"]
            lines += [
                f"  {count / max(1, self._samples):6.1%}  {name}"
                for name, count in counts.most_common(limit + len(common))
                if name not in common
            ]
        # The rename makes the complete file visible at once.
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.rename(self._path)


def _name(frame: FrameType) -> str:
    return f"{_file(frame)} {frame.f_code.co_qualname}"


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    for mark in ("site-packages/", "services/", "bridge/", "/tests/"):
        _, seconds, rest = path.rpartition(mark)
        if seconds:
            return rest
    return path.removeprefix(_LIBRARY)


def _package(frame: FrameType) -> str:
    parts = _file(frame).split("/")
    return "/".join(parts[:2]) if parts[0].startswith(("trunkline", "grpc", "google")) else parts[0]


def _threads_s() -> dict[str, float]:
    """Return the CPU seconds of each thread of this process."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        comm = (task / "comm").read_text().strip()
        seconds[f"{names.get(int(task.name), comm)} {task.name}"] = used_s
    return seconds


if folder := os.environ.get("BENCH_PROFILE"):
    _Sampler(Path(folder) / f"{os.environ.get('BENCH_ROLE', os.getpid())}.txt")
