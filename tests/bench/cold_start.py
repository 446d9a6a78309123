"""Measures what a person waits for at a cold start of the command line.

`.venv/bin/python tests/bench/cold_start.py` runs, in rounds: `trunkline --help`, `trunkline ask
--help`, a question without a mesh until its answer and until its exit, and `trunkline up` until it
is ready, with the first question after it. It prints medians of the wall time, and of the CPU time
of all processes. The files are in the page cache, and byte code is compiled.

`--trunkline PATH` measures the command of another environment, such as one of the wheel alone: the
tests' environment has packages that are loaded where they are installed.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

_QUESTION = "what is 1+2"
_FREE = "127.0.0.1:0"
# Nothing listens there, so that a question starts a mesh.
_NOBODY = "127.0.0.1:1"

Figures = dict[str, tuple[float, float]]
"""The wall time and the CPU time of each step, in seconds."""


class Stopwatch:
    """Measures from its creation. The CPU time is that of processes that have ended."""

    def __init__(self) -> None:
        self._cpu_s = self._read_cpu_s()
        self._started_s = time.monotonic()

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def cpu_s(self) -> float:
        return self._read_cpu_s() - self._cpu_s

    def _read_cpu_s(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime


def start(command: str, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Start a command whose default addresses are nobody's."""
    return subprocess.Popen(
        [command, *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TRUNKLINE_HTTP": _NOBODY},
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it printed nothing; run it to see why"
    return line


def measure_help(command: str, *words: str) -> tuple[float, float]:
    """Return the wall time and the CPU time of a command that prints help."""
    watch = Stopwatch()
    process = start(command, *words)
    process.communicate()
    return watch.wall_s, watch.cpu_s


def measure_question(command: str, *words: str) -> tuple[float, float, float]:
    """Return the wall time until the answer, that until the exit, and the CPU time."""
    watch = Stopwatch()
    process = start(command, "ask", *words, _QUESTION)
    assert read_line(process) == "3\n"
    answer_s = watch.wall_s
    process.communicate()
    return answer_s, watch.wall_s, watch.cpu_s


def measure_up(command: str, folder: str) -> Figures:
    """Return the figures of a mesh that starts, and of its first and second question."""
    addresses = ("--http", _FREE, "--a2a-grpc", _FREE, "--mesh", _FREE)
    watch = Stopwatch()
    mesh = start(command, "up", *addresses, "--data", folder)
    ready = dict(word.partition("=")[::2] for word in read_line(mesh).split()[1:])
    figures: Figures = {"up: ready": (watch.wall_s, float("nan"))}
    for name in ("first", "second"):
        answer_s, _, cpu_s = measure_question(command, "--url", ready["http"])
        figures[f"up: {name} question"] = (answer_s, cpu_s)
    mesh.terminate()
    mesh.communicate()
    figures["up: all with its end"] = (watch.wall_s, watch.cpu_s)
    return figures


def measure_round(command: str) -> Figures:
    """Return the figures of one round."""
    figures: Figures = {
        "--help": measure_help(command, "--help"),
        "ask --help": measure_help(command, "ask", "--help"),
    }
    answer_s, exit_s, cpu_s = measure_question(command)
    figures["question without a mesh: answer"] = (answer_s, float("nan"))
    figures["question without a mesh: exit"] = (exit_s, cpu_s)
    with tempfile.TemporaryDirectory() as folder:
        return figures | measure_up(command, folder)


def main() -> None:
    """Measure rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--trunkline", default=str(Path(sys.executable).with_name("trunkline")), metavar="PATH"
    )
    options = parser.parse_args()
    results: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for name, figures in measure_round(options.trunkline).items():
            results[name].append(figures)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {options.rounds} rounds")
    print(f"{'':32}{'wall s':>8}{'lowest':>8}{'CPU s':>8}")
    for name, all_figures in results.items():
        wall, cpu = ([figure[part] for figure in all_figures] for part in (0, 1))
        print(f"{name:32}{median(wall):8.2f}{min(wall):8.2f}{median(cpu):8.2f}")


if __name__ == "__main__":
    main()
