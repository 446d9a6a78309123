"""Prints what was found: medians and spread, and where and with what it was measured."""

import os
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.rows import LONG, RATE, SHORT, Figures, Row
from bench.systems import NO_JOURNAL, NO_TRACING, PEER, SERVICES

Found = Mapping[str, Sequence[Figures]]
"""The figures of a row, by system."""

_Line = tuple[str, Sequence[str], str]
"""What, a cell for each column, and the aim."""

_NONE = "-"
_PACKAGES = ("grpcio", "protobuf", "a2a-sdk", "uvloop", "httptools", "uvicorn")


def where(load_before: float) -> str:
    """Return a line about the machine and the versions."""
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    found += [f"{name} {_version(name)}" for name in _PACKAGES]
    now = datetime.now(UTC)
    return (
        f"{now:%Y-%m-%d %H:%M} UTC, commit {_commit()}, {platform.machine()} {platform.system()}, "
        f"{os.cpu_count()} cores, load before {load_before:.1f}, after {os.getloadavg()[0]:.1f}\n"
        + ", ".join(found)
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        said = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return said.stdout.strip()

    is_changed = git("status", "--porcelain", "--", "../../services", "../../bridge")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if is_changed else "")


def table(rows: Sequence[tuple[Row, Found]], systems: Sequence[str]) -> str:
    """Return all rows as one table in Markdown; systems are its columns."""
    columns = [name for name in systems if name not in (NO_JOURNAL, NO_TRACING)]
    lines = [
        "| shape | figure | " + " | ".join(columns) + " | aim |",
        "|" + "---|" * (len(columns) + 3),
    ]
    for row, found in rows:
        lines += _lines(row, found, columns)
    return "\n".join(lines)


def _lines(row: Row, found: Found, columns: Sequence[str]) -> list[str]:
    off = next((found[name] for name in (NO_JOURNAL, NO_TRACING) if name in found), None)
    lines = _compared(row, found, off) if off is not None else _plain(row, found, columns)
    blanks = " |" * (len(columns) - 1)
    named = [row.name, *[""] * (len(lines) - 1)]
    return [
        f"| {name} | {what} | "
        + (" | ".join(cells) if off is None else cells[0] + blanks)
        + f" | {aim} |"
        for name, (what, cells, aim) in zip(named, lines, strict=True)
    ]


def _plain(row: Row, found: Found, columns: Sequence[str]) -> list[_Line]:
    """A line for each figure, and one for each aim that is a ratio."""
    lines: list[_Line] = []
    for figure in next((runs[0] for runs in found.values() if runs), {}):
        cells = [_cell(found.get(system, ()), figure) for system in columns]
        aim = row.aims.get(figure, "")
        if not aim.endswith(("x", "higher")):
            lines.append((figure, cells, aim))
            continue
        lines.append((figure, cells, ""))
        if figure == RATE and found.get(SERVICES) and found.get(PEER):
            against = _median(found[PEER], RATE)
            ratios = [_ratio(found.get(system, ()), RATE, against) for system in columns]
            lines.append(("the same against a2a-sdk", ratios, aim))
        elif figure == LONG:
            ratios = [
                _ratio(runs, LONG, _median(runs, SHORT)) if (runs := found.get(system)) else _NONE
                for system in columns
            ]
            lines.append(("the same against short", ratios, aim))
    return lines


def _compared(row: Row, found: Found, off: Sequence[Figures]) -> list[_Line]:
    """What is asked of Trunkline with something on and off, and how they compare."""
    on = found.get(SERVICES, ())
    lines: list[_Line] = []
    for figure, aim in row.aims.items():
        each = [one[figure] / other[figure] for one, other in zip(on, off, strict=False)]
        ratio = _spread([f"{value:.2f}x" for value in sorted(each)]) if each else _NONE
        lines += [
            (f"{figure}, on", [_cell(on, figure)], ""),
            (f"{figure}, off", [_cell(off, figure)], ""),
            ("on against off, of each repetition", [ratio], aim),
        ]
    return lines


def _ratio(runs: Sequence[Figures], figure: str, against: float) -> str:
    return f"{_median(runs, figure) / against:.2f}x" if runs else _NONE


def _median(runs: Sequence[Figures], figure: str) -> float:
    return statistics.median(run[figure] for run in runs)


def _cell(runs: Sequence[Figures], figure: str) -> str:
    values = sorted(run[figure] for run in runs if figure in run)
    return _spread([_number(value) for value in values]) if values else _NONE


def _spread(values: Sequence[str]) -> str:
    """The middle of sorted values, the lowest and the highest; of an even number, the lower."""
    return f"{values[(len(values) - 1) // 2]} ({values[0]} to {values[-1]})"


def _number(value: float) -> str:
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"
